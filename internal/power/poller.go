// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// PollOptions say how a Source is polled.
type PollOptions struct {
	Name string // of the meter, for errors
	// Find returns nil if there may be something to poll, and otherwise the reason: fs.ErrNotExist
	// or ErrNoZones. It does not block for longer than a second, and is called before the first
	// poll only. A nil Find stands for one that returns nil.
	Find func() error
	// Every is the time from the start of one poll to the start of the next. 0 means ten seconds.
	// After a poll that took more than half of it, the Source rests for as long as the poll took.
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

// Poller asks a Source on its own goroutine, so that the Source delays no caller. It implements
// Meter.
//
// A Poller starts with the first Read and ends with Close. While a poll fails, zones keep their
// totals and their readings have its error; after the second failure in a row, polls are repeated
// less and less often, up to every MaxBackoff. A zone that good polls leave out for longer than the
// longest gap is left out of the readings until it is back. What an energy counter counted
// meanwhile is added then.
type Poller struct {
	source  Source
	options PollOptions
	timeout error              // of a poll that has no answer in time
	stop    context.CancelFunc // nil before the first Read
	done    chan error         // what Source.Close returned
	closed  bool

	notFound error         // what the last Find returned
	foundAt  time.Time     // sample time of the last Find
	every    time.Duration // between polls; of the goroutine that polls

	readings []Reading

	mu       sync.Mutex // guards the fields below
	read     time.Time  // when Read was called last
	accounts accounts
	polled   time.Time // end of the last good poll
	err      error     // what the last poll failed with, or its warning
}

const (
	// findEvery is how often Find is called.
	findEvery = time.Minute
	// hangGrace is how long after its timeout a poll may still return. After that the timeout is
	// reported although the poll goes on: the Source ignores its context.
	hangGrace = time.Second
	// maxClose is how long Close waits for the Source.
	maxClose = 3 * time.Second
	// minLongestGap is the smallest default of PollOptions.LongestGap.
	minLongestGap = 2 * time.Minute
)

var errHangs = errors.New("the sensor still did not return from its last poll")

// Poll returns a meter that polls the Source. It touches nothing.
func Poll(source Source, options PollOptions) *Poller {
	options.Every = cmp.Or(options.Every, 10*time.Second)
	options.Timeout = cmp.Or(options.Timeout, time.Minute)
	options.MaxBackoff = cmp.Or(options.MaxBackoff, 5*time.Minute)
	options.LongestGap = cmp.Or(options.LongestGap, max(minLongestGap, 3*options.Every, 2*options.Timeout))
	return &Poller{
		source: source, options: options, done: make(chan error, 1),
		accounts: accounts{longestGap: options.LongestGap, late: true, standsStill: options.StandsStill},
		timeout:  fmt.Errorf("%s meter: no answer within %v", options.Name, options.Timeout),
	}
}

// Read returns the readings of the last polls. The error is that of the last poll, or its warning.
// Before the first poll has ended there are no readings and no error. Read waits for no poll and
// allocates nothing. While Find returns an error, it is called once a minute of sample time, and
// nothing is polled.
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
	for _, a := range p.accounts.all {
		if p.polled.Sub(a.listed) <= p.options.LongestGap {
			p.readings = append(p.readings, a.read())
		}
	}
	return p.readings, p.err
}

// find returns why there is nothing to poll.
func (p *Poller) find(at time.Time) error {
	if p.options.Find != nil && (p.notFound == nil || at.Sub(p.foundAt) >= findEvery) {
		p.notFound, p.foundAt = p.options.Find(), at
	}
	return p.notFound
}

// run polls until ctx is done, and closes the Source.
func (p *Poller) run(ctx context.Context) {
	defer func() { p.done <- p.source.Close() }()
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
	pause := p.every
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
	answer, err := p.source.Answer(ctx, Sample{At: time.Now()})
	p.every = cmp.Or(answer.Every, p.options.Every)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	ended = true
	switch {
	case err == nil:
		p.take(&answer, now)
	case ctx.Err() == context.DeadlineExceeded: // the Source's own error may differ from poll to poll, and would be logged each time
		p.fail(p.timeout)
	default:
		p.fail(err)
	}
	return err == nil
}

// fail sets the error of all zones.
func (p *Poller) fail(err error) {
	p.err = err
	for _, a := range p.accounts.all {
		a.reading.Err = err
	}
}

// take adds the answer of a poll that ended at the time now. A zone that is not in the answer has
// an error.
func (p *Poller) take(answer *Answer, now time.Time) {
	p.err, p.polled = answer.Warning, now
	for i := range answer.Shown {
		p.accounts.take(&answer.Shown[i], now).listed = now
	}
	for _, a := range p.accounts.all {
		if now.After(a.listed) {
			a.reading.Err = errNotListed
		}
	}
}

// Close ends the polls and closes the Source. It waits for up to three seconds. If the Source does
// not return from a poll, or from being closed, Close returns an error, and the Source is closed as
// soon as its poll ends. Close may be called again; Read may not.
func (p *Poller) Close() error {
	switch {
	case p.closed:
		return nil
	case p.stop == nil:
		p.closed = true
		return p.source.Close()
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
