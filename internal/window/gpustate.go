// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const (
	// maxGPUs is the maximum number of GPUs with their own domain. Further GPUs share a domain, and
	// their energy is unattributed.
	maxGPUs   = 256
	otherGPUs = units.Domain("gpu-others")
	// maxSilence is the maximum time that the energy of a GPU is deferred because its usage is not
	// reported. After this time, the energy is unattributed.
	maxSilence = 5 * time.Minute
)

// gpus assigns domains to the node's GPUs, and finds the claimants that used them. The zero gpus is
// ready to use. It allocates no memory before a GPU is seen.
type gpus struct {
	index map[units.Domain]int // index of each GPU in Interval.Domains
	known []knownGPU           // GPUs with their own domain come first
	first int                  // index of the first GPU in Interval.Domains
	// processes are the rows of the last scan by PID. It is nil without a source of usage.
	processes map[int32]process
	late      []lateUser // oldest first
	young     []lateUser // processes that ended young and may have used a GPU, oldest first
	// epoch is the number of ended epochs. An epoch ends when the usage of each GPU was reported in
	// it.
	epoch uint64
	users []gpuUser // scratch
}

// knownGPU records which sources report a GPU's usage.
type knownGPU struct {
	listed     bool      // a source reports its usage, now or later
	reportedAt time.Time // when a source reported the usage last
	epoch      uint64    // of the last report, counted from 1
}

// process is the slot and the start of a process. The start distinguishes it from an earlier
// process with the same PID.
type process struct {
	slot  int32
	start time.Duration // since boot
}

// gpuUser is the claimant of a process that uses a GPU or has it open.
type gpuUser struct {
	id       attribution.Claimant
	excluded bool
}

// GPU usage may name a process that exited. Its claimant stays for maxLate at most. The maximum
// number of such claimants is maxLateUsers of GPU users, and as many of young processes, so that a
// burst of processes does not displace users.
const (
	maxLate      = time.Minute
	maxLateUsers = 1024
	// namedWithin is the maximum age of a process that has used a GPU from its start and is not
	// named by GPU usage yet. Polls of a library are a second apart, and samples appear late.
	namedWithin = 5 * time.Second
)

// lateUser is a GPU user that exited, or a young process that may be one.
type lateUser struct {
	gpuUser
	pid   int32
	start time.Duration
	ended time.Time // the process ended then or earlier
	epoch uint64    // of its end
}

// note adds a process that a scan has found.
func (g *gpus) note(p *proc.Process) {
	if g.processes == nil {
		return
	}
	if later, ok := g.processes[p.PID]; !ok || later.start <= p.Start {
		g.processes[p.PID] = process{p.Slot, p.Start}
	}
}

// renew replaces the processes by the processes in a scan.
func (g *gpus) renew(t *proc.Table) {
	clear(g.processes)
	for p := range t.All() {
		g.note(p)
	}
}

// forgetReplaced removes the processes whose PIDs belong to other processes in the scan of a new
// CPU time source.
func (g *gpus) forgetReplaced(t *proc.Table) {
	for now := range t.All() {
		if p, ok := g.processes[now.PID]; ok && p.start != now.Start {
			delete(g.processes, now.PID)
		}
	}
}

// shrink frees the memory that was needed for more processes, whose slots are renumbered.
func (g *gpus) shrink(t *proc.Table) {
	g.renew(t)
	if g.processes != nil {
		g.processes = units.Shrunk(g.processes)
	}
	g.late, g.young, g.users = slices.Clone(g.late), slices.Clone(g.young), nil
}
