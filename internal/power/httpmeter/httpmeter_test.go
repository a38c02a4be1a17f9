// SPDX-License-Identifier: Apache-2.0

package httpmeter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powertest"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// device answers requests without a network: the transport of a client.
type device func(*http.Request) (string, error)

func (d device) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := d(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func source(t testing.TB, name, pointer, unit string, d device) Source {
	t.Helper()
	return Source{
		Name: name, Client: &http.Client{Transport: d}, URL: "http://plug.test/status", Pointer: mustPoint(t, pointer),
		Unit: mustLookup(t, unit), Kind: power.Platform, Every: 10 * time.Second, Timeout: 5 * time.Second,
	}
}

// start begins to ask by a first read, and waits for the first answers. Some may be there when the read returns.
func start(t testing.TB, m power.Meter) {
	t.Helper()
	_, _ = m.Read(t.Context(), power.Sample{At: time.Now()})
	synctest.Wait()
}

// pass lets time pass, and the requests of its last moment end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func readAll(t testing.TB, m power.Meter) map[string]power.Reading {
	t.Helper()
	readings, err := m.Read(t.Context(), power.Sample{At: time.Now()})
	require.NoError(t, err)
	return powertest.ByID(readings)
}

// poll asks a source once, within its timeout.
func poll(t testing.TB, s Source) (power.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.Timeout)
	defer cancel()
	return newReader(&s).Answer(ctx, power.Sample{})
}

func TestACounterIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		m := New([]Source{source(t, "feed", "/aenergy/total", "Wh", func(*http.Request) (string, error) {
			polls++
			return fmt.Sprintf(`{"aenergy": {"total": %d.%03d}}`, 98765+polls/1000, polls%1000), nil
		})})
		defer func() { require.NoError(t, m.Close()) }()
		start(t, m)
		pass(3000 * 10 * time.Second)
		r := readAll(t, m)["http:feed"]
		require.NoError(t, r.Err)
		assert.Equal(t, 3001, polls)
		assert.Equal(t, units.Energy(3000*3_600_000), r.Total, "3000 times 0.001 Wh")
		assert.Equal(t, power.Zone{
			ID: "http:feed", Name: "feed", Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs, MaxWatts: 30_000,
		}, *r.Zone)
	})
}

// A feed such as a query of Prometheus may add up the sockets of the machine.
func TestAPackageSourceAcceptsTheSumOfEightSockets(t *testing.T) {
	z := newReader(&Source{Name: "sum", Client: new(http.Client), Kind: power.Package}).zone
	assert.EqualValues(t, power.MaxPlatformWatts, z.MaxWatts)
}

func TestACounterThatStandsStillForAWeekIsFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		frozen := func(*http.Request) (string, error) { return "98765.4", nil }
		coarse := func(*http.Request) (string, error) { return fmt.Sprint(int(time.Since(began).Hours() / 160)), nil } // 6.25 W
		sources := []Source{
			source(t, "frozen", "", "kWh", frozen), source(t, "coarse", "", "kWh", coarse), source(t, "sleeps", "", "kWh", frozen),
		}
		for i := range sources {
			sources[i].Every = time.Hour
		}
		sources[2].Kind = power.GPU
		m := New(sources)
		defer func() { require.NoError(t, m.Close()) }()
		start(t, m)
		for hour := range 30 * 24 {
			pass(time.Hour)
			rs := readAll(t, m)
			require.NoError(t, rs["http:coarse"].Err, hour)
			require.NoError(t, rs["http:sleeps"].Err, hour)
			if hour+1 <= 7*24 {
				require.NoError(t, rs["http:frozen"].Err, hour)
			} else {
				require.EqualError(t, rs["http:frozen"].Err, "the energy counter is no longer updated", hour)
			}
		}
	})
}

func TestASourceThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := false
		hangs := func(r *http.Request) (string, error) {
			if !asked {
				asked = true
				return "50", nil
			}
			<-r.Context().Done()
			return "", r.Context().Err()
		}
		polls := 0
		answers := func(*http.Request) (string, error) {
			polls++
			return "50", nil
		}
		m := New([]Source{source(t, "hangs", "", "W", hangs), source(t, "answers", "", "W", answers)})
		defer func() { require.NoError(t, m.Close()) }()
		start(t, m)
		pass(65 * time.Second)
		began := time.Now()
		rs := readAll(t, m)
		assert.Equal(t, began, time.Now(), "a read does not wait")
		assert.Equal(t, 7, polls)
		assert.Equal(t, 60*50*units.Joule, rs["http:answers"].Total)
		require.NoError(t, rs["http:answers"].Err)
		assert.ErrorContains(t, rs["http:hangs"].Err, "no answer within 5s")
	})
}

func TestABadAnswerIsOneClearState(t *testing.T) {
	for body, want := range map[string]string{
		``:                 "the answer is not the expected JSON",
		`{"total": 5} {}`:  "the answer is not the expected JSON",
		`{"power": 5}`:     `pointer "/total": the answer has no member "total"`,
		`{"total": "NaN"}`: `pointer "/total": the value is not a number`,
		`{"total": -5}`:    `pointer "/total": the number is negative`,
	} {
		_, err := poll(t, source(t, "feed", "/total", "J", func(*http.Request) (string, error) { return body, nil }))
		assert.EqualError(t, err, want, body)
	}
}

func TestSourcesThatHaveNeverAnsweredAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := func(*http.Request) (string, error) { return "", io.EOF }
		answers := func(*http.Request) (string, error) { return "50", nil }
		m := New([]Source{source(t, "a", "", "W", ends), source(t, "b", "", "W", ends), source(t, "c", "", "W", answers)})
		defer func() { require.NoError(t, m.Close()) }()
		start(t, m)
		readings, err := m.Read(t.Context(), power.Sample{At: time.Now()})
		assert.EqualError(t, err, "http:a: the server ended the connection; http:b: the server ended the connection")
		assert.ErrorIs(t, err, fetch.ErrEnded)
		assert.Len(t, readings, 1)
	})
}

func TestNoErrorHasTheAddress(t *testing.T) {
	for name, d := range map[string]device{
		"broken":   func(*http.Request) (string, error) { return "", errors.New("broken") },
		"not JSON": func(r *http.Request) (string, error) { return r.URL.String(), nil },
		"a string": func(r *http.Request) (string, error) { return `"` + r.URL.String() + `"`, nil },
	} {
		for _, url := range []string{"http://user:secret@plug.test/?key=secret", "http://plug.test/secret\x7f"} {
			s := source(t, "feed", "", "W", d)
			s.URL = url
			_, err := poll(t, s)
			require.Error(t, err, name)
			assert.NotContains(t, err.Error(), "secret", name)
		}
	}
}

func TestACardThatIsNamedByItsPCIAddressIsThatCard(t *testing.T) {
	for name, located := range map[string]bool{"0000:65:00.0": true, "gpu-0": false} {
		z := newReader(&Source{Name: name, Client: new(http.Client), Kind: power.GPU}).zone
		if address, ok := z.Domain.PCIAddress(); ok != located || ok && address != name {
			t.Errorf("%+v", z)
		}
	}
}
