// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"slices"
	"sync"

	"github.com/energyreceiver/energyreceiver/feed"
)

// intake receives the windows of the receiver. The receiver waits for take, but not for a division
// of energy.
type intake struct {
	mu      sync.Mutex // held while energy is divided
	windows windows    // guarded by mu

	inboxMu sync.Mutex
	inbox   []*feed.Window // windows that ended while mu was held; guarded by inboxMu
}

// take adds a window.
func (in *intake) take(w *feed.Window) {
	if !in.mu.TryLock() {
		own := cloneOf(w)
		in.inboxMu.Lock()
		defer in.inboxMu.Unlock()
		in.inbox = append(in.inbox, own)
		return
	}
	defer in.mu.Unlock()
	in.empty()
	in.windows.take(w)
}

// lock moves the inbox to the windows, locks the windows and returns them.
func (in *intake) lock() *windows {
	in.mu.Lock()
	in.empty()
	return &in.windows
}

func (in *intake) unlock() { in.mu.Unlock() }

// empty moves the inbox to the windows.
func (in *intake) empty() {
	in.inboxMu.Lock()
	inbox := in.inbox
	in.inbox = nil
	in.inboxMu.Unlock()
	for _, w := range inbox {
		in.windows.take(w)
	}
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
	}
	return &c
}
