// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// feeding hands the windows of the receiver to the readers of its feed. Its memory is reused from window to window.
type feeding struct {
	feed   *feed.Feed
	closed bool // no more windows
	window feed.Window
	gained attribution.GainedFunc // adds the row of a process
	// totals are the node's active, idle and unattributed energy by kind at the end of the last window, nil if no reader was open then.
	totals [][3]units.Energy
}

// openFeed begins to feed readers.
func (s *energyScraper) openFeed() {
	s.feeding.feed = feed.Of(s.set.ID)
	s.feeding.gained = func(id attribution.Claimant, used units.CPUTime, energy []units.Energy) {
		s.feeding.gain(s.ledger, id, used, energy)
	}
}

func (s *energyScraper) closeFeed() {
	if s.feeding.feed != nil {
		s.feeding.feed.Serve(nil)
	}
}

// begin asks the engine for the gains of processes if a reader uses them. It is called before a window is attributed.
func (f *feeding) begin(l *ledger) {
	if f.feed == nil {
		return
	}
	f.window.Processes = f.window.Processes[:0]
	if _, processes, _ := f.feed.Wanted(); !processes {
		l.Engine.OnGain(nil)
		return
	}
	l.Engine.OnGain(f.gained)
}

// gain adds the row of a process.
func (f *feeding) gain(l *ledger, id attribution.Claimant, used units.CPUTime, energy []units.Energy) {
	owner := l.Engine.Gainer(id)
	if owner.Process.PID == 0 { // it stands for several processes
		return
	}
	n := len(f.window.Processes)
	f.window.Processes = slices.Grow(f.window.Processes, 1)[:n+1]
	row := &f.window.Processes[n]
	*row = feed.Process{
		PID: owner.Process.PID, Start: owner.Process.Start, Executable: owner.Process.Executable, Path: owner.Process.Path,
		ContainerID: owner.Container.ID, CPU: time.Duration(used), Energy: row.Energy[:0],
	}
	for _, e := range energy {
		row.Energy = append(row.Energy, uint64(e))
	}
}

// publish hands out the window that has just been attributed. The first one after a reader was opened only begins the totals.
func (s *energyScraper) publish(endsCollection bool) {
	f, l := &s.feeding, s.ledger
	if f.feed == nil || l == nil {
		return
	}
	open, _, vms := f.feed.Wanted()
	if !open {
		f.totals = nil
		return
	}
	defer s.watchdog.enter(s.watchdog.current())
	s.watchdog.enter(feedingReaders)
	w, last := &f.window, l.Last()
	w.Start, w.End, w.EndsCollection = w.End, last.Stamp, endsCollection
	w.Attributed = last.Stamp.Add(-s.meters.behind(last.ReadAt))
	isFirst := f.totals == nil
	f.fillNode(l)
	w.VMs = w.VMs[:0]
	if vms && endsCollection {
		f.fillVMs(l)
	}
	if !isFirst || endsCollection {
		f.feed.Publish(w)
	}
}

// fillNode sets what the window brought the node.
func (f *feeding) fillNode(l *ledger) {
	w, isFirst := &f.window, f.totals == nil
	w.Kinds, w.Active, w.Idle, w.Unattributed = w.Kinds[:0], w.Active[:0], w.Idle[:0], w.Unattributed[:0]
	if isFirst {
		f.totals, w.Start, w.Processes = make([][3]units.Energy, len(l.kinds)), w.End, w.Processes[:0]
	}
	of := l.Engine.Ledger()
	for i, kind := range l.kinds {
		now := [3]units.Energy{of.Kinds[i].Active, of.Kinds[i].Idle, of.Kinds[i].Unattributed}
		before := f.totals[i]
		if isFirst {
			before = now
		}
		w.Kinds = append(w.Kinds, feed.Kind{Zone: string(kind.Zone), Method: string(kind.Source)})
		w.Active = append(w.Active, uint64(units.Advance(before[0], now[0])))
		w.Idle = append(w.Idle, uint64(units.Advance(before[1], now[1])))
		w.Unattributed = append(w.Unattributed, uint64(units.Advance(before[2], now[2])))
		f.totals[i] = now
	}
}

// fillVMs sets the virtual machines that have a series, with those that have ended.
func (f *feeding) fillVMs(l *ledger) {
	w, of := &f.window, l.Engine.Ledger()
	for a := range of.Accounts {
		if a.Entity != units.VMEntity || a.Other {
			continue
		}
		n := len(w.VMs)
		w.VMs = slices.Grow(w.VMs, 1)[:n+1]
		vm := &w.VMs[n]
		*vm = feed.VM{
			ID: a.Owner.VM.ID, Name: a.Owner.VM.Name, CID: a.Owner.VM.CID, Start: a.Start, Ended: a.Ended,
			Energy: vm.Energy[:0], Present: vm.Present[:0],
		}
		for i := range l.kinds {
			amounts := a.Amounts(i)
			vm.Energy = append(vm.Energy, uint64(amounts.Energy+amounts.Idle))
			vm.Present = append(vm.Present, of.Kinds[i].Present && !of.Kinds[i].Ended)
		}
	}
}
