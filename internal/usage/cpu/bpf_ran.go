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
	// their number. If there are more than most, it returns only the number. A process that runs
	// during the call may show the rest of its CPU time in the next call. An exited process may be
	// missing.
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
	// considerEvery is the time between two comparisons of the costs.
	considerEvery = 2 * time.Second
	// dwell is the minimum time between attaching and detaching the hook.
	dwell = time.Minute
	// ranRoom is the maximum number of processes in a scan of the processes that ran.
	ranRoom = 4096
)

// switchHook attaches a hook to context switches while the hook costs less than visiting all
// processes in each scan.
type switchHook struct {
	open    func() (visitor, error) // nil if the kernel does not support the hook
	opening chan opened             // nil unless the hook is being opened
	visitor visitor                 // nil while the hook is not attached
	based   bool                    // a scan of all processes has begun since the hook was attached
	events  bool                    // the hook is opened with events
	blind   bool                    // the hook only counts events
	refused error                   // the reason if the hook cannot be attached; it is not tried again
	changed time.Duration           // when the hook was attached or detached
	most    int                     // maximum number of processes that a scan of those that ran visits

	considered time.Duration // when costs were compared last
	switches   uint64        // context switches of the node until considered
	partial    uint64        // number of scans since then that may leave out processes that did not run
	ran        uint64        // number of processes that ran in these scans
	stat       []byte        // scratch of readSwitches
}

type opened struct {
	visitor visitor
	err     error
}

// ready uses the hook once it is attached. It is called before each scan of all processes.
func (h *switchHook) ready(now time.Duration) {
	if h.opening != nil {
		select {
		case o := <-h.opening:
			h.opening, h.visitor, h.refused, h.changed = nil, o.visitor, o.err, now
		default:
		}
	}
	h.based = h.visitor != nil && !h.blind
}

// visit returns the processes that ran since the previous scan. It returns false if they are not
// available or too many.
func (h *switchHook) visit(now time.Duration) (tasks.Listing, bool) {
	if !h.based {
		h.ready(now)
		return tasks.Listing{}, false
	}
	if h.most == 0 { // the hook is attached to count events
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

// considerHook compares costs after a scan of all processes, and attaches or detaches the hook.
// partial reports whether a scan of the processes that ran would have sufficed.
func (b *BPF) considerHook(l *tasks.Listing, now time.Duration, partial bool) {
	h := &b.hook
	if h.open == nil || h.refused != nil {
		return
	}
	counts := b.counting.wanted()
	if counts && h.visitor == nil && h.opening == nil {
		h.attach()
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
	if elapsed > 0 && elapsed < dwell && h.considered > 0 && !counts {
		h.decide(now, count, units.Advance(h.switches, switches))
	}
	h.considered, h.switches, h.partial, h.ran = now, switches, 0, 0
}

// decide attaches the hook if scans of all threads cost more than one and a half times as much as
// scans of the processes that ran. It detaches the hook if they cost less. count is the number of
// threads, and switches is the number of context switches since the previous decision.
func (h *switchHook) decide(now time.Duration, count, switches uint64) {
	all, ran := h.partial*count, perRan*h.ran+perScan*h.partial+switches
	switch {
	case h.opening != nil || h.changed > 0 && now-h.changed < dwell:
	case h.blind && h.visitor == nil:
	case h.visitor == nil && 2*all > 3*ran:
		h.attach()
	case h.visitor != nil && (all < ran || h.blind):
		h.refused = h.detach(now)
	}
}

// attach attaches the hook on another goroutine, because this takes a tenth of a second.
func (h *switchHook) attach() {
	done, open := make(chan opened, 1), h.open
	h.opening = done
	go func() {
		v, err := open()
		done <- opened{v, err}
	}()
}

// maxStat is the maximum number of bytes read of /proc/stat, which has a number for each interrupt.
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
