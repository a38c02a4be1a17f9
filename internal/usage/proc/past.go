// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Past is the stored state of a process. Its fields have the names of the fields of Process.
type Past struct {
	PID, Parent, Threads     int32
	Kernel, Zombie, Discards bool
	Start                    time.Duration
	CPU, ChildCPU, Owed      units.CPUTime
}

// resumed is set from Resume to the end of the first scan.
type resumed struct {
	resuming  bool // the previous scan is a restored one
	childless bool // the previous scan has no child times
}

// matches reports whether two start times may belong to one process: sources differ in the
// precision of start times.
func (r resumed) matches(a, b time.Duration) bool {
	const tick = time.Duration(units.Tick)
	return r.resuming && a.Truncate(tick) == b.Truncate(tick)
}

// AppendPast appends the state of all processes, for Resume of another Table.
func (t *Table) AppendPast(to []Past) []Past {
	for p := range t.All() {
		to = append(to, Past{
			PID: p.PID, Parent: p.Parent, Threads: p.Threads,
			Kernel: p.Is(Kernel), Zombie: p.Is(Zombie), Discards: p.Is(Discards),
			Start: p.Start, CPU: p.CPU, ChildCPU: p.ChildCPU, Owed: p.Owed,
		})
	}
	return to
}

// Resume makes a stored scan the previous scan. That scan began at now, since boot. wasExact
// reports whether its source was exact: such a source reports no child times.
func (t *Table) Resume(past []Past, now time.Duration, wasExact bool) {
	for i := range past {
		q := &past[i]
		start := q.Start
		if !t.traits.Exact {
			start = start.Truncate(time.Duration(units.Tick))
		}
		p := Sight{
			ID: ID{q.PID, start}, Parent: q.Parent, Threads: q.Threads, LastCPU: -1, CPU: q.CPU, ChildCPU: q.ChildCPU,
		}
		for flag, set := range map[Flags]bool{Kernel: q.Kernel, Zombie: q.Zombie, Discards: q.Discards} {
			if set {
				p.Flags |= flag
			}
		}
		row := (*Scan)(t).addRow(&p)
		row.Owed = q.Owed
		row.rest()
	}
	t.Active = t.Active[:0]
	t.scans, t.Now, t.baseline, t.ended = 1, now, now, true
	t.resumed = resumed{resuming: true, childless: wasExact}
}
