// SPDX-License-Identifier: Apache-2.0

// Package powertest holds tests that several meters share.
package powertest

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ByID returns readings by the IDs of their zones.
func ByID(readings []power.Reading) map[string]power.Reading {
	zones := make(map[string]power.Reading, len(readings))
	for _, r := range readings {
		zones[r.Zone.ID] = r
	}
	return zones
}

// Machine is a simulated machine with energy counters in files or perf events.
type Machine struct {
	// Meter reads the counters.
	Meter power.Meter
	// Zones are the IDs of two zones. The other fields identify a zone by its index in Zones.
	Zones [2]string
	// Set sets the counter of a zone to an energy in joules.
	Set func(zone, joules int)
	// Dir is the directory of the counters. If it does not exist, the machine has no such meter.
	Dir string
	// Searched is a path that only discoveries read.
	Searched string
	// Path returns the path of the counter of a zone. It is nil if the counters are not files.
	Path func(zone int) string
	// Deny makes opening the counter of a zone fail until restore is called. It is nil if the counters
	// are files.
	Deny func(zone int, err error) (restore func())
	// DiscoveryAllocs is the maximum number of allocations of a read whose discovery finds no change.
	DiscoveryAllocs float64
	// Pass advances the time of the machine. It must not allocate. It may be nil.
	Pass func(time.Duration)

	testing.TB
	now time.Time
}

// Files tests the meter of energy counters that the kernel shows. newMachine returns a machine
// whose counters show 1000 J. If always is set, the meter's discoveries run on another goroutine.
func Files(t *testing.T, newMachine func(t testing.TB, always bool) *Machine) {
	begin := func(t testing.TB, always bool) *Machine {
		m := newMachine(t, always)
		m.TB, m.now = t, time.Now()
		return m
	}
	for name, test := range map[string]func(*Machine){
		"counters are read, a step back is no energy":      (*Machine).counts,
		"a counter that may not be opened is tried again":  (*Machine).isDenied,
		"a missing directory is no meter until it appears": (*Machine).isMissing,
		"a file in place of the directory is an error":     (*Machine).isNoDirectory,
		"zones keep their totals while it is gone":         (*Machine).vanishes,
		"a closed meter is not read":                       (*Machine).isClosed,
		"a read does not allocate, a discovery little":     (*Machine).allocates,
	} {
		t.Run(name, func(t *testing.T) { test(begin(t, false)) })
	}
	t.Run("a search that hangs delays no read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { begin(t, true).hangs() })
	})
	if begin(t, false).Path == nil {
		return
	}
	for name, test := range map[string]func(*Machine){
		"text that is no number fails its zone only":        (*Machine).isBad,
		"a file that vanishes is an error until it is back": (*Machine).losesFile,
		"a file that was replaced is opened":                (*Machine).replacesFile,
	} {
		t.Run(name, func(t *testing.T) { test(begin(t, false)) })
	}
}

// read returns the readings of both zones after a time.
func (m *Machine) read(after time.Duration) (zones [2]power.Reading, err error) {
	m.Helper()
	m.now = m.now.Add(after)
	if m.Pass != nil {
		m.Pass(after)
	}
	readings, err := m.Meter.Read(context.Background(), power.Sample{At: m.now})
	byID := ByID(readings)
	for i, id := range m.Zones {
		zones[i] = byID[id]
	}
	return zones, err
}

// good is read for zones that can be read, and have these totals in joules.
func (m *Machine) good(after time.Duration, joules ...units.Energy) (zones [2]power.Reading) {
	m.Helper()
	zones, err := m.read(after)
	require.NoError(m, err)
	for i, want := range joules {
		require.NoError(m, zones[i].Err)
		require.Equal(m, want*units.Joule, zones[i].Total)
		require.True(m, zones[i].At.Equal(m.now))
	}
	return zones
}

// long is longer than the time between two discoveries.
const long = time.Minute

func (m *Machine) counts() {
	zones := m.good(0, 0, 0)
	assert.Equal(m, power.Appeared, zones[0].Event)
	m.Set(0, 1010)
	m.Set(1, 1020)
	zones = m.good(time.Second, 10, 20)
	assert.Equal(m, power.NoEvent, zones[0].Event)
	m.good(time.Second, 10, 20)
}

func (m *Machine) isDenied() {
	deny := m.Deny
	if deny == nil {
		deny = func(zone int, denied error) func() {
			return kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
				if path == m.Path(zone) {
					return nil, denied
				}
				return got, err
			})
		}
	}
	grant := deny(0, syscall.EACCES)
	for range 3 {
		zones, err := m.read(time.Second)
		require.NoError(m, err)
		require.ErrorIs(m, zones[0].Err, fs.ErrPermission)
		assert.Zero(m, zones[0].At)
		assert.NoError(m, zones[1].Err)
	}
	grant()
	assert.Equal(m, power.Appeared, m.good(time.Second, 0, 0)[0].Event)
	m.Set(0, 1010)
	m.good(time.Second, 10, 0)

	grant = deny(0, syscall.EIO)
	zones, err := m.read(time.Second)
	grant()
	require.NoError(m, err)
	if m.Path != nil { // otherwise the counter stays open
		require.ErrorIs(m, zones[0].Err, syscall.EIO)
		assert.Equal(m, 10*units.Joule, zones[0].Total)
	}
	m.Set(0, 1030)
	m.good(time.Second, 30, 0)
}

// hide makes the directory vanish until restore is called.
func (m *Machine) hide() (restore func()) {
	hidden := m.Dir + "_hidden"
	require.NoError(m, os.Rename(m.Dir, hidden))
	return func() { require.NoError(m, os.Rename(hidden, m.Dir)) }
}

func (m *Machine) isMissing() {
	restore := m.hide()
	for range 3 {
		zones, err := m.read(time.Second)
		require.ErrorIs(m, err, fs.ErrNotExist)
		assert.Equal(m, [2]power.Reading{}, zones)
	}
	restore()
	assert.Equal(m, power.Appeared, m.good(long, 0, 0)[0].Event)
}

func (m *Machine) isNoDirectory() {
	restore := m.hide()
	require.NoError(m, os.WriteFile(m.Dir, nil, 0o600))
	zones, err := m.read(0)
	require.Error(m, err)
	assert.NotErrorIs(m, err, fs.ErrNotExist)
	assert.Equal(m, [2]power.Reading{}, zones)
	require.NoError(m, os.Remove(m.Dir))
	restore()
	m.good(long, 0, 0)
}

func (m *Machine) vanishes() {
	before := m.good(0, 0, 0)
	m.Set(0, 1010)
	m.good(time.Second, 10, 0)
	restore := m.hide()
	for range 2 {
		zones, err := m.read(long)
		require.ErrorIs(m, err, fs.ErrNotExist)
		require.Error(m, zones[0].Err)
		assert.Equal(m, 10*units.Joule, zones[0].Total)
		assert.Equal(m, before[0].At.Add(time.Second), zones[0].At)
	}
	restore()
	back := m.good(2*time.Second, 10)
	assert.Same(m, before[0].Zone, back[0].Zone)
}

func (m *Machine) isClosed() {
	m.good(0, 0, 0)
	require.NoError(m, m.Meter.Close())
	require.NoError(m, m.Meter.Close())
	_, err := m.read(time.Second)
	require.ErrorIs(m, err, fs.ErrClosed)
}

func (m *Machine) allocates() {
	m.good(0, 0, 0)
	allocations := func(after time.Duration) float64 {
		return testing.AllocsPerRun(100, func() {
			m.now = m.now.Add(after)
			if m.Pass != nil {
				m.Pass(after)
			}
			_, _ = m.Meter.Read(context.Background(), power.Sample{At: m.now})
		})
	}
	assert.Zero(m, allocations(time.Millisecond))
	assert.LessOrEqual(m, allocations(long), m.DiscoveryAllocs)
}

func (m *Machine) hangs() {
	m.good(0, 0, 0)
	release := make(chan struct{})
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if path == m.Searched {
			<-release
		}
		return got, err
	})
	for i := range units.Energy(5) {
		m.Set(0, 1000+int(i))
		began := time.Now()
		zones, err := m.read(long)
		if i > 0 {
			assert.ErrorContains(m, err, "hangs")
			assert.Zero(m, time.Since(began))
		} else {
			assert.LessOrEqual(m, time.Since(began), time.Second)
		}
		require.NoError(m, zones[0].Err)
		assert.Equal(m, i*units.Joule, zones[0].Total)
		time.Sleep(long)
		synctest.Wait()
	}
	restore()
	close(release)
	synctest.Wait()
	m.good(0, 4, 0)
	require.NoError(m, m.Meter.Close())
}

func (m *Machine) isBad() {
	for i, text := range []string{
		"", "\n", "abc\n", "-5\n", "+5\n", " 5\n", "5 5\n", "0x10\n", "1.5\n", "5\x00", "18446744073709551616\n", strings.Repeat("9", 100),
	} {
		before := m.good(time.Second, units.Energy(10*i), units.Energy(i))
		m.Set(1, 1001+i)
		require.NoError(m, os.WriteFile(m.Path(0), []byte(text), 0o600))
		zones, err := m.read(time.Second)
		require.NoError(m, err)
		require.ErrorContains(m, zones[0].Err, m.Path(0), strconv.Quote(text))
		assert.Equal(m, before[0].Total, zones[0].Total)
		assert.Equal(m, before[0].At, zones[0].At)
		require.NoError(m, zones[1].Err)
		m.Set(0, 1000+10*(i+1))
	}
}

func (m *Machine) losesFile() {
	before := m.good(0, 0, 0)
	require.NoError(m, os.Remove(m.Path(0)))
	for range 2 {
		zones, err := m.read(long)
		require.NoError(m, err)
		require.ErrorIs(m, zones[0].Err, fs.ErrNotExist)
		assert.Equal(m, before[0].At, zones[0].At)
		assert.NoError(m, zones[1].Err)
	}
	m.Set(0, 1030)
	back := m.good(time.Second, 30, 0)
	assert.Same(m, before[0].Zone, back[0].Zone)
}

func (m *Machine) replacesFile() {
	m.good(0, 0, 0)
	require.NoError(m, os.Rename(m.Path(0), filepath.Join(filepath.Dir(m.Path(0)), "other")))
	m.Set(0, 1030)
	m.good(long, 30, 0)
}
