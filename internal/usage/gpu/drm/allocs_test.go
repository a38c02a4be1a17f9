// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// crowd is a machine with many processes of which some use GPUs.
type crowd struct {
	*watched
	active []proc.Slot // of the processes that run in each interval
}

const (
	crowdCards       = 16
	crowdDescriptors = 20 // of each process
	crowdUsers       = 200
	crowdOthers      = 100
)

// newCrowd returns a machine with 16 cards, 200 processes that each use four of them, and others
// that do not. Of those, one in ten runs.
func newCrowd(t testing.TB) *crowd {
	w := watch(t)
	if !strings.HasPrefix(w.Root(), "/dev/shm") {
		t.Skip("lacks /dev/shm: the files of the crowd are to be in memory")
	}
	for card := range crowdCards {
		w.addGPU(card, address(card), "amdgpu")
	}
	for i := range crowdUsers + crowdOthers {
		pid := 100 + i
		w.add(pid, 1)
		for fd := range crowdDescriptors {
			w.Processes[pid].Files = append(w.Processes[pid].Files, hostsim.OpenFile{FD: fd, Target: fmt.Sprintf("socket:[%d]", pid<<8+fd)})
		}
		for k := 0; i < crowdUsers && k < 4; k++ {
			number := (i + k) % crowdCards
			w.Processes[pid].Files[5+k] = node(5+k, number, "drm-driver:\tamdgpu", fmt.Sprint("drm-client-id:\t", i),
				"drm-pdev:\t"+address(number), "pasid:\t32771", "drm-memory-vram:\t1048576 KiB", "drm-memory-gtt:\t2048 KiB",
				"drm-memory-cpu:\t0 KiB", gfx(units.CPUTime(pid)*second), "drm-engine-compute:\t77 ns")
		}
	}
	_, err := w.read()
	require.NoError(t, err)
	c := &crowd{watched: w}
	for p := range w.table.All() {
		if p.PID >= 100 && p.PID < 100+crowdUsers || p.PID%10 == 0 {
			c.active = append(c.active, p.Slot)
		}
	}
	return c
}

func address(card int) string { return fmt.Sprintf("0000:%02x:00.0", 1+card) }

// pass lets a second pass, in which active processes run, and reads.
func (c *crowd) pass() {
	c.Uptime += time.Second
	s := c.table.Begin(c.table.Now + time.Second)
	for _, slot := range c.active {
		p := &s.Rows[slot]
		s.Run(p, p.CPU+units.Tick)
	}
	s.End(0)
	if _, err := c.source.Read(c.Now(), c.table); err != nil {
		c.Fatal(err)
	}
}

func TestAnIntervalAllocatesNothingAndKeepsFewTextsOpen(t *testing.T) {
	defer kernfs.LimitDescriptors(1 << 20)()
	c := newCrowd(t)
	for range 70 { // until all are found
		c.pass()
	}
	require.Len(t, c.source.clients.list, 4*crowdUsers)
	c.source.devices.searched = c.Now().Add(time.Hour) // a search allocates
	assert.Zero(t, allocs.Count(20, c.pass))
	assert.Equal(t, maxKept, c.source.clients.kept.Held)
	assert.EqualValues(t, maxKept, kernfs.Descriptors())
	assert.Greater(t, len(c.source.clients.list), maxKept)
}
