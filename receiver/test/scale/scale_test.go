// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/receiver"
	"golang.org/x/sys/unix"

	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// collect makes collections of a node of a shape, every 10 s of a simulated clock, and one at the
// end.
func collect(t *testing.T, s shape, collections int, next consumer.ConsumeMetricsFunc) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const interval = 10 * time.Second
		m, err := s.newMachine(t.TempDir(), time.Now())
		require.NoError(t, err)
		r, err := series.NewReceiver("node", m.Host.Root(), interval, func(c *energyreceiver.Config, _ *receiver.Settings) { s.configure(c, interval) }, next)
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
		for range collections {
			synctest.Wait()
			require.NoError(t, m.Advance(m.Now()+interval))
			time.Sleep(interval)
		}
		synctest.Wait()
		require.NoError(t, r.Shutdown(t.Context()))
	})
}

func TestANodeReportsTheComputedNumberOfPoints(t *testing.T) {
	for _, s := range []shape{
		{processes: 300, containers: 100},
		{processes: 30, containers: 10, withoutProcesses: true},
		{processes: 30, containers: 10, withoutPower: true},
		{processes: 20},
	} {
		var points []int
		collect(t, s, 4, func(_ context.Context, md pmetric.Metrics) error {
			points = append(points, md.DataPointCount())
			return nil
		})
		assert.Equal(t, s.points(), points[3], "%+v: %v, of which the first has zero-value points", s, points)
	}
	assert.Equal(t, 1822, shape{processes: 300, containers: 100}.points(), "as docs/production.md says")
}

// A rejected collection costs data points, and no energy.
func TestARejectedCollectionLosesPointsAndNoJoules(t *testing.T) {
	received := series.NewTruth()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := requests.Add(1); n == 3 || n == 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		md, err := series.Unpack(r.Body)
		if assert.NoError(t, err) {
			received.Add(md)
		}
	}))
	defer server.Close()
	a := &agent{truth: series.NewTruth(), client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, url: server.URL}
	collect(t, shape{processes: 5, containers: 2, births: 60}, 8, a.take)
	assert.Equal(t, 2, a.cost.refused)
	c := comparison{metric: series.Stored(series.Process, "J", true)}
	stored := map[string]answer{}
	for key, s := range received.Series {
		if s.Stored == c.metric {
			stored[key] = answer{points: len(s.Points), last: s.Last().Value, increase: s.Last().Value}
		}
	}
	c.compare(a.truth.Series, stored, window{end: time.Now()})
	assert.Positive(t, c.lost)
	assert.False(t, c.isWrong(), "%+v", c)
	assert.Equal(t, []int{0, 0, 0, 0}, []int{c.missing, c.extra, c.otherLast, c.otherIncrease})
}

func TestFaultsNameALayerANumberAndATime(t *testing.T) {
	faults, err := parseFaults("gateway@20s,store2@1m", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []fault{{gatewayLayer, 0, 20 * time.Second, time.Minute}, {storeLayer, 1, time.Minute, time.Minute}}, faults)
	for _, text := range []string{"gateway", "gateway@soon", "gateway0@1s", "node@1s", "gateway@-1s", "1@1s"} {
		_, err := parseFaults(text, 0)
		assert.Error(t, err, text)
	}
}

func TestComparisonCountsMissingLostRepeatedAndDifferentSeries(t *testing.T) {
	const metric = "process_energy_joules_total"
	begin := time.Unix(1_800_000_000, 0)
	made := func(joules ...float64) *series.Series {
		s := &series.Series{Stored: metric, Counter: true}
		for i, j := range joules {
			s.Points = append(s.Points, series.Point{At: begin.Add(time.Duration(i) * time.Second), Value: j})
		}
		return s
	}
	c := comparison{metric: metric}
	c.compare(map[string]*series.Series{
		"same": made(1, 3, 5), "short": made(0, 6, 7), "twice": made(0, 1, 2), "gone": made(0, 1, 4, 11), "other": {Stored: "process_power_watts"},
	}, map[string]answer{
		"same":  {points: 3, last: 5, increase: 4},
		"short": {points: 2, last: 6, increase: 6},
		"twice": {points: 5, last: 2, increase: 4},
		"new":   {points: 1, last: 1},
	}, window{begin, begin.Add(time.Minute)})
	assert.Equal(t, comparison{
		metric: metric, series: 4, missing: 1, extra: 1, otherLast: 1, otherIncrease: 3, points: 13, lost: 5, twice: 2,
		made: 25, stored: 13, madeInWindow: 24, storedInWindow: 14,
	}, c)
	for c, wrong := range map[comparison]bool{
		{made: 5, stored: 5, points: 10, lost: 3}: false,
		{made: 5, stored: 4.9}:                    true,
		{made: 5, stored: 5.1}:                    true,
		{made: 5, stored: 5, twice: 1}:            true,
	} {
		assert.Equal(t, wrong, c.isWrong(), "%+v", c)
	}
}

func TestAnswersOfAGatewayAreAcknowledgedRejectedOrPermanent(t *testing.T) {
	status, body := http.StatusOK, []byte(nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(body) // the client reads it
	}))
	defer server.Close()
	export := func() (int, error) { return series.Export(t.Context(), server.Client(), server.URL, nil) }
	partly := pmetricotlp.NewExportResponse()
	partly.PartialSuccess().SetRejectedDataPoints(7)
	var err error
	body, err = partly.MarshalProto()
	require.NoError(t, err)
	rejected, err := export()
	require.NoError(t, err)
	assert.Equal(t, 7, rejected)
	for code, forGood := range map[int]bool{429: false, 503: false, 400: true, 500: true} {
		status, body = code, nil
		_, err := export()
		assert.Equal(t, forGood, consumererror.IsPermanent(err), "%d: %v", code, err)
		assert.Error(t, err)
	}
}

func TestAServiceSkipsDeadAddresses(t *testing.T) {
	living := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pong") }))
	defer living.Close()
	s, err := newService([]string{series.FreeAddress(), living.Listener.Addr().String()})
	require.NoError(t, err)
	defer s.close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 4 {
		answer, err := client.Get("http://" + s.address())
		require.NoError(t, err)
		got, err := io.ReadAll(answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		assert.Equal(t, "pong", string(got))
	}
}

func TestAKilledProcessIsStartedAgainAndItsCPUTimeContinues(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	loop := exec.Command("/bin/sh", "-c", "while :; do :; done")
	p := &process{Program: &series.Program{Command: loop, Log: t.TempDir() + "/log"}, url: server.URL}
	require.NoError(t, p.Start(p.url))
	defer p.End(unix.SIGKILL)
	p.begin()
	require.NoError(t, series.Until("50 ms of CPU time", func() (bool, error) { return p.used().cpu >= 50*time.Millisecond, nil }))
	assert.Positive(t, p.used().resident)
	first := p.PID()
	var out bytes.Buffer
	require.NoError(t, fault{layer: gatewayLayer}.inflict(t.Context(), p, time.Now(), &out))
	assert.Contains(t, out.String(), "is started again")
	assert.NotEqual(t, first, p.PID())
	assert.GreaterOrEqual(t, p.used().cpu, 50*time.Millisecond)
}

func TestAQueueSendsUntilTheGatewayAccepts(t *testing.T) {
	s := &sink{}
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s.ServeHTTP(w, r)
	}))
	defer server.Close()
	a := &agent{client: server.Client(), url: server.URL, queued: true, retry: time.Millisecond}
	md := pmetric.NewMetrics()
	md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty()
	require.NoError(t, a.take(t.Context(), md), "acknowledged at once")
	a.sending.Wait()
	assert.Equal(t, 2, a.cost.refused)
	var out bytes.Buffer
	require.NoError(t, s.report(&out, 1))
	assert.Contains(t, out.String(), "1 of 1 points, in 1 requests")
}
