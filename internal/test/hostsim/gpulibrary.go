// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
)

// Library is a vendor's library as the receiver's extension presents it: it reads the "nvidia" cards of a machine. A card's
// energy counter is in millijoules and refreshed every 20 ms. The driver samples six times a second which percentage of the time
// since its last sample each process used, and shows a sample Lag after it was taken; the rest of a poll's time is told with the
// next. Under MIG the activity of each slice is known, and not who of those in it caused it.
//
// Its methods may be called while time passes on the machine, by another goroutine.
type Library struct {
	// Lag is how late the driver shows a sample.
	Lag time.Duration
	// Fails is what polls fail with, nil if they do not.
	Fails func(poll int) error

	mu      sync.Mutex
	machine *Machine
	began   time.Time // the time of the machine's boot, with a monotonic clock reading
	now     time.Duration
	cards   []*libraryCard
	polls   int
	devices []gpulibrary.Device
	closed  bool
}

// The driver's periods: of the energy counter and of samples.
const (
	counterPeriod = 20 * time.Millisecond
	samplePeriod  = time.Second / 6
)

type libraryCard struct {
	*GPU
	energy  uint64 // mJ
	used    map[*Context]time.Duration
	busy    time.Duration
	samples []utilization
	taken   time.Duration // when the last sample was
	counted time.Duration // when the counter was refreshed last
	known   bool          // there was a poll
	open    []openContext
}

type openContext struct{ pid, slice int }

// utilization is a sample of a card: the time of it in which each process ran, in whole percent of the period.
type utilization struct {
	at, period time.Duration
	busy       time.Duration
	used       map[openContext]time.Duration
}

// NewLibrary returns the library of a machine that has booted at a time with a monotonic clock reading. A machine has one. Its
// cards must have been added before.
func NewLibrary(m *Machine, booted time.Time) *Library {
	l := &Library{machine: m, began: booted, now: m.Now(), Lag: 50 * time.Millisecond}
	for _, g := range m.GPUs {
		if g.Driver == "nvidia" {
			l.cards = append(l.cards, &libraryCard{GPU: g, used: map[*Context]time.Duration{}, taken: l.now, counted: l.now})
		}
	}
	m.library = l
	return l
}

// Open implements gpulibrary.Extension.
func (l *Library) Open() gpulibrary.Reader { return l }

// step notes what the driver sees after a step of the machine.
func (l *Library) step() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.machine.Now()
	for _, c := range l.cards {
		if l.now-c.counted >= counterPeriod {
			c.counted, c.energy = l.now, uint64(c.Energy/1000)
		}
		if l.now-c.taken >= samplePeriod {
			c.sample(l.now)
		}
		c.open = c.open[:0]
		for _, context := range c.Contexts {
			c.open = append(c.open, openContext{context.Task.PID, context.Slice})
		}
	}
}

// sample takes a sample of those that are open, or were since the last one.
func (c *libraryCard) sample(now time.Duration) {
	u := utilization{at: now, period: now - c.taken, used: map[openContext]time.Duration{}}
	for _, context := range slices.Concat(c.Contexts, c.closed) {
		part := float64(context.Used[0]-c.used[context]) / float64(u.period) / c.Engines[0].units()
		c.used[context] = context.Used[0]
		if percent := math.Round(100 * part); percent > 0 {
			u.used[openContext{context.Task.PID, context.Slice}] += time.Duration(percent / 100 * float64(u.period))
		}
	}
	u.busy = c.Busy - c.busy
	c.busy, c.taken = c.Busy, now
	for _, context := range c.closed {
		delete(c.used, context)
	}
	c.closed = c.closed[:0]
	c.samples = append(c.samples, u)
}

// Poll implements gpulibrary.Reader.
func (l *Library) Poll(context.Context) ([]gpulibrary.Device, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.polls++
	if l.Fails != nil {
		if err := l.Fails(l.polls); err != nil {
			return nil, err
		}
	}
	l.devices = l.devices[:0]
	for _, c := range l.cards {
		l.devices = append(l.devices, c.poll(l))
	}
	return l.devices, nil
}

func (c *libraryCard) poll(l *Library) gpulibrary.Device {
	d := gpulibrary.Device{
		ID: "GPU-" + c.Address, Name: "simulated card", Vendor: "NVIDIA", PCIAddress: c.Address, MaxWatts: 1000,
		At: l.began.Add(c.counted), Energy: 1000 * c.energy,
	}
	used := map[openContext]time.Duration{}
	last := map[openContext]time.Duration{}
	rest := c.samples[:0]
	for _, u := range c.samples {
		if u.at+l.Lag > l.now {
			rest = append(rest, u)
			continue
		}
		d.Elapsed += u.period
		d.Busy += u.busy
		for who, t := range u.used {
			used[who] += t
			last[who] = u.at
		}
	}
	c.samples = rest
	if !c.known {
		c.known = true
		d.Elapsed, d.Busy = 0, 0
		clear(used)
		clear(last)
	}
	for _, who := range c.open {
		used[who] += 0 // lists who did not use it, too
	}
	d.Users = c.users(used, func(who openContext) time.Time {
		if at, ok := last[who]; ok {
			return l.began.Add(at)
		}
		return time.Time{}
	})
	return d
}

// users returns who has used the card and for how long: by process, or by slice.
func (c *libraryCard) users(used map[openContext]time.Duration, last func(openContext) time.Time) (users []gpulibrary.User) {
	slice := -1
	for _, who := range slices.SortedFunc(maps.Keys(used), func(a, b openContext) int {
		return cmp.Or(cmp.Compare(a.slice, b.slice), cmp.Compare(a.pid, b.pid))
	}) {
		if c.Slices == nil || who.slice != slice {
			users, slice = append(users, gpulibrary.User{}), who.slice
		}
		u := &users[len(users)-1]
		u.PIDs = append(u.PIDs, int32(who.pid))
		u.Used += used[who]
		if at := last(who); at.After(u.Last) {
			u.Last = at
		}
	}
	return users
}

// Close implements gpulibrary.Reader.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}
