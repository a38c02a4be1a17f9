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

// Library simulates a vendor's library behind the interface of the receiver's extension: it reads
// the "nvidia" cards of a machine. A card's energy counter is in millijoules and is refreshed every
// 20 ms. Six times a second the driver samples the percentage of time that each process used since
// the last sample, and exposes a sample Lag after taking it. A poll covers the time up to the last
// exposed sample, with the energy at that time, interpolated between the counter's values at two
// polls. Under MIG a sample has the activity of each slice, but not its division among the
// processes in the slice.
//
// The methods may be called by another goroutine while time passes on the machine.
type Library struct {
	// Lag is the delay before the driver exposes a sample.
	Lag time.Duration
	// Fails returns the error of a poll, nil if the poll succeeds. A nil Fails means that no poll
	// fails.
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

// The driver's periods: of the energy counter, of samples, and the time that it keeps samples.
const (
	counterPeriod = 20 * time.Millisecond
	samplePeriod  = time.Second / 6
	buffered      = 10 * time.Second
)

type libraryCard struct {
	*GPU
	energy  uint64 // mJ
	used    map[*Context]time.Duration
	busy    time.Duration
	samples []utilization // not reported yet
	all     []utilization // of the last buffered seconds
	taken   time.Duration // time of the last sample
	counted time.Duration // time of the counter's last refresh
	points  []point       // the counter at polls since the last reported time
	last    time.Duration // the last reported time
	known   bool          // set by the first poll
	open    []openContext
}

type openContext struct{ pid, slice int }

// point is the counter at a moment, in µJ.
type point struct {
	at     time.Duration
	energy float64
}

// utilization is a sample of a card: the busy time of each process, in whole percent of the period.
type utilization struct {
	at, period time.Duration
	busy       time.Duration
	used       map[openContext]time.Duration
}

// NewLibrary returns the library of a machine that booted at a time with a monotonic clock reading.
// A machine has one library. Add all cards before the call.
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

// step updates the driver's view after a step of the machine.
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

// sample takes a sample of the contexts that are open, or were open after the last sample.
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
	c.samples, c.all = append(c.samples, u), append(c.all, u)
	if c.all[0].at < now-buffered {
		c.all = c.all[1:]
	}
}

// Utilization returns the mean of all samples of a card that the driver has kept, by process, as
// the driver does for a request since timestamp 0. With peak it returns the largest sample of each
// process.
func (l *Library) Utilization(g *GPU, peak bool) map[int]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	utilization := map[int]float64{}
	for _, c := range l.cards {
		if c.GPU != g {
			continue
		}
		for _, u := range c.all {
			for user, t := range u.used {
				part := float64(t) / float64(u.period)
				if peak {
					utilization[user.pid] = max(utilization[user.pid], part)
				} else {
					utilization[user.pid] += part / float64(len(c.all))
				}
			}
		}
	}
	return utilization
}

// Activity returns the activity of each slice of a card in the last sample, relative to the slice's
// size.
func (l *Library) Activity(g *GPU) []float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	activity := make([]float64, len(g.Slices))
	for _, c := range l.cards {
		if c.GPU != g || g.Slices == nil || len(c.all) == 0 {
			continue
		}
		last := c.all[len(c.all)-1]
		for user, t := range last.used {
			activity[user.slice] += float64(t) / float64(last.period) / g.Slices[user.slice]
		}
	}
	return activity
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
	}
	used := map[openContext]time.Duration{}
	last := map[openContext]time.Duration{}
	rest := c.samples[:0]
	for _, u := range c.samples {
		if u.at+l.Lag > l.now {
			rest = append(rest, u)
			continue
		}
		c.last = u.at
		d.Elapsed += u.period
		d.Busy += u.busy
		for user, t := range u.used {
			used[user] += t
			last[user] = u.at
		}
	}
	c.samples = rest
	c.points = append(c.points, point{l.now, 1000 * float64(c.energy)})
	if !c.known {
		c.known, c.last = true, l.now
		d.Elapsed, d.Busy = 0, 0
		clear(used)
		clear(last)
	}
	d.At, d.Energy = l.began.Add(c.last), c.energyAt(c.last)
	for _, user := range c.open {
		used[user] += 0 // also lists processes that did not use it
	}
	d.Users = c.users(used, func(user openContext) time.Time {
		if at, ok := last[user]; ok {
			return l.began.Add(at)
		}
		return time.Time{}
	})
	return d
}

// energyAt returns the energy at a time, interpolated between two polls, and drops the earlier
// points.
func (c *libraryCard) energyAt(at time.Duration) uint64 {
	for len(c.points) > 1 && c.points[1].at <= at {
		c.points = c.points[1:]
	}
	a := c.points[0]
	if len(c.points) == 1 || at <= a.at {
		return uint64(a.energy)
	}
	b := c.points[1]
	return uint64(a.energy + (b.energy-a.energy)*float64(at-a.at)/float64(b.at-a.at))
}

// users returns the users of the card and their busy time: by process, or by slice under MIG.
func (c *libraryCard) users(used map[openContext]time.Duration, last func(openContext) time.Time) (users []gpulibrary.User) {
	slice := -1
	for _, user := range slices.SortedFunc(maps.Keys(used), func(a, b openContext) int {
		return cmp.Or(cmp.Compare(a.slice, b.slice), cmp.Compare(a.pid, b.pid))
	}) {
		if c.Slices == nil || user.slice != slice {
			users, slice = append(users, gpulibrary.User{}), user.slice
		}
		u := &users[len(users)-1]
		u.PIDs = append(u.PIDs, int32(user.pid))
		u.Used += used[user]
		if at := last(user); at.After(u.Last) {
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
