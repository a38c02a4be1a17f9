// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvmltest"
)

// chain is the extension with a scripted library, in the time of a synctest bubble.
type chain struct {
	*nvmltest.Library
	gpulibrary.Reader
	start  time.Time
	energy uint64 // of the first GPU at the last poll
	used   map[int32]time.Duration
	total  totals
}

// totals are sums over polls, of the first GPU.
type totals struct {
	energy                      uint64 // µJ
	elapsed, busy, unattributed time.Duration
}

// inTime runs a test in a bubble: the library's clock is the bubble's.
func inTime(t *testing.T, test func(t *testing.T, c *chain)) {
	scripted := nvmltest.New(t) // before the bubble: it starts a compiler
	synctest.Test(t, func(t *testing.T) {
		test(t, &chain{Library: scripted, Reader: reader(t, scripted.Path), start: time.Now(), used: map[int32]time.Duration{}})
	})
}

// poll writes a script for the time that it is, and polls. In the script, START stands for the time of the start.
func (c *chain) poll(t *testing.T, script string) []gpulibrary.Device {
	t.Helper()
	script = strings.ReplaceAll(script, "START", strconv.FormatInt(c.start.UnixMicro(), 10))
	c.Script(t, fmt.Sprintf("clock %d\n%s", time.Now().UnixMicro(), script))
	devices, err := c.Poll(t.Context())
	require.NoError(t, err)
	d := devices[0]
	if c.energy > 0 && d.Err == nil {
		c.total.energy += d.Energy - c.energy
	}
	c.energy = d.Energy
	c.total.elapsed += d.Elapsed
	c.total.busy += d.Busy
	c.total.unattributed += d.Unattributed
	for _, u := range d.Users {
		c.used[u.PIDs[0]] += u.Used
	}
	return devices
}

// polls polls each second.
func (c *chain) polls(t *testing.T, seconds int, script string) {
	t.Helper()
	for range seconds {
		c.poll(t, script)
		time.Sleep(time.Second)
	}
}

func TestSteadyLoadIsToldAsItIs(t *testing.T) {
	inTime(t, func(t *testing.T, c *chain) {
		c.polls(t, 120, `
device 00000000:65:00.0
  uuid GPU-1
  energy 1000 300000 START
  refresh 100000
  load 10 60 START
  load 11 20 START
  compute 10 1000000
  compute 11 1000000
  compute 12 1000000
`)
		elapsed := c.total.elapsed.Seconds()
		assert.InDelta(t, 119, elapsed, 1)
		assert.InDelta(t, 300*elapsed, float64(c.total.energy)/1e6, 1.5*300*0.2, "the energy of the same time, J")
		assert.InEpsilon(t, 0.8, c.total.busy.Seconds()/elapsed, 0.01)
		assert.InEpsilon(t, 3, float64(c.used[10])/float64(c.used[11]), 0.02)
		assert.Contains(t, c.used, int32(12), "it has the GPU open")
		assert.Zero(t, c.used[12])
		assert.Less(t, c.total.unattributed.Seconds()/elapsed, 0.01)
	})
}

func TestGPMSamplesAndLibraryAreReleased(t *testing.T) {
	scripted := nvmltest.New(t)
	const script = "trace\nclock %d\ndevice 0:1:0.0\nuuid GPU-1\nenergy 5\nmig on\nmultiprocessors 98\nslice MIG-a 1 56\nactivity 0 50 1\n"
	synctest.Test(t, func(t *testing.T) {
		r := reader(t, scripted.Path)
		for range 10 {
			scripted.Script(t, fmt.Sprintf(script, time.Now().UnixMicro()))
			_, err := r.Poll(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
	})
	calls := map[string]int{}
	for _, call := range scripted.Calls(t) {
		var name string
		_, err := fmt.Sscan(call, &name)
		require.NoError(t, err)
		calls[name]++
	}
	assert.Equal(t, 10, calls["nvmlGpmSampleAlloc"])
	assert.Equal(t, 10, calls["nvmlGpmSampleFree"])
	assert.Equal(t, calls["nvmlInitWithFlags"], calls["nvmlShutdown"])
}

// TestWithoutCgo repeats the tests as the collector is built: tests with the race detector use cgo.
func TestWithoutCgo(t *testing.T) {
	if os.Getenv("CGO_ENABLED") == "0" {
		t.Skip("the tests run without cgo already: CGO_ENABLED=0")
	}
	test := exec.Command("go", "test", ".", "./internal/nvml")
	test.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := test.CombinedOutput()
	assert.NoError(t, err, "%s", output)
}
