// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// feeding hands the windows of the receiver to the readers of its feed. Its memory is reused from
// window to window.
type feeding struct {
	feed   *feed.Feed
	Gained attribution.GainedFunc // adds the row of a process

	window feed.Window
	// isOpen and vms report which parts of the window readers use. isOpen is false after the window
	// was handed out.
	isOpen, vms bool
	before      []nodeEnergy // by kind, before the window
}

// nodeEnergy is the node's energy of one kind.
type nodeEnergy struct{ active, idle, unattributed units.Energy }

// OpenFeed opens the receiver's feed. It precedes the first window.
func (l *Ledger) OpenFeed(receiver component.ID) {
	f := &l.Feeding
	f.feed = feed.Of(receiver)
	f.Gained = func(id attribution.Claimant, all attribution.Gain, parts []attribution.Gain) {
		f.gain(l, id, &all, parts)
	}
}

// Serve begins to feed readers. endWindow ends the current window.
func (l *Ledger) Serve(endWindow func(context.Context)) { l.Feeding.feed.Serve(endWindow) }

// StopServing ends the feed.
func (l *Ledger) StopServing() {
	if f := l.Feeding.feed; f != nil {
		f.Serve(nil)
	}
}

// Begin records the totals before a window is attributed, and has the engine report the gains of
// processes, if readers use them.
func (f *feeding) Begin(l *Ledger) {
	var processes bool
	f.isOpen, processes, f.vms = f.feed.Begin()
	l.Engine.OnGain(nil, 0)
	if !f.isOpen {
		return
	}
	f.window.Packages = f.window.Packages[:0]
	if processes {
		packages := 0
		if t := l.Options.Node.CPU.Topology(); t != nil {
			packages, f.window.Packages = len(t.Domains()), append(f.window.Packages, t.ByCPU()...)
		}
		l.Engine.OnGain(f.Gained, packages)
	}
	f.window.Start, f.window.Processes, f.before = l.Claims.Last().Stamp, f.window.Processes[:0], f.before[:0]
	for i := range l.Kinds {
		f.before = append(f.before, l.nodeEnergy(i))
	}
}

// nodeEnergy returns the totals of a kind.
func (l *Ledger) nodeEnergy(kind int) nodeEnergy {
	k := &l.Engine.Ledger().Kinds[kind]
	return nodeEnergy{k.Active, k.Idle, k.Unattributed}
}

// gain adds the row of a process.
func (f *feeding) gain(l *Ledger, id attribution.Claimant, all *attribution.Gain, parts []attribution.Gain) {
	owner := l.Engine.Gainer(id)
	if owner.Process.PID == 0 { // it stands for several processes
		return
	}
	n := len(f.window.Processes)
	f.window.Processes = slices.Grow(f.window.Processes, 1)[:n+1]
	row := &f.window.Processes[n]
	*row = feed.Process{
		PID: owner.Process.PID, Start: owner.Process.Start, Executable: owner.Process.Executable, Path: owner.Process.Path,
		ContainerID: owner.Container.ID, CPU: time.Duration(all.CPU), Energy: f.energies(row.Energy, all.Energy),
		Packages: row.Packages[:0],
	}
	for _, of := range parts {
		n := len(row.Packages)
		row.Packages = slices.Grow(row.Packages, 1)[:n+1]
		part := &row.Packages[n]
		part.CPU, part.Energy = time.Duration(of.CPU), f.energies(part.Energy, of.Energy)
	}
}

// energies returns energies by kind, in the memory of to. The engine leaves out kinds after the last
// that is present.
func (f *feeding) energies(to []uint64, energy []units.Energy) []uint64 {
	to = slices.Grow(to[:0], len(f.before))[:len(f.before)]
	clear(to)
	for i, e := range energy {
		to[i] = uint64(e)
	}
	return to
}

// IsRead reports whether readers use the window that has just been attributed.
func (l *Ledger) IsRead() bool { return l.Feeding.isOpen }

// Publish hands out the window that has just been attributed, once. behind is the age of the oldest
// deferred energy.
func (l *Ledger) Publish(behind time.Duration) {
	f := &l.Feeding
	f.isOpen = false
	w, last := &f.window, l.Claims.Last()
	w.End, w.Boot, w.EndsCollection = last.Stamp, l.BootTime, last.EndsCollection
	w.Attributed = last.Stamp.Add(-behind)
	f.fillNode(l)
	w.VMs = w.VMs[:0]
	if f.vms && w.EndsCollection {
		f.fillVMs(l)
	}
	f.feed.Publish(w)
}

// fillNode sets what the window brought the node.
func (f *feeding) fillNode(l *Ledger) {
	w := &f.window
	w.Kinds, w.Active, w.Idle, w.Unattributed = w.Kinds[:0], w.Active[:0], w.Idle[:0], w.Unattributed[:0]
	for i, kind := range l.Kinds {
		before, now := f.before[i], l.nodeEnergy(i)
		w.Kinds = append(w.Kinds, feed.Kind{Zone: string(kind.Zone), Method: string(kind.Method)})
		w.Active = append(w.Active, uint64(units.Advance(before.active, now.active)))
		w.Idle = append(w.Idle, uint64(units.Advance(before.idle, now.idle)))
		w.Unattributed = append(w.Unattributed, uint64(units.Advance(before.unattributed, now.unattributed)))
	}
}

// fillVMs sets the virtual machines that have a series, with those that have ended.
func (f *feeding) fillVMs(l *Ledger) {
	w, of := &f.window, l.Engine.Ledger()
	for a := range of.Accounts {
		if a.Entity != identity.VMEntity || a.Other {
			continue
		}
		n := len(w.VMs)
		w.VMs = slices.Grow(w.VMs, 1)[:n+1]
		vm := &w.VMs[n]
		*vm = feed.VM{
			ID: a.Owner.VM.ID, Name: a.Owner.VM.Name, CID: a.Owner.VM.CID, Start: a.Start, Ended: a.Ended(),
			Energy: vm.Energy[:0], Present: vm.Present[:0],
		}
		for i := range l.Kinds {
			amounts := a.Amounts(i)
			vm.Energy = append(vm.Energy, uint64(amounts.Energy+amounts.Idle))
			vm.Present = append(vm.Present, of.Kinds[i].Present && !of.Kinds[i].Ended())
		}
	}
}
