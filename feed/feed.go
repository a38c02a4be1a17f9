// SPDX-License-Identifier: Apache-2.0

// Package feed passes the energy that the energy receiver attributes to other components of the
// same collector. It does so for each window, in whole microjoules and without limits on the number
// of series.
//
// A component finds the feed by the ID of the receiver, because a collector has no API to find a
// receiver. It may open the feed before the receiver starts. Without an open reader, the feed costs
// no CPU time.
package feed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
)

// Kind is a kind of zone, such as package, and how its energy is obtained: measured, modeled or reported.
type Kind struct{ Zone, Method string }

// Window is the result of one attribution window of a receiver. Slices of energies are in µJ, in
// the order of Kinds.
type Window struct {
	// Start, End and the boot time of the machine, by the wall clock.
	Start, End, Boot time.Time
	Kinds            []Kind
	// Active, Idle and Unattributed are energies of the node. The part of Active that is neither in
	// Processes nor in Unattributed belongs to processes without a row, such as processes that
	// started and ended between two scans.
	Active, Idle, Unattributed []uint64
	// Attributed is the time until which all meters that can be read have reported. Energy between
	// Attributed and End may follow in later windows, and so does energy of a meter that cannot be
	// read.
	Attributed time.Time
	// Processes has a row for each process that received energy in the window. It is empty without [Reader.Processes].
	Processes []Process
	// Packages maps the number of a CPU to the index of its package in [Process.Packages]. It is
	// empty if the receiver does not attribute by package.
	Packages []int32
	// VMs has the virtual machines of the node, including machines that ended since the last
	// collection. It is empty without [Reader.VMs], and in windows that do not end a collection.
	VMs []VM
	// EndsCollection reports whether the receiver emitted metrics at the end of the window.
	EndsCollection bool
}

// Process is the energy of a process in a window. Energy from a late meter reading is in the window
// of that reading.
type Process struct {
	PID int32
	// Start is when the process started, since boot. With PID it identifies the process.
	Start                         time.Duration
	Executable, Path, ContainerID string
	CPU                           time.Duration
	Energy                        []uint64 // active
	// Packages has the parts of CPU and Energy in each package. Energy of zones that do not measure
	// a single package is not included. Packages is empty if Window.Packages is.
	Packages []Part
}

// Part is the energy of a process in a package, or die if dies have zones of their own.
type Part struct {
	CPU    time.Duration
	Energy []uint64
}

// VM is the active and idle energy of a virtual machine since Start.
type VM struct {
	ID, Name string
	// CID is the machine's vsock context ID (vsock(7)), or 0.
	CID uint32
	// Start is the start timestamp of the totals. It changes if the totals restart from 0.
	Start time.Time
	// Ended marks a machine that stopped: these are its last totals.
	Ended  bool
	Energy []uint64
	// Present reports for each of Kinds whether its zones are read now.
	Present []bool
}

// Reader receives the windows of a receiver.
type Reader struct {
	// Processes and VMs select the parts of a window that the reader uses.
	Processes, VMs bool
	// Take is called at the end of each window, while the receiver waits. The window is valid until
	// Take returns. Take must not call methods of the feed.
	Take func(*Window)

	begun bool // set by Feed.Begin: the reader was open before the current window was attributed
}

// Feed connects one receiver with its readers. Its methods may be called concurrently.
type Feed struct {
	mu      sync.Mutex
	readers []*Reader
	end     func(context.Context)
}

var (
	mu    sync.Mutex
	feeds = map[component.ID]*Feed{}
)

// Of returns the feed of the receiver with an ID, in this process.
func Of(receiver component.ID) *Feed {
	mu.Lock()
	defer mu.Unlock()
	f := feeds[receiver]
	if f == nil {
		f = &Feed{}
		feeds[receiver] = f
	}
	return f
}

// Open adds a reader. Its first window is the next window that ends, which may have started
// earlier.
func (f *Feed) Open(r *Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = append(f.readers, r)
}

// Close removes a reader. Take is not called after Close has returned.
func (f *Feed) Close(r *Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = slices.DeleteFunc(f.readers, func(other *Reader) bool { return other == r })
}

// EndWindow makes the receiver end a window now, so that readers get all energy until now. It has
// no effect if the receiver is not running, if ctx is done before the receiver can respond, or if
// the last window has just ended: readers cannot make the receiver scan more often than every 10
// ms, or use more than a twentieth of a CPU.
func (f *Feed) EndWindow(ctx context.Context) {
	f.mu.Lock()
	end := f.end
	f.mu.Unlock()
	if end != nil {
		end(ctx)
	}
}

// Serve sets the function that EndWindow calls. The receiver calls Serve when it starts, and with
// nil when it shuts down.
func (f *Feed) Serve(end func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = end
}

// Served reports whether the receiver runs.
func (f *Feed) Served() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end != nil
}

// Check returns an error if no energy receiver with this ID runs in this process.
func Check(receiver component.ID) error {
	if Of(receiver).Served() {
		return nil
	}
	return fmt.Errorf("receiver: %q is not an energy receiver in a pipeline of this collector", receiver)
}

// Begin reports whether any reader is open, and which parts of the next published window the
// readers use. The receiver calls it before it attributes the window.
func (f *Feed) Begin() (open, processes, vms bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.readers {
		r.begun = true
		processes, vms = processes || r.Processes, vms || r.VMs
	}
	return len(f.readers) > 0, processes, vms
}

// Publish passes a window to the readers that were open at Begin. The receiver calls it.
func (f *Feed) Publish(w *Window) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.readers {
		if r.begun {
			r.Take(w)
		}
	}
}
