// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// spend lets time pass, in which the package uses energy and each process a part of the CPU time of one CPU.
func (n *testNode) spend(d time.Duration, joules float64, busy map[int]float64) {
	n.t.Helper()
	ticks := map[int]int64{}
	for pid, share := range busy {
		ticks[pid] = int64(share * float64(d/hostsim.Tick))
	}
	n.host.Run(d, ticks)
	n.host.Zones["intel-rapl:0"].Energy += uint64(joules * joule)
	require.NoError(n.t, n.host.Render())
}

func newDemandNode(t *testing.T) *testNode {
	t.Helper()
	n := newTestNode(t)
	for pid, name := range map[int]string{10: "first", 20: "second"} {
		n.host.Processes[pid] = &hostsim.Process{Parent: 1, Comm: name, Exe: "/bin/" + name}
	}
	return n
}

func TestAWindowThatEndsOnDemandIsAttributedSeparately(t *testing.T) {
	n := newDemandNode(t)
	n.start()
	n.spend(5*time.Second, 90, map[int]float64{10: 1})
	require.True(t, n.endWindow())
	n.spend(5*time.Second, 10, map[int]float64{20: 1})
	n.scrape()
	assert.InDelta(t, 90, n.sum("process.energy", attrs{"process.executable.name": "first"}), 1e-6)
	assert.InDelta(t, 10, n.sum("process.energy", attrs{"process.executable.name": "second"}), 1e-6)
}

func TestAWindowOnDemandThatCannotBeMeasuredContinues(t *testing.T) {
	n := newDemandNode(t)
	source := new(failingSource)
	n.reads(&source.Procfs, source)
	n.start()
	n.run(10*joule, nil)
	source.fail = errRefused
	n.spend(5*time.Second, 30, map[int]float64{10: 1})
	assert.False(t, n.endWindow())
	source.fail = nil
	n.spend(5*time.Second, 30, map[int]float64{20: 1})
	n.scrape()
	for _, name := range []string{"first", "second"} {
		assert.InDelta(t, 30, n.sum("process.energy", attrs{"process.executable.name": name}), 1e-6, name)
	}
}

func TestWindowsOnDemandAndCollectionsDoNotWaitForEachOther(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n := newDemandNode(t)
	n.start()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 50 {
				n.endWindow()
			}
		})
	}
	for range 10 {
		n.scrape()
	}
	callers.Wait()
}
