// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// scanFor makes a source scan for a request, as a Reader does.
func scanFor(s Source, t *proc.Table, of Request) error {
	if t.Scans() == 0 && t.Now == 0 {
		*t = *proc.New(s.Traits().Traits)
	}
	return s.Scan(t, of)
}

// scanAll scans all processes.
func scanAll(s Source, t *proc.Table) error { return scanFor(s, t, Request{Want: Want{All: true}}) }

// scanRan scans at least the processes that ran.
func scanRan(s Source, t *proc.Table) error { return scanFor(s, t, Request{}) }

// charged returns the CPU time that processes without a row or a name added to the row in a slot.
func charged(t *proc.Table, slot proc.Slot) (used units.CPUTime) {
	for i := range t.Charges {
		if c := &t.Charges[i]; c.Slot == slot && !c.Named {
			used += c.CPU
		}
	}
	return used
}

// unplaced returns the CPU time that was charged to no row, or by name.
func unplaced(t *proc.Table) (used units.CPUTime) {
	for i := range t.Charges {
		if c := &t.Charges[i]; c.Slot < 0 || c.Named {
			used += c.CPU
		}
	}
	return used
}

// windows reads the node and scans as a Reader does.
type windows struct {
	stat    *StatClock
	scanned units.CPUTime // Node.Process as of the last scan
}

func newWindows(t testing.TB, root string) *windows {
	w := &windows{stat: NewStatClock(root)}
	w.stat.countsCreated = true
	t.Cleanup(func() { assert.NoError(t, w.stat.Close()) })
	return w
}

func (w *windows) read(s Source, t *proc.Table, want Want) (Node, error) {
	times, err := w.stat.Read(time.Time{})
	if err != nil {
		return times.Node, err
	}
	used := units.Advance(w.scanned, times.Node.Process)
	if err := scanFor(s, t, Request{Want: want, Used: used, Created: w.stat.created}); err != nil {
		return times.Node, err
	}
	w.scanned = times.Node.Process
	return times.Node, nil
}
