// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// counter is a visitor that counts hardware events at context switches.
type counter interface {
	// SetCPUs sets the CPUs that are online. It reports whether some were not counted until now.
	SetCPUs(online []int) (changed bool, err error)
	// Count starts a counting period, or ends counting.
	Count(on bool) error
	// Flush returns the events until now, since the previous flush or since counting started.
	Flush() (tasks.Counted, error)
}

// eventCounting counts the hardware events of processes, in all windows or in some. The zero
// eventCounting counts no events.
type eventCounting struct {
	events  *tasks.Events // nil unless the programs support events
	refused error         // the reason if events are requested and cannot be counted
	online  *divide.Online
	counter counter // nil while the hook is not attached
	on      bool    // the counter counts
	whole   bool    // the counter has counted since the previous scan
	rated   bool    // a window with rates was counted

	counted  tasks.Counted // of the window
	window   int           // number of windows
	lacked   error         // errLacked if a window of the last 10 s lacked the PMU
	lackedAt time.Duration // end of the latest window that lacked the PMU
	budget   countBudget
	polled   time.Duration // when switches was read
	switches uint64        // context switches of the node, while events are not counted
}

// open creates the maps of hardware events, if events are requested.
func (c *eventCounting) open(o Options) {
	if o.Hardware == nil {
		return
	}
	var err error
	if c.events, err = tasks.NewEvents(o.Hardware); err != nil {
		c.refuse(err)
		return
	}
	c.online = divide.NewOnline(o.Root)
}

// refuse ends counting for a reason, permanently.
func (c *eventCounting) refuse(err error) {
	c.refused = fmt.Errorf("hardware events are not counted: %w", err)
	_ = c.stop() // the counts are no longer read
	c.counter = nil
}

// stop ends counting, and closes the counters: other users of the PMU may need the hardware.
func (c *eventCounting) stop() error {
	c.on, c.whole, c.rated = false, false, false
	if c.counter == nil {
		return nil
	}
	err := c.counter.Count(false)
	_, closed := c.counter.SetCPUs(nil)
	return errors.Join(err, closed)
}

// wanted reports whether the hook must stay attached to count events.
func (c *eventCounting) wanted() bool {
	return c.online != nil && c.refused == nil && c.budget.mode != countNever
}

// uncounted returns the reason if not all windows are counted. The reason has the figures of the time
// when it began, and stays the same until another reason holds.
func (c *eventCounting) uncounted() error {
	return cmp.Or(c.refused, oneline.Join(c.budget.reason, c.lacked))
}

const (
	// maxLacked is the maximum part of a valid window without the PMU.
	maxLacked = 0.01
	// keepLacked is the time for which the reason is kept, because other users of the PMU are often
	// temporary.
	keepLacked = 10 * time.Second
)

var errLacked = errors.New("hardware events are not used in some windows: other users have the PMU of a CPU")

// flush reads the counters, right before the processes of a window.
func (c *eventCounting) flush(now time.Duration, attached visitor) {
	if attached == nil || !c.wanted() {
		return
	}
	if c.counter == nil {
		c.counter, _ = attached.(counter)
	}
	if c.counter == nil {
		return
	}
	if err := c.read(now); err != nil {
		c.refuse(err)
	}
}

func (c *eventCounting) read(now time.Duration) (err error) {
	if c.on {
		if c.counted, err = c.counter.Flush(); err != nil {
			return err
		}
	}
	c.online.Refresh(now)
	changed, err := c.counter.SetCPUs(c.online.CPUs())
	c.whole = c.whole && !changed
	return err
}

// check stops using a hook that was detached or refused. A hook that was refused is opened again
// without events, and no hook is opened with events after counting has ended.
func (c *eventCounting) check(h *switchHook) {
	if h.visitor == nil {
		c.counter, c.on, c.whole, c.rated = nil, false, false, false
	}
	if h.refused != nil && c.online != nil && c.refused == nil {
		c.refuse(h.refused)
	}
	if c.refused != nil && h.events && !h.blind {
		h.events, h.refused = false, nil
	}
}

// end describes the events of a window whose processes were scanned into a table, and decides
// whether the next window is counted. lost are the cycles of exited processes and threads without a
// record. After an error, the next window is longer and not counted.
func (c *eventCounting) end(t *proc.Table, lost uint64, err error) {
	if c.online == nil {
		return
	}
	t.Counting = proc.Counting{}
	switch {
	case err != nil:
		c.whole = false
		return
	case c.whole:
		t.Counting = c.judge(t, lost)
		c.budget.add(t.Now-t.Before, c.counted.Switches, c.counted.Flushes)
		if c.rated = c.budget.mode == countSometimes && t.Counting.Valid; c.rated {
			t.KeepRates()
		}
	case c.rated && c.budget.mode == countSometimes && !c.on:
		t.EstimateEvents()
		t.Counting.Valid = true
	}
	if c.counter != nil && c.refused == nil {
		c.next()
	}
}

// judge describes the events of a window.
func (c *eventCounting) judge(t *proc.Table, lost uint64) proc.Counting {
	all, lacks := c.counted.Cycles, c.counted.Lacked > maxLacked
	lost += c.counted.LostCycles
	if lacks {
		c.lacked, c.lackedAt = errLacked, t.Now
	} else if t.Now-c.lackedAt >= keepLacked {
		c.lacked = nil
	}
	used, period := t.Used(nil), units.CPUTime(t.Now-t.Before)*units.CPUTime(len(c.online.CPUs()))
	valid := all > 0 && !lacks
	return proc.Counting{Valid: valid, Trainable: valid && lost < all/50 && used > period/10}
}

// next starts or ends counting, for the next window.
func (c *eventCounting) next() {
	mode, err := c.budget.mode, error(nil)
	on := mode == countAlways || mode == countSometimes && c.window%countOneOf == 0
	c.window++
	switch {
	case mode == countNever && c.on:
		err = c.stop()
	case on != c.on:
		err = c.counter.Count(on)
	}
	if err != nil {
		c.refuse(err)
		return
	}
	c.on, c.whole, c.rated = on, on, c.rated && mode == countSometimes
}

// close closes the maps.
func (c *eventCounting) close() error {
	if c.online == nil {
		return nil
	}
	return errors.Join(c.events.Close(), c.online.Close())
}

// countMode is the part of the windows that are counted.
type countMode int

const (
	countAlways countMode = iota
	countSometimes
	countNever
)

// The CPU time that counting may use, and its estimated cost.
const (
	countLimit = 0.003 // as a part of a CPU
	countOneOf = 5     // countSometimes counts one in this number of windows
	perSwitch  = 300 * time.Nanosecond
	perFlush   = 20 * time.Microsecond // of a busy CPU
	// margin is the part of the limit below which more windows are counted again.
	margin = 0.8
)

// countBudget selects the mode by the cost of counting.
type countBudget struct {
	mode      countMode
	reason    error // why not all windows are counted, with the figures when the mode was selected
	elapsed   time.Duration
	switches  uint64  // in elapsed
	flushes   uint64  // in elapsed
	flushRate float64 // flushes per second while events were counted last
}

// add adds the switches and flushes of a period, and selects the mode once the period is long
// enough.
func (b *countBudget) add(elapsed time.Duration, switches, flushes uint64) {
	b.elapsed, b.switches, b.flushes = b.elapsed+elapsed, b.switches+switches, b.flushes+flushes
	if b.elapsed < considerEvery {
		return
	}
	seconds := b.elapsed.Seconds()
	if b.mode != countNever {
		b.flushRate = float64(b.flushes) / seconds
	}
	rate := float64(b.switches) / seconds
	cost := rate*perSwitch.Seconds() + b.flushRate*perFlush.Seconds() // CPU time per time, if all windows were counted
	b.elapsed, b.switches, b.flushes = 0, 0, 0
	if mode := b.choose(cost); mode != b.mode {
		b.mode, b.reason = mode, explain(mode, rate, cost)
	}
}

// choose returns the mode that counts most within the limit. Each start of counting flushes once more.
func (b *countBudget) choose(always float64) countMode {
	for mode, cost := range []float64{always, (always + b.flushRate*perFlush.Seconds()) / countOneOf} {
		limit := countLimit
		if countMode(mode) < b.mode {
			limit *= margin
		}
		if cost <= limit {
			return countMode(mode)
		}
	}
	return countNever
}

// explain returns why not all windows are counted in a mode.
func explain(mode countMode, rate, cost float64) error {
	part := "not counted"
	switch mode {
	case countAlways:
		return nil
	case countSometimes:
		part = fmt.Sprintf("counted in one of %d windows", countOneOf)
	}
	return fmt.Errorf("hardware events are %s: at %.0f context switches/s counting would use %.1f %% of a CPU, and the limit is %.1f %%",
		part, rate, 100*cost, 100*countLimit)
}

// pollSwitches is the time between two reads of the number of context switches while events are not
// counted.
const pollSwitches = 10 * time.Second

// pollSwitches reads the number of context switches if there are too many to count events.
func (b *BPF) pollSwitches(now time.Duration) {
	c := &b.counting
	if c.online == nil || c.budget.mode != countNever {
		c.polled = 0
		return
	}
	if now >= c.polled && now-c.polled < pollSwitches {
		return
	}
	count, err := b.hook.readSwitches(b.proc)
	if err != nil {
		return
	}
	if c.polled > 0 && now > c.polled {
		c.budget.add(now-c.polled, units.Advance(c.switches, count), 0)
	}
	c.polled, c.switches = now, count
}
