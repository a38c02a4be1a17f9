// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// simulatedSensor is a host's root with this machine's processes and a powercap tree of plain
// files. It has the true energy, even after counters have wrapped.
type simulatedSensor struct {
	root  string
	mu    sync.Mutex
	watts map[string]float64 // by zone
	now   simulatedTruth
	past  []simulatedTruth
	raw   map[string]float64 // counter minus true energy of a zone, in microjoules
}

type simulatedTruth struct {
	at     time.Time
	joules map[string]float64
}

// simulatedRange is the counters' range in microjoules: 32 bits of 2^-14 J, as in Intel's packages.
const simulatedRange = 262143328850

var simulatedZones = map[string]string{"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram"}

// startSensor returns a sensor that counts until the test ends. Its power is 0 at first.
func startSensor(t *testing.T) *simulatedSensor {
	t.Helper()
	s := &simulatedSensor{root: t.TempDir(), watts: map[string]float64{}, raw: map[string]float64{}}
	s.now = simulatedTruth{time.Now(), map[string]float64{}}
	require.NoError(t, os.Symlink("/proc", filepath.Join(s.root, "proc")))
	require.NoError(t, os.MkdirAll(filepath.Join(s.root, "sys/fs"), 0o755))
	require.NoError(t, os.Symlink("/sys/fs/cgroup", filepath.Join(s.root, "sys/fs/cgroup")))
	for id, name := range simulatedZones {
		zone := filepath.Dir(s.counter(id))
		require.NoError(t, os.MkdirAll(zone, 0o755))
		for file, text := range map[string]string{"name": name, "max_energy_range_uj": strconv.Itoa(simulatedRange)} {
			require.NoError(t, os.WriteFile(filepath.Join(zone, file), []byte(text+"\n"), 0o600))
		}
	}
	s.wrapAfter(t, 1000)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			s.mu.Lock()
			err := s.count()
			s.mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return s
}

func (s *simulatedSensor) counter(id string) string {
	return filepath.Join(s.root, "sys/class/powercap", id, "energy_uj")
}

// wrapAfter sets the counters so that they wrap after some joules. A running collector would detect
// a reset.
func (s *simulatedSensor) wrapAfter(t *testing.T, joules float64) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range simulatedZones {
		s.raw[id] = simulatedRange - 1e6*(s.now.joules[id]+joules)
	}
	require.NoError(t, s.count())
}

// draw sets the power of the zones, in watts.
func (s *simulatedSensor) draw(t *testing.T, watts map[string]float64) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NoError(t, s.count())
	s.watts = watts
}

// count counts the energy since the last call.
func (s *simulatedSensor) count() error {
	next := simulatedTruth{time.Now(), map[string]float64{}}
	for id := range simulatedZones {
		next.joules[id] = s.now.joules[id] + s.watts[id]*next.at.Sub(s.now.at).Seconds()
		shown := uint64(math.Mod(1e6*next.joules[id]+s.raw[id], simulatedRange))
		// The number is rewritten in one write, so that a reader reads the old or the new number.
		file, err := os.OpenFile(s.counter(id), os.O_WRONLY|os.O_CREATE, 0o400)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(file, "%012d\n", shown)
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	s.now = next
	s.past = append(s.past, next)
	return nil
}

// joules returns a zone's true energy at a time, or now.
func (s *simulatedSensor) joules(id string, at time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.past, at, func(e simulatedTruth, at time.Time) int { return e.at.Compare(at) })
	if i == len(s.past) {
		return s.now.joules[id]
	}
	if i == 0 {
		return s.past[0].joules[id]
	}
	a, b := s.past[i-1], s.past[i]
	return a.joules[id] + (b.joules[id]-a.joules[id])*at.Sub(a.at).Seconds()/b.at.Sub(a.at).Seconds()
}
