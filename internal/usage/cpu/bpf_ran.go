// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// visitor lists the processes that ran.
type visitor interface {
	// Visit returns the processes that ran since the previous call, in any order, their slices, and
	// how many they are; none of them if they are more than most. A process that runs during the
	// call may show the rest of its CPU time in the next one. A process that ended may be missing.
	Visit(most int) (ran tasks.Listing, count int, err error)
	Close() error
}

// The cost of a scan of the processes that ran, compared with visiting one thread in a scan of all.
// A call of the hook costs about as much as visiting one thread.
const (
	perRan  = 8           // to describe a process
	perScan = 16 * perRan // to take the marks
)

const (
	// considerEvery is how often costs are compared.
	considerEvery = 2 * time.Second
	// dwell is how long the hook stays as it is, attached or not.
	dwell = time.Minute
	// ranRoom is how many processes that ran a scan of these lists at most.
	ranRoom = 4096
)

// switchHook attaches a hook to context switches while that is cheaper than to visit all processes
// in each scan.
type switchHook struct {
	open    func() (visitor, error) // nil where there is none
	opening chan opened             // nil unless it is being opened
	visitor visitor                 // nil while it is not attached
	based   bool                    // whether a scan of all processes has begun since then
	refused error                   // why it cannot be attached; it is not tried again
	changed time.Duration           // when it was attached or detached
	most    int                     // how many processes a scan of those that ran visits at most

	considered time.Duration // when costs were compared last
	switches   uint64        // of the node until then
	partial    uint64        // how many scans since then might leave out processes that did not run
	ran        uint64        // how many processes ran in these
	stat       []byte        // scratch of readSwitches
}

type opened struct {
	visitor visitor
	err     error
}

// ready takes the hook once it is attached. It is called before each scan of all processes.
func (h *switchHook) ready(now time.Duration) {
	if h.opening != nil {
		select {
		case o := <-h.opening:
			h.opening, h.visitor, h.refused, h.changed = nil, o.visitor, o.err, now
		default:
		}
	}
	h.based = h.visitor != nil
}

// visit returns the processes that ran since the previous scan, and false if that is not known or
// they are too many.
func (h *switchHook) visit(now time.Duration) (tasks.Listing, bool) {
	if !h.based {
		h.ready(now)
		return tasks.Listing{}, false
	}
	ran, count, err := h.visitor.Visit(h.most)
	if err != nil {
		h.refused = oneline.Join(err, h.detach(now))
		return tasks.Listing{}, false
	}
	if count > h.most {
		return tasks.Listing{}, false
	}
	h.partial++
	h.ran += uint64(count)
	return ran, true
}

// detach unloads the hook.
func (h *switchHook) detach(now time.Duration) error {
	v := h.visitor
	h.visitor, h.based, h.changed = nil, false, now
	return v.Close()
}

// close unloads the hook, also while it is being opened.
func (h *switchHook) close() error {
	if h.opening != nil {
		h.visitor = (<-h.opening).visitor
		h.opening = nil
	}
	if h.visitor == nil {
		return nil
	}
	return h.detach(0)
}

// considerHook compares costs after a scan of all processes, and has the hook attached or detached.
// partial reports whether a scan of those that ran would have been enough.
func (b *BPF) considerHook(l *tasks.Listing, now time.Duration, partial bool) {
	h := &b.hook
	if h.open == nil || h.refused != nil {
		return
	}
	if partial {
		h.partial++
		h.ran += uint64(len(l.Changed))
	}
	elapsed := now - h.considered
	if elapsed >= 0 && elapsed < considerEvery || h.partial == 0 && h.visitor == nil {
		return
	}
	switches, err := h.readSwitches(b.proc)
	if err != nil {
		return
	}
	count, _ := b.tasks()
	count = max(count, uint64(len(l.Processes)))
	h.most = max(0, int(count)-perScan) / perRan
	if elapsed > 0 && elapsed < dwell && h.considered > 0 {
		h.decide(now, count, units.Advance(h.switches, switches))
	}
	h.considered, h.switches, h.partial, h.ran = now, switches, 0, 0
}

// decide attaches the hook when scans of all threads cost more than one and a half times as much as
// scans of those that ran, and detaches it when they cost less. count is the number of threads,
// switches that of context switches since this was decided last.
func (h *switchHook) decide(now time.Duration, count, switches uint64) {
	all, ran := h.partial*count, perRan*h.ran+perScan*h.partial+switches
	switch {
	case h.opening != nil || h.changed > 0 && now-h.changed < dwell:
	case h.visitor == nil && 2*all > 3*ran:
		h.attach()
	case h.visitor != nil && all < ran:
		h.refused = h.detach(now)
	}
}

// attach has the hook attached. That takes a tenth of a second, so it is done beside the scans.
func (h *switchHook) attach() {
	done, open := make(chan opened, 1), h.open
	h.opening = done
	go func() {
		v, err := open()
		done <- opened{v, err}
	}()
}

// maxStat bounds what is read of /proc/stat, which has a number for each interrupt of the machine.
const maxStat = 1 << 20

var errNoSwitches = errors.New("no number of context switches")

// readSwitches returns the number of context switches since boot on all CPUs.
func (h *switchHook) readSwitches(dir *kernfs.Dir) (uint64, error) {
	for {
		text, err := dir.Read("stat", h.stat)
		if err != nil {
			return 0, err
		}
		if len(text) < len(h.stat) {
			return parseSwitches(text)
		}
		if len(h.stat) >= maxStat {
			return 0, errNoSwitches
		}
		h.stat = make([]byte, max(8192, 2*len(h.stat)))
	}
}

// parseSwitches parses the number of context switches in the text of /proc/stat.
func parseSwitches(text []byte) (uint64, error) {
	_, rest, ok := bytes.Cut(text, []byte("\nctxt "))
	number, _, whole := bytes.Cut(rest, []byte{'\n'})
	if !ok || !whole {
		return 0, errNoSwitches
	}
	return strconv.ParseUint(string(number), 10, 64)
}
