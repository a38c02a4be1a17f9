// SPDX-License-Identifier: Apache-2.0

package attributor

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// feeding passes the windows of the receiver to the readers of its feed. Each window reuses the
// memory of the previous one.
type feeding struct {
	feed   *feed.Feed
	window feed.Window
	// isOpen, processes and vms report which parts of the window readers use. isOpen is false after
	// the window was published.
	isOpen, processes, vms bool
}

// OpenFeed opens the receiver's feed. It is called before the first window. Readers cannot end a
// window before Serve is called.
func (a *Attributor) OpenFeed(receiver component.ID) {
	a.Feeding.feed = feed.Of(receiver)
	a.Feeding.feed.Serve(func(context.Context) {})
}

// Serve sets the function that readers call to end the current window.
func (a *Attributor) Serve(endWindow func(context.Context)) { a.Feeding.feed.Serve(endWindow) }

// StopServing ends the feed.
func (a *Attributor) StopServing() { a.Feeding.feed.Serve(nil) }

// Begin begins a window, and records which parts of it readers use.
func (f *feeding) Begin(a *Attributor) {
	f.isOpen, f.processes, f.vms = f.feed.Begin()
	sharer := a.Ledger.Sharer()
	sharer.Parts = 0
	f.window.Start, f.window.Packages = a.Collector.Last().Stamp, f.window.Packages[:0]
	if t := a.Options.Node.CPU.Topology(); t != nil && f.processes {
		sharer.Parts, f.window.Packages = len(t.Domains()), append(f.window.Packages, t.ByCPU()...)
	}
}

// Read sets the energy of the node and its processes in the window.
func (f *feeding) Read(a *Attributor, s *attribution.Shares) {
	if !f.isOpen {
		return
	}
	w := &f.window
	w.Kinds, w.Active, w.Idle, w.Unattributed = w.Kinds[:0], w.Active[:0], w.Idle[:0], w.Unattributed[:0]
	for i, kind := range a.Kinds {
		k := &s.Kinds[i]
		w.Kinds = append(w.Kinds, feed.Kind{Zone: string(kind.Zone), Method: string(kind.Method)})
		w.Active = append(w.Active, uint64(k.Active.Energy))
		w.Idle = append(w.Idle, uint64(k.Idle.Energy))
		w.Unattributed = append(w.Unattributed, uint64(k.Unattributed))
	}
	w.Processes = w.Processes[:0]
	for row := range s.Claimants {
		if f.processes && !s.Claimants[row].ShortLived {
			f.addProcess(a, s, row)
		}
	}
}

// addProcess adds the row of a process, unless the claimant represents several processes.
func (f *feeding) addProcess(a *Attributor, s *attribution.Shares, row int) {
	of := &s.Claimants[row]
	p := a.Ledger.Process(of.Claimant)
	if p.PID == 0 {
		return
	}
	to := next(&f.window.Processes)
	*to = feed.Process{
		PID: p.PID, Start: p.Start, Executable: p.Executable, Path: p.Path, ContainerID: a.Ledger.Workload(of.Claimant).Container.ID,
		CPU: time.Duration(of.CPU), Energy: zeros(to.Energy, len(a.Kinds)), Packages: to.Packages[:0],
	}
	for kind, share := range s.Active(row) {
		to.Energy[kind] = uint64(share.Energy)
	}
	for domain := 1; domain <= a.Ledger.Sharer().Parts; domain++ {
		cpu, energies := s.Part(row, domain)
		part := next(&to.Packages)
		part.CPU, part.Energy = time.Duration(cpu), zeros(part.Energy, len(a.Kinds))
		for kind, energy := range energies {
			part.Energy[kind] = uint64(energy)
		}
	}
}

// zeros returns a slice of n zeros that reuses the memory of a slice.
func zeros(of []uint64, n int) []uint64 {
	of = slices.Grow(of[:0], n)[:n]
	clear(of)
	return of
}

// next appends an element to the list, and returns it. The element may have the content of an
// element that was removed before.
func next[T any](list *[]T) *T {
	n := len(*list)
	*list = slices.Grow(*list, 1)[:n+1]
	return &(*list)[n]
}

// IsRead reports whether readers use the window that has just been attributed.
func (a *Attributor) IsRead() bool { return a.Feeding.isOpen }

// Publish publishes the window that has just been attributed, once. behind is the age of the oldest
// deferred energy.
func (a *Attributor) Publish(behind time.Duration) {
	f := &a.Feeding
	f.isOpen = false
	w, last := &f.window, a.Collector.Last()
	w.End, w.Boot, w.EndsCollection = last.Stamp, a.BootTime, last.EndsCollection
	w.Attributed = last.Stamp.Add(-behind)
	w.VMs = w.VMs[:0]
	if f.vms && w.EndsCollection {
		f.fillVMs(a)
	}
	f.feed.Publish(w)
}

// fillVMs sets the virtual machines that have a series, live or ended.
func (f *feeding) fillVMs(a *Attributor) {
	w, of := &f.window, &a.Ledger.Totals
	for account := range of.Accounts {
		if account.Entity != identity.VMEntity || account.Other {
			continue
		}
		vm := next(&w.VMs)
		*vm = feed.VM{
			ID: account.Owner.VM.ID, Name: account.Owner.VM.Name, CID: account.Owner.VM.CID, Start: account.Start, Ended: account.Ended(),
			Energy: vm.Energy[:0], Present: vm.Present[:0],
		}
		for i := range a.Kinds {
			amounts := account.Amounts(i)
			vm.Energy = append(vm.Energy, uint64(amounts.Energy+amounts.Idle))
			vm.Present = append(vm.Present, of.Kinds[i].Present && !of.Kinds[i].Ended())
		}
	}
}
