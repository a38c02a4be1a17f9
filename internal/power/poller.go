// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"
)

// Sensor is asked for the power or energy of zones, and may take long to answer: a BMC, a web page,
// a chip on a slow bus. A Poller makes a Meter of it. One goroutine at a time uses it.
type Sensor interface {
	// Poll asks once. It returns soon after ctx is done. The values are valid until the next call.
	//
	// The error reports why no zone could be read; the error of one zone is in its Value. If there
	// is nothing to read, the error is fs.ErrNotExist or ErrNoZones, and a later call looks again.
	// While a state lasts, so does the text of its error: a changed text is logged again.
	Poll(ctx context.Context) ([]Value, error)
	// Close releases what the sensor holds open. No Poll follows.
	Close() error
}

// Pacer is a Sensor that learns from what it reads how often it is to be asked.
type Pacer interface {
	// Every returns the time from the start of the last poll to the start of the next. The
	// goroutine that polls calls it.
	Every() time.Duration
}

// Finder is a Sensor that knows at once whether there may be something to poll.
type Finder interface {
	// Find returns nil if there may be something to poll, and why there is nothing if not:
	// fs.ErrNotExist or ErrNoZones. It does not block for longer than a second, and is called
	// before the first Poll only.
	Find() error
}

// Warner is a Sensor that can report a degraded mode of operation.
type Warner interface {
	// Warning returns the reason for degraded operation, or nil. It is called after each Poll that
	// returned values, on the goroutine that polls, and does not block. Its text changes only with
	// the reason.
	Warning() error
}

// PollOptions say how a Sensor is asked.
type PollOptions struct {
	Name string // of the meter, for errors
	// Every is the time from the start of one poll to the start of the next. 0 means ten seconds.
	// After a poll that took more than half of it, the sensor rests for as long as the poll took.
	Every time.Duration
	// Timeout is how long one poll may take. 0 means a minute.
	Timeout time.Duration
	// MaxBackoff is the longest time between polls that fail. 0 means five minutes.
	MaxBackoff time.Duration
	// LongestGap is how far two readings of power may be apart to be integrated. 0 means the
	// largest of two minutes, three times Every and twice Timeout.
	LongestGap time.Duration
	// StandsStill is how long an energy counter may show the same value before its zone has an
	// error. 0 means forever. It is for counters of what always uses energy, and more than the time
	// in which the least power adds one unit.
	StandsStill time.Duration
	// Lead is how long before the next Read a poll begins, if the time between two Reads is a multiple
	// of Every: a reading is then of the same time as usage that is read with it. 0 means any time.
	Lead time.Duration
}

// Poller reads a Sensor on its own goroutine, so that it delays no caller, and integrates powers.
// It implements Meter.
//
// A Poller starts with the first Read and ends with Close. While a poll fails, zones keep their
// totals and their readings have its error; after the second failure in a row, polls are repeated
// less and less often, up to every MaxBackoff. A zone that good polls leave out for longer than the
// longest gap is left out of the readings until it is back. What an energy counter counted
// meanwhile is added then.
type Poller struct {
	sensor  Sensor
	options PollOptions
	timeout error              // of a poll that has no answer in time
	stop    context.CancelFunc // nil before the first Read
	done    chan error         // what Sensor.Close returned
	closed  bool

	notFound error     // what the last Find returned
	foundAt  time.Time // sample time of the last Find

	readings []Reading

	mu    sync.Mutex // guards what follows
	read  time.Time  // when Read was called last
	zones []*polledZone
	err   error // what the last poll failed with, or its warning
}

const (
	// findEvery is how often a Finder is asked.
	findEvery = time.Minute
	// hangGrace is how long after its timeout a poll may still return. After that the timeout is
	// reported although the poll goes on: the sensor ignores its context.
	hangGrace = time.Second
	// maxClose is how long Close waits for the sensor.
	maxClose = 3 * time.Second
)

var (
	errHangs       = errors.New("the sensor still did not return from its last poll")
	errNotListed   = errors.New("the sensor no longer reports this zone")
	errStandsStill = errors.New("the energy counter stands still")
)

// NewPoller returns a meter that asks the sensor. It touches nothing.
func NewPoller(sensor Sensor, options PollOptions) *Poller {
	options.Every = cmp.Or(options.Every, 10*time.Second)
	options.Timeout = cmp.Or(options.Timeout, time.Minute)
	options.MaxBackoff = cmp.Or(options.MaxBackoff, 5*time.Minute)
	options.LongestGap = cmp.Or(options.LongestGap, max(2*time.Minute, 3*options.Every, 2*options.Timeout))
	return &Poller{
		sensor: sensor, options: options, done: make(chan error, 1),
		timeout: fmt.Errorf("%s meter: no answer within %v", options.Name, options.Timeout),
	}
}

// Read returns the readings of the last polls. The error is that of the last poll, or the warning
// of a Warner. Before the first poll has ended there are no readings and no error. Read waits for
// no poll and allocates nothing. A Finder that finds nothing is called again after a minute of
// sample time, and is not polled.
func (p *Poller) Read(_ context.Context, s Sample) ([]Reading, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = time.Now() // before the first poll, which plans the second one by it
	switch {
	case p.closed:
		return nil, fmt.Errorf("%s meter: %w", p.options.Name, fs.ErrClosed)
	case p.stop == nil:
		if err := p.find(s.At); err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(context.Background())
		p.stop = stop
		go p.run(ctx)
	}
	p.readings = p.readings[:0]
	for _, z := range p.zones {
		if !z.gone {
			p.readings = append(p.readings, z.reading)
			z.reading.Event = NoEvent
		}
	}
	return p.readings, p.err
}

// find returns why there is nothing to poll.
func (p *Poller) find(at time.Time) error {
	finder, ok := p.sensor.(Finder)
	if ok && (p.notFound == nil || at.Sub(p.foundAt) >= findEvery) {
		p.notFound, p.foundAt = finder.Find(), at
	}
	return p.notFound
}

// run polls until ctx is done, and closes the sensor.
func (p *Poller) run(ctx context.Context) {
	defer func() { p.done <- p.sensor.Close() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		if p.poll(ctx) {
			failures = 0
		} else {
			failures++
		}
		took, pause := time.Since(began), p.pause(failures)
		timer.Reset(max(pause-took+p.shift(began.Add(pause), pause), min(took, p.options.Timeout)))
	}
}

// shift returns by how much a poll must be moved to begin Lead before a Read: later, or earlier by up
// to a quarter of the time between two polls.
func (p *Poller) shift(at time.Time, every time.Duration) time.Duration {
	if p.options.Lead == 0 || every < 4*p.options.Lead {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	late := at.Sub(p.read.Add(-p.options.Lead)) % every
	if late <= every/4 {
		return -late
	}
	return every - late
}

// pause returns the time between the starts of two polls after so many that failed.
func (p *Poller) pause(failures int) time.Duration {
	pause := p.options.Every
	if s, ok := p.sensor.(Pacer); ok {
		pause = s.Every()
	}
	for most := p.options.MaxBackoff; failures > 1 && pause < most; failures-- {
		pause = min(2*pause, most)
	}
	return pause
}

// poll asks once and reports whether there was an answer.
func (p *Poller) poll(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	ended := false
	watchdog := time.AfterFunc(p.options.Timeout+hangGrace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !ended {
			p.fail(p.timeout)
		}
	})
	defer watchdog.Stop()
	values, err := p.sensor.Poll(ctx)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	ended = true
	switch {
	case err == nil:
		p.take(values, now)
		if w, ok := p.sensor.(Warner); ok {
			p.err = w.Warning()
		}
	case ctx.Err() == context.DeadlineExceeded: // the sensor's own error may differ from poll to poll, and would be logged each time
		p.fail(p.timeout)
	default:
		p.fail(err)
	}
	return err == nil
}

// fail sets the error of all zones.
func (p *Poller) fail(err error) {
	p.err = err
	for _, z := range p.zones {
		z.reading.Err = err
	}
}

// take adds the values of a poll that ended at the time now. A zone that they leave out has an
// error, and no reading once it was left out for longer than the longest gap.
func (p *Poller) take(values []Value, now time.Time) {
	p.err = nil
	for i := range values {
		v := &values[i]
		z := p.zone(v.zone)
		z.take(v, p.options.StandsStill)
		z.listed, z.gone = now, false
	}
	for _, z := range p.zones {
		if absent := now.Sub(z.listed); absent > 0 {
			z.reading.Err = errNotListed
			z.gone = absent > p.options.LongestGap
		}
	}
}

// zone returns the state of a zone, and makes it for a new one. A zone with the ID of another
// replaces it: the sensor reads it in another way than before.
func (p *Poller) zone(zone *Zone) *polledZone {
	i := slices.IndexFunc(p.zones, func(z *polledZone) bool { return z.reading.Zone.ID == zone.ID })
	if i >= 0 && p.zones[i].reading.Zone == zone {
		return p.zones[i]
	}
	z := newPolledZone(zone, p.options.LongestGap)
	if i >= 0 {
		p.zones[i] = z
	} else {
		p.zones = append(p.zones, z)
	}
	return z
}

// Close ends the polls and closes the sensor. It waits for up to three seconds; where the sensor
// does not return from a poll, or from being closed, it returns an error, and the sensor is closed
// as soon as its poll ends. Close may be called again; Read may not.
func (p *Poller) Close() error {
	switch {
	case p.closed:
		return nil
	case p.stop == nil:
		p.closed = true
		return p.sensor.Close()
	}
	p.closed = true
	p.stop()
	select {
	case err := <-p.done:
		return err
	case <-time.After(maxClose):
		return fmt.Errorf("%s meter: %w", p.options.Name, errHangs)
	}
}

// ClosePollers closes the pollers side by side, so that it waits no longer than for one of them.
func ClosePollers(pollers ...*Poller) error {
	errs := make([]error, len(pollers))
	var closing sync.WaitGroup
	for i, p := range pollers {
		closing.Go(func() { errs[i] = p.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
