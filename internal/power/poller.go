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

// PollOptions configure a Poller.
type PollOptions struct {
	Name string // name of the meter, for errors
	// Find reports whether the machine has the device. It returns nil if it may have the device,
	// and fs.ErrNotExist or ErrNoZones otherwise. It must return within a second, and is called
	// only before the first poll. If Find is nil, the first Read starts the polls.
	Find func() error
	// Every is the time from the start of one poll to the start of the next. 0 selects 10 s. After
	// a poll that took more than half of this time, the next poll starts after a pause that is as
	// long as the poll.
	Every time.Duration
	// Timeout is the time limit of a poll. 0 selects one minute.
	Timeout time.Duration
	// MaxBackoff is the maximum time between failed polls. 0 selects five minutes.
	MaxBackoff time.Duration
	// LongestGap is the maximum time between two power readings that are integrated. 0 selects the
	// maximum of two minutes, three times Every and twice Timeout.
	LongestGap time.Duration
	// MaxUnchanged is the time after which an unchanged energy counter is an error. 0 means never.
	// Set it only for hardware that always uses energy. It must be longer than the hardware needs
	// to use one unit of the counter at its minimum power.
	MaxUnchanged time.Duration
	// Lead is the time from the start of a poll to the next Read, if the interval of Read is a
	// multiple of Every. The reading and the CPU times of the same Read then cover the same time. 0
	// means that polls are not aligned with Reads.
	Lead time.Duration
}

// Poller is a Meter that polls a Source on a separate goroutine, so a slow Source does not delay
// Read.
//
// The first Read starts the polls, and Close stops them. If a poll fails, the zones keep their
// totals, and their readings have the error of the poll. After the second failure in a row, the
// time between polls grows up to MaxBackoff. If successful polls do not return a zone for longer
// than LongestGap, Read omits the zone until a poll returns it again. The energy that its counter
// counted in between is then added.
type Poller struct {
	source  Source
	options PollOptions
	timeout error              // the error of a poll that exceeds the timeout
	stop    context.CancelFunc // nil before the first Read
	done    chan error         // receives the result of Source.Close
	closed  bool

	notFound error         // result of the last Find
	foundAt  time.Time     // sample time of the last Find
	every    time.Duration // time between polls; used only by the polling goroutine

	readings []Reading

	mu       sync.Mutex // guards the fields below
	read     time.Time  // time of the last Read
	accounts accounts
	polled   time.Time // end of the last successful poll
	err      error     // error or warning of the last poll
}

const (
	// findEvery is the sample time between two calls of Find.
	findEvery = time.Minute
	// hangGrace is the additional time for a poll to return after its timeout. If it does not
	// return, the Source ignores its context, and the timeout is reported although the poll
	// continues.
	hangGrace = time.Second
	// maxClose is the maximum time that Close waits for the Source.
	maxClose = 3 * time.Second
	// minLongestGap is the minimum of the default of PollOptions.LongestGap.
	minLongestGap = 2 * time.Minute
)

var errHangs = errors.New("the sensor has not returned from its last poll")

// Poll returns a meter that polls the Source. It does not call the Source yet.
func Poll(source Source, options PollOptions) *Poller {
	options.Every = cmp.Or(options.Every, 10*time.Second)
	options.Timeout = cmp.Or(options.Timeout, time.Minute)
	options.MaxBackoff = cmp.Or(options.MaxBackoff, 5*time.Minute)
	options.LongestGap = cmp.Or(options.LongestGap, max(minLongestGap, 3*options.Every, 2*options.Timeout))
	return &Poller{
		source: source, options: options, done: make(chan error, 1),
		accounts: accounts{longestGap: options.LongestGap, late: true, maxUnchanged: options.MaxUnchanged},
		timeout:  fmt.Errorf("%s meter: no answer within %v", options.Name, options.Timeout),
	}
}

// Read returns the readings of the last polls, and the error or warning of the last poll. Before
// the end of the first poll, it returns no readings and no error. Read does not wait for polls and
// does not allocate. While Find returns an error, Read calls Find once per minute of sample time,
// and does not start the polls.
func (p *Poller) Read(_ context.Context, s Sample) ([]Reading, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = time.Now() // set before the first poll starts, because it determines the time of the second
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

// find returns the result of Find, which it calls at most once per findEvery.
func (p *Poller) find(at time.Time) error {
	if p.options.Find != nil && (p.notFound == nil || at.Sub(p.foundAt) >= findEvery) {
		p.notFound, p.foundAt = p.options.Find(), at
	}
	return p.notFound
}

// run polls until ctx is done, then closes the Source.
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

// shift returns the delay of the next poll that makes the poll start Lead before a Read. It may be
// negative, by at most a quarter of the time between two polls.
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

// pause returns the time between the starts of two polls after the given number of failed polls.
func (p *Poller) pause(failures int) time.Duration {
	pause := p.every
	for most := p.options.MaxBackoff; failures > 1 && pause < most; failures-- {
		pause = min(2*pause, most)
	}
	return pause
}

// poll polls the Source once and reports whether the poll was successful.
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
	case ctx.Err() == context.DeadlineExceeded: // not the error of the Source, whose text may differ and would be logged each time
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

// take adds the answer of a poll that ended at the time now. Zones that the answer does not contain
// have an error.
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

// Close stops the polls and closes the Source. It waits up to three seconds. If Source.Answer or
// Source.Close do not return within this time, Close returns an error, and the Source is closed
// after its poll ends. Close may be called again. Read must not be called after Close.
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

// ClosePollers closes the pollers concurrently, so it waits only for the slowest of them.
func ClosePollers(pollers ...*Poller) error {
	errs := make([]error, len(pollers))
	var closing sync.WaitGroup
	for i, p := range pollers {
		closing.Go(func() { errs[i] = p.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
