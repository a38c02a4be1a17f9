// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// process is the search state of the process in a slot of the table.
type process struct {
	pid         int32
	from        int32 // the first descriptor of the next look
	seen        int32 // the number of descriptors before from
	denied      bool  // its descriptors may not be read
	start       time.Duration
	cpu         uint64        // its CPU time when all its clients were last in the list
	due         time.Duration // of the next look if the number of its descriptors does not change
	descriptors int64         // the number of its descriptors, negative if it is not available
	since       time.Duration // the time when descriptors had this value first
	recount     time.Duration // the time when descriptors are counted again
}

// processes holds the search state of all processes.
type processes struct {
	bySlot []process
	denied int // the number of processes whose descriptors may not be read
}

// of returns the state of the slot of a row. known is false if the state belongs to another process
// than the row. In this case there was no look at the process of the row.
func (ps *processes) of(row *proc.Process) (st *process, known bool) {
	st = &ps.bySlot[row.Slot]
	return st, st.pid == row.PID && st.start == row.Start
}

// set replaces the state of a slot.
func (ps *processes) set(st *process, to process) {
	if st.denied {
		ps.denied--
	}
	if to.denied {
		ps.denied++
	}
	*st = to
}

// follow begins a Read: it drops the state of exited processes.
func (ps *processes) follow(t *proc.Table) {
	if n := len(t.Rows); n < len(ps.bySlot) { // slots have been renumbered
		ps.bySlot, ps.denied = make([]process, n), 0
	} else {
		ps.bySlot = append(ps.bySlot, make([]process, n-len(ps.bySlot))...)
	}
	for i := range t.Ended {
		if st := &ps.bySlot[t.Ended[i].Slot]; st.pid == t.Ended[i].PID {
			ps.set(st, process{})
		}
	}
}
