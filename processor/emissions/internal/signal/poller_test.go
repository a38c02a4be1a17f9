// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a provider that a test answers for.
type fake struct {
	answer func(n int) (Answer, error)
	began  time.Time
	closed bool
	hangs  bool

	mu    sync.Mutex
	asked []time.Duration // when, since the test began
}

// times returns when it was asked.
func (f *fake) times() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fake) Ask(ctx context.Context) (Answer, error) {
	f.mu.Lock()
	f.asked = append(f.asked, time.Since(f.began))
	n := len(f.asked)
	f.mu.Unlock()
	if f.hangs {
		<-ctx.Done()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return Answer{}, fetch.ErrTimeout
		}
		return Answer{}, ctx.Err()
	}
	return f.answer(n)
}

func (f *fake) Close() { f.closed = true }

// hourly answers with the hour that has begun.
func hourly(n int) (Answer, error) {
	hour := time.Now().Truncate(time.Hour)
	return Answer{Periods: []Period{{From: hour, Until: hour.Add(time.Hour), Rate: Rate(n)}}, Next: hour.Add(time.Hour)}, nil
}

// poll runs a test with a poller that has been started.
func poll(t *testing.T, o Options, answer func(n int) (Answer, error), test func(p *Poller, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: answer, began: time.Now()}
		p := Poll(f, o)
		synctest.Wait()
		test(p, f)
		p.Close()
		assert.True(t, f.closed)
		p.Close()
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// now returns the mean of the last minute as text.
func now(s Signal) string {
	m, ok := s.Mean(time.Now().Add(-time.Minute), time.Now())
	switch {
	case !ok:
		return "unknown"
	case m.Stale:
		return fmt.Sprint(m.Rate, " stale")
	}
	return fmt.Sprint(m.Rate)
}

func TestAProviderIsAskedWhenItMayHaveSomethingNew(t *testing.T) {
	poll(t, Options{MaxAge: 2 * time.Hour, Ahead: 24 * time.Hour}, hourly, func(p *Poller, f *fake) {
		pass(30 * time.Minute)
		assert.Equal(t, "1", now(p))
		assert.NoError(t, p.Err())
		pass(24 * time.Hour)
		require.Len(t, f.times(), 25)
		for hour, at := range f.times()[1:] {
			late := at - time.Duration(hour+1)*time.Hour
			assert.True(t, 0 <= late && late <= time.Minute, "%v", at)
		}
		assert.Equal(t, "25", now(p))
	})
}

func TestAProviderThatFailsIsAskedLessAndLessOften(t *testing.T) {
	poll(t, Options{MaxAge: 2 * time.Hour, Ahead: 24 * time.Hour}, func(n int) (Answer, error) {
		if n == 1 || n > 20 {
			return hourly(n)
		}
		return Answer{}, &fetch.StatusError{Code: http.StatusInternalServerError}
	}, func(p *Poller, f *fake) {
		pass(90 * time.Minute)
		assert.Equal(t, "1 stale", now(p))
		assert.EqualError(t, p.Err(), "the server answered 500 Internal Server Error; the last value holds for now")
		pass(2 * time.Hour)
		assert.Equal(t, "unknown", now(p), "two hours after the period")
		assert.EqualError(t, p.Err(), "the server answered 500 Internal Server Error; no value is known")
		asked := f.times()
		for i := 8; i < len(asked); i++ {
			assert.InDelta(t, 15.5, (asked[i] - asked[i-1]).Minutes(), 0.51)
		}
		pass(5 * time.Hour)
		assert.NoError(t, p.Err())
		assert.NotContains(t, now(p), "stale")
	})
}

func TestAProviderIsNotAskedBeforeItWantsToBe(t *testing.T) {
	for header, least := range map[string]time.Duration{
		"3600": time.Hour, "1": 30 * time.Second, "": 30 * time.Second, "soon": 30 * time.Second, "-5": 30 * time.Second,
		"999999999": 24 * time.Hour, "99999999999999999999": 30 * time.Second,
		"Sat, 01 Jan 2000 02:00:00 GMT": 2 * time.Hour, "Fri, 01 Jan 1999 00:00:00 GMT": 30 * time.Second, // bubbles begin in 2000
	} {
		poll(t, Options{}, func(int) (Answer, error) {
			return Answer{}, &fetch.StatusError{Code: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {header}}}
		}, func(_ *Poller, f *fake) {
			pass(least - time.Second)
			assert.Len(t, f.times(), 1, header)
			pass(min(least/10, time.Minute) + 2*time.Second)
			assert.Contains(t, []int{2, 3}, len(f.times()), header)
		})
	}
}

func TestAProviderThatHangsIsGivenUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{began: time.Now(), hangs: true}
		p := Poll(f, Options{Timeout: 10 * time.Second})
		pass(5 * time.Second)
		assert.NoError(t, p.Err(), "waiting")
		assert.Equal(t, "unknown", now(p), "and nobody waits for it")
		pass(6 * time.Second)
		assert.ErrorIs(t, p.Err(), fetch.ErrTimeout)
		pass(31 * time.Second)
		p.Close() // while it hangs
	})
}

func TestAProviderWithoutNewsIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, _ := hourly(1)
		f := &fake{began: time.Now(), answer: func(int) (Answer, error) {
			return Answer{Periods: first.Periods, Next: time.Now().Add(5 * time.Minute)}, nil
		}}
		p := Poll(f, Options{MaxAge: 2 * time.Hour, Ahead: time.Hour * 24})
		pass(90 * time.Minute)
		assert.Equal(t, "1 stale", now(p))
		assert.NoError(t, p.Err(), "half of its age is not over")
		pass(60 * time.Minute)
		assert.EqualError(t, p.Err(), ErrStale.Error()+"; the last value holds for now")
		pass(60 * time.Minute)
		assert.Equal(t, "unknown", now(p))
		assert.EqualError(t, p.Err(), ErrStale.Error()+"; no value is known")
		p.Close()
	})
}

func TestAnAnswerOfNoUseChangesNothing(t *testing.T) {
	span := func(from, until time.Duration) []Period {
		return []Period{{From: time.Now().Add(from), Until: time.Now().Add(until), Rate: 666}}
	}
	for want, periods := range map[error]func() []Period{
		ErrNoPeriods: func() []Period { return nil },
		ErrFuture:    func() []Period { return span(10*time.Minute, time.Hour) },
		ErrFar:       func() []Period { return span(-time.Hour, 25*time.Hour) },
		ErrEmpty:     func() []Period { return span(time.Minute, 0) },
		ErrOverlap:   func() []Period { return append(span(0, time.Hour), span(0, time.Hour)...) },
	} {
		poll(t, Options{MaxAge: 2 * time.Hour, Ahead: 24 * time.Hour}, func(n int) (Answer, error) {
			if n == 1 {
				return hourly(n)
			}
			return Answer{Periods: periods(), Next: time.Now().Add(time.Hour)}, nil
		}, func(p *Poller, _ *fake) {
			pass(75 * time.Minute)
			assert.Equal(t, "1 stale", now(p), want)
			assert.EqualError(t, p.Err(), want.Error()+"; the last value holds for now")
		})
	}
}

func TestWhatIsUnchangedIsAsGoodAsItWas(t *testing.T) {
	for _, bad := range []bool{false, true} {
		poll(t, Options{}, func(n int) (Answer, error) {
			if n > 1 {
				return Answer{Unchanged: true, Next: time.Now().Add(time.Minute)}, nil
			}
			answer, _ := hourly(n)
			answer.Next = time.Now().Add(time.Minute)
			if bad {
				answer.Periods = append(answer.Periods, answer.Periods...)
			}
			return answer, nil
		}, func(p *Poller, f *fake) {
			pass(30 * time.Minute)
			assert.Greater(t, len(f.times()), 2)
			if bad {
				assert.EqualError(t, p.Err(), ErrOverlap.Error()+"; no value is known")
			} else {
				assert.NoError(t, p.Err())
				assert.Equal(t, "1", now(p))
			}
		})
	}
}
