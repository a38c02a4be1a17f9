// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

// Provider provides the rates of one place: a service on the network, a server of the user, or a
// file. One goroutine at a time uses it.
type Provider interface {
	// Ask sends one request, and returns soon after ctx is done. The same cause always has the same
	// error text, because a changed text is logged again. No error contains a secret.
	Ask(ctx context.Context) (Answer, error)
	// Close releases the provider's resources. No Ask follows.
	Close()
}

// Answer is the response of a provider.
type Answer struct {
	// Periods are in any order and do not overlap. They replace all periods from their beginning
	// on.
	Periods []Period
	// Unchanged reports that the previous answer still holds. It has no Periods.
	Unchanged bool
	// Next is the earliest time of a new answer. The next Ask follows soon after.
	Next time.Time
}

// Options configures how a Poller polls.
type Options struct {
	Timeout    time.Duration // of one Ask; 0 means 30 s
	MaxAge     time.Duration // how long a rate holds after its period
	MaxBackoff time.Duration // maximum time between two Asks that fail; 0 means 15 min
	Ahead      time.Duration // how far in the future a period may end; 0 means any time
}

// The reasons why an answer is rejected or stale.
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
	maxRetryAfter  = 24 * time.Hour // a quota may be per day
	minWait        = time.Second
	maxJitter      = time.Minute     // spreads the requests of many collectors
	maxAhead       = 5 * time.Minute // of the first period: clocks differ
)

// Poller is a Signal that polls a Provider on a separate goroutine until Close. It does not
// store the answers: after a restart there is no rate before the first answer.
type Poller struct {
	*Timeline
	provider Provider
	options  Options
	stop     context.CancelFunc
	done     chan struct{} // closed when the goroutine ends

	mu       sync.Mutex // guards the following fields
	last     error      // of the last Ask
	answered bool       // an Ask has ended
}

// Poll returns a signal with the rates of a provider, and starts polling.
func Poll(provider Provider, options Options) *Poller {
	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	options.MaxBackoff = cmp.Or(options.MaxBackoff, maxBackoff)
	ctx, stop := context.WithCancel(context.Background())
	p := &Poller{Timeline: NewTimeline(options.MaxAge), provider: provider, options: options, stop: stop, done: make(chan struct{})}
	go p.run(ctx)
	return p
}

// Close stops polling and closes the provider. It may be called again.
func (p *Poller) Close() {
	p.stop()
	<-p.done
}

func (p *Poller) run(ctx context.Context) {
	defer close(p.done)
	defer p.provider.Close()
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

// ask sends one request, and returns the time of the next one.
func (p *Poller) ask(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	answer, err := p.provider.Ask(ctx)
	switch {
	case errors.Is(err, context.Canceled): // by Close
		return answer.Next, err
	case err != nil:
	case answer.Unchanged:
		err = p.last
	default:
		err = p.take(time.Now(), answer.Periods)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.answered = err, true
	return answer.Next, err
}

// take adds the periods of an answer to the timeline.
func (p *Poller) take(now time.Time, periods []Period) error {
	if len(periods) == 0 {
		return ErrNoPeriods
	}
	first := slices.MinFunc(periods, func(a, b Period) int { return a.From.Compare(b.From) }).From
	last := slices.MaxFunc(periods, func(a, b Period) int { return a.Until.Compare(b.Until) }).Until
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

// Err returns why the last answer was rejected or is stale, or nil. Its text changes only with the
// reason. It may be called by any goroutine.
func (p *Poller) Err() error {
	now := time.Now()
	p.mu.Lock()
	err, answered := p.last, p.answered
	p.mu.Unlock()
	until, holds, ok := p.Known()
	if err == nil && answered && now.Sub(until) > p.options.MaxAge/2 {
		err = ErrStale
	}
	switch {
	case err == nil:
		return nil
	case ok && holds.After(now):
		return fmt.Errorf("%w; the last value holds for now", err)
	}
	return fmt.Errorf("%w; no value is known", err)
}

// jitter returns a wait that is longer by up to a tenth, at most maxJitter.
func jitter(wait time.Duration) time.Duration {
	return wait + rand.N(min(wait/10, maxJitter)+1) //nolint:gosec // spreads requests, and is no secret
}

// backoff returns the wait after a failure that follows other failures.
func (p *Poller) backoff(failures int) time.Duration {
	return min(firstBackoff<<min(failures, 10), p.options.MaxBackoff)
}

// retryAfter returns the wait that the provider requests (RFC 9110, section 10.2.3), or 0.
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
