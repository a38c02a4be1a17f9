// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

// Provider provides the rates of one place: a service on the network, a server of the user, or a file. One goroutine
// at a time uses it.
type Provider interface {
	// Ask asks once, and returns soon after ctx is done. While a state lasts, so does the text of its error: a
	// changed text is logged again. No error has a secret.
	Ask(ctx context.Context) (Answer, error)
	// Close releases what the provider holds open. No Ask follows.
	Close() error
}

// Answer is the response of a provider.
type Answer struct {
	// Periods are in any order and do not overlap. They replace what is known from the first of them on.
	Periods []Period
	// Unchanged reports that nothing is new since the last good answer. Periods are left out then.
	Unchanged bool
	// Next is when there may be something new. The next Ask follows soon after.
	Next time.Time
}

// Options say how a Provider is asked.
type Options struct {
	// Timeout is how long one Ask may take. 0 means half a minute.
	Timeout time.Duration
	// MaxAge is how long a rate holds after its period.
	MaxAge time.Duration
	// MaxBackoff is the longest time between two Asks that fail. 0 means a quarter of an hour.
	MaxBackoff time.Duration
	// Ahead is how far in the future a period may end. 0 means that it may end at any time.
	Ahead time.Duration
}

// Condition is how a provider is.
type Condition int

// Conditions of a provider.
const (
	Waiting Condition = iota // for its first answer
	OK
	Stale   // it answers, but has no rate for the present
	Failing // its last answer, if there was one, was of no use
)

// String returns the condition as logs and metrics report it.
func (c Condition) String() string {
	return [...]string{"waiting", "ok", "stale", "failing"}[c]
}

// State is the condition of a provider, and what follows from it.
type State struct {
	Condition Condition
	Err       error // why it is stale or failing
	Known     bool  // whether a rate holds at present
}

// Why a provider's answer is of no use, or stale.
var (
	ErrNoPeriods = errors.New("the answer has no periods")
	ErrFuture    = errors.New("the answer is for the future only: the clock of this machine or that of the provider is wrong")
	ErrFar       = errors.New("the answer is for a time too far in the future")
	ErrStale     = errors.New("the provider reports nothing for the present: its last period ended long ago")
)

const (
	defaultTimeout = 30 * time.Second
	firstBackoff   = 30 * time.Second
	maxBackoff     = 15 * time.Minute
	// maxRetryAfter bounds what a provider may ask for: a day's quota.
	maxRetryAfter = 24 * time.Hour
	// minWait keeps a provider from being asked again at once.
	minWait = time.Second
	// maxJitter spreads the requests of many collectors.
	maxJitter = time.Minute
	// maxAhead is how far the first period may be in the future: clocks differ.
	maxAhead = 5 * time.Minute
)

// Poller is a Signal that polls a Provider on a separate goroutine from Start to Close. It returns the rates of the
// provider's answers and stores them nowhere: after a restart no rate is known before the first answer.
type Poller struct {
	*Timeline
	provider Provider
	options  Options
	stop     context.CancelFunc // nil before Start
	done     chan error         // what Provider.Close returned
	taken    error              // why the last periods were of no use

	mu   sync.Mutex // guards what follows
	last error      // of the last Ask
	asks int        // that have ended
}

// NewPoller returns a signal of the rates of a provider. It polls nothing.
func NewPoller(provider Provider, options Options) *Poller {
	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	options.MaxBackoff = cmp.Or(options.MaxBackoff, maxBackoff)
	return &Poller{Timeline: NewTimeline(options.MaxAge), provider: provider, options: options, done: make(chan error, 1)}
}

// Start begins to ask. It may be called once.
func (p *Poller) Start() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go p.run(ctx)
}

// Close ends what Start began, and closes the provider. It may be called again.
func (p *Poller) Close() error {
	if p.stop == nil {
		return p.provider.Close()
	}
	p.stop()
	return <-p.done
}

func (p *Poller) run(ctx context.Context) {
	defer func() {
		p.done <- p.provider.Close()
		close(p.done)
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next, err := p.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			timer.Reset(jitter(max(p.backoff(failures), retryAfter(err))))
			failures++
		default:
			failures = 0
			timer.Reset(jitter(max(minWait, time.Until(next))))
		}
	}
}

// ask asks once, and returns when to ask again.
func (p *Poller) ask(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	answer, err := p.provider.Ask(ctx)
	now := time.Now()
	switch {
	case err != nil:
	case answer.Unchanged:
		err = p.taken
	default:
		err = p.take(now, answer.Periods)
		p.taken = err
	}
	if errors.Is(err, context.Canceled) { // by Close
		return now, err
	}
	p.mu.Lock()
	p.last = err
	p.asks++
	p.mu.Unlock()
	return answer.Next, err
}

// take puts the periods of an answer into the timeline.
func (p *Poller) take(now time.Time, periods []Period) error {
	if len(periods) == 0 {
		return ErrNoPeriods
	}
	first, last := periods[0].From, periods[0].Until
	for _, period := range periods {
		if period.From.Before(first) {
			first = period.From
		}
		if period.Until.After(last) {
			last = period.Until
		}
	}
	if ahead := p.options.Ahead; ahead > 0 {
		switch {
		case first.After(now.Add(maxAhead)):
			return ErrFuture
		case last.After(now.Add(ahead)):
			return ErrFar
		}
	}
	return p.Put(now, periods)
}

// State returns how the provider is. It may be called by any goroutine.
func (p *Poller) State() State {
	now := time.Now()
	p.mu.Lock()
	err, asks := p.last, p.asks
	p.mu.Unlock()
	until, holds, ok := p.Known()
	known := ok && holds.After(now)
	switch {
	case asks == 0:
		return State{}
	case err != nil:
		return State{Condition: Failing, Err: err, Known: known}
	case now.Sub(until) > p.options.MaxAge/2:
		return State{Condition: Stale, Err: ErrStale, Known: known}
	}
	return State{Condition: OK, Known: known}
}

// jitter returns a wait that is up to a tenth, or a minute, longer.
func jitter(wait time.Duration) time.Duration {
	return wait + rand.N(min(wait/10, maxJitter)+1) //nolint:gosec // spreads requests, and is no secret
}

// backoff returns how long to wait after so many failures before this one.
func (p *Poller) backoff(failures int) time.Duration {
	return min(firstBackoff<<min(failures, 10), p.options.MaxBackoff)
}

// retryAfter returns for how long the provider asks not to be asked (RFC 9110, section 10.2.3), 0 if it does not.
func retryAfter(err error) time.Duration {
	status, ok := errors.AsType[*fetch.StatusError](err)
	if !ok {
		return 0
	}
	text := status.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(0, time.Until(at)), maxRetryAfter)
}
