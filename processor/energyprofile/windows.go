// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"slices"
	"sync"

	"github.com/energyreceiver/energyreceiver/feed"
)

const (
	// maxWindows is the maximum number of windows that are pending. When no profiles arrive, the energy
	// of the oldest windows is added to their processes, so that only their prices are lost.
	maxWindows = 1000
	// maxRows is the maximum number of rows and parts of all windows that are pending, of about 150
	// bytes each.
	maxRows = 1 << 18
	// maxPath is the maximum length in bytes of the path of an executable. Longer paths are left out:
	// any user of the machine can have many short-lived processes with paths of 4 KiB.
	maxPath = 512
)

// windows holds copies of the receiver's windows until their energy is divided.
type windows struct {
	mu       sync.Mutex
	pending  []*feed.Window
	rows     int    // rows and parts of pending
	received uint64 // windows since the start
}

// take keeps a copy of a window. The receiver waits for take, but not for a division of energy.
func (p *energyProfile) take(w *feed.Window) {
	p.windows.add(cloneOf(w))
	if !p.consuming.TryLock() {
		return // the next window ends the excess
	}
	defer p.consuming.Unlock()
	for p.windows.tooMany() {
		p.ledger.merge(p.windows.remove(1), false)
	}
}

func (w *windows) add(next *feed.Window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, next)
	w.rows += rowsOf(next)
	w.received++
}

func (w *windows) tooMany() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending) > maxWindows || w.rows > maxRows && len(w.pending) > 1
}

// remove removes the first n windows, and returns them.
func (w *windows) remove(n int) []*feed.Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := slices.Clone(w.pending[:n])
	w.pending = slices.Delete(w.pending, 0, n)
	for _, of := range due {
		w.rows -= rowsOf(of)
	}
	return due
}

// rowsOf returns the number of rows and parts of a window.
func rowsOf(w *feed.Window) (n int) {
	for i := range w.Processes {
		n += 1 + len(w.Processes[i].Packages)
	}
	return n
}

// cloneOf returns a copy of a window, without virtual machines.
func cloneOf(w *feed.Window) *feed.Window {
	c := *w
	c.Kinds, c.Packages, c.VMs = slices.Clone(w.Kinds), slices.Clone(w.Packages), nil
	c.Active, c.Idle, c.Unattributed = slices.Clone(w.Active), slices.Clone(w.Idle), slices.Clone(w.Unattributed)
	c.Processes = slices.Clone(w.Processes)
	for i := range c.Processes {
		p := &c.Processes[i]
		p.Energy, p.Packages = slices.Clone(p.Energy), slices.Clone(p.Packages)
		for j := range p.Packages {
			p.Packages[j].Energy = slices.Clone(p.Packages[j].Energy)
		}
		if len(p.Path) > maxPath {
			p.Path = ""
		}
	}
	return &c
}
