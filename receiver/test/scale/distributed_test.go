// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/energyreceiver/energyreceiver/internal/ledger"
)

var noon = time.Unix(1_800_000_000, 0)

func TestFaultsNameALayerANumberAndATime(t *testing.T) {
	faults, err := parseFaults("gateway@20s,store2@1m", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []fault{{gatewayLayer, 0, 20 * time.Second, time.Minute}, {storeLayer, 1, time.Minute, time.Minute}}, faults)
	for _, text := range []string{"gateway", "gateway@soon", "gateway0@1s", "node@1s", "gateway@-1s", "1@1s"} {
		_, err := parseFaults(text, 0)
		assert.Error(t, err, text)
	}
}

func TestComparisonCountsWhatIsMissingLostTwiceAndOther(t *testing.T) {
	const metric = "process_energy_joules_total"
	made := map[string]*track{
		metric + "{id=same}":    {metric: metric, counter: true, points: 3, before: 1, last: 5},
		metric + "{id=short}":   {metric: metric, counter: true, points: 3, last: 7},
		metric + "{id=twice}":   {metric: metric, counter: true, points: 3, last: 2},
		metric + "{id=gone}":    {metric: metric, counter: true, points: 4, last: 11},
		"other_power_watts{id}": {metric: "other_power_watts", points: 1},
	}
	stored := map[string]answer{
		metric + "{id=same}":  {points: 3, last: 5, increase: 4},
		metric + "{id=short}": {points: 2, last: 6, increase: 6},
		metric + "{id=twice}": {points: 5, last: 2, increase: 4},
		metric + "{id=new}":   {points: 1, last: 1},
	}
	c := comparison{metric: metric}
	c.compare(made, stored)
	assert.Equal(t, comparison{
		metric: metric, series: 4, missing: 1, extra: 1, otherLast: 1, otherIncrease: 3, points: 13, lost: 5, twice: 2,
		made: 25, stored: 13, madeInWindow: 24, storedInWindow: 14,
	}, c)
}

func TestARunIsWrongIfJoulesAreLostOrSamplesAreThereTwice(t *testing.T) {
	for c, wrong := range map[comparison]bool{
		{made: 5, stored: 5}:                      false,
		{made: 5, stored: 5, points: 10, lost: 3}: false,
		{made: 5, stored: 4.9}:                    true,
		{made: 5, stored: 5.1}:                    true,
		{made: 5, stored: 5, twice: 1}:            true,
	} {
		assert.Equal(t, wrong, c.isWrong(), "%+v", c)
	}
}

func TestBalanceOfANodeIsZeroWhereTheStoreHasAll(t *testing.T) {
	active, idle := `system_energy_joules_total{energy_state=active}`, `system_energy_joules_total{energy_state=idle}`
	process, nobody := `process_energy_joules_total{}`, `system_unattributed_energy_joules_total{}`
	made, stored := map[string]*track{}, map[string]answer{}
	for key, joules := range map[string]float64{active: 10, idle: 5, process: 9, nobody: 1} {
		name, _, _ := strings.Cut(key, "{")
		made[key], stored[key] = &track{metric: name}, answer{increase: joules}
	}
	assert.Equal(t, balance{}, balanceOf(made, stored, 15))
	delete(stored, process)
	worst := balanceOf(made, stored, 17)
	assert.Equal(t, balance{meters: -2, attribution: -9}, worst)
	worst.worst(balance{meters: 1, attribution: 12})
	assert.Equal(t, balance{meters: -2, attribution: 12}, worst)
}

func TestTruthCountsAPointThatIsSentAgainOnce(t *testing.T) {
	n := newNode(1, shape{processes: 3, containers: 2, births: 60}, noon)
	tr := newTruth(noon.Add(15 * time.Second))
	first := n.measure(10 * time.Second)
	require.NoError(t, tr.add(first))
	require.NoError(t, tr.add(first))
	n.engine.Outcome(ledger.Refused)
	for _, s := range tr.tracks {
		assert.Equal(t, 1, s.points)
	}
	tr.acknowledged()
	before := tr.increaseOf("system_energy_joules_total")
	assert.Zero(t, before, "all of it was before the window")
	require.NoError(t, tr.add(n.measure(10*time.Second)))
	assert.Positive(t, tr.increaseOf("system_energy_joules_total"))
}

func TestTruthConservesEnergyWhileProcessesAreBornAndEnd(t *testing.T) {
	n := newNode(1, shape{processes: 10, containers: 4, births: 30}, noon)
	tr := newTruth(noon)
	for range 30 {
		require.NoError(t, tr.add(n.collect(10*time.Second)))
	}
	stored, ended := map[string]answer{}, 0
	for key, s := range tr.tracks {
		stored[key] = answer{increase: s.increase()}
		if s.metric == "process_energy_joules_total" && s.at.Before(n.now) {
			ended++
		}
	}
	assert.Greater(t, ended, 100)
	b := balanceOf(tr.tracks, stored, n.metered())
	assert.InDelta(t, 0, b.meters, microjoule)
	assert.InDelta(t, 0, b.attribution, 1e-4, "sums of some thousand values")
}

func TestLateNodesLeaveRoundsOutAndNeverTheLast(t *testing.T) {
	s := schedule{start: noon, begin: noon.Add(-time.Hour), interval: 10 * time.Second, rounds: 10, speed: 10}
	assert.Equal(t, noon.Add(3*time.Second), s.due(3))
	assert.Equal(t, noon.Add(30*time.Second-time.Hour), s.at(3))
	assert.Equal(t, 1, s.next(0, noon.Add(500*time.Millisecond)))
	assert.Equal(t, 4, s.next(0, noon.Add(4500*time.Millisecond)))
	assert.Equal(t, 9, s.next(0, noon.Add(time.Hour)))
}

// A collection that is refused costs the points of its moment, and no energy: also not that of what has ended.
func TestARefusedCollectionLosesPointsAndNoJoules(t *testing.T) {
	received := newTruth(noon)
	requests, points := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests == 2 || requests == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		md, err := unpack(r)
		if assert.NoError(t, err) {
			assert.NoError(t, received.add(md))
			points += md.DataPointCount()
		}
	}))
	defer server.Close()
	a := &agent{node: newNode(1, shape{processes: 5, containers: 2, births: 60}, noon), truth: newTruth(noon), client: server.Client(), url: server.URL}
	for round := range 6 {
		acknowledged, err := a.collectAndSend(t.Context(), noon.Add(time.Duration(round+1)*20*time.Second), noon)
		require.NoError(t, err)
		assert.Equal(t, round != 1 && round != 2, acknowledged)
	}
	assert.Equal(t, 2, a.refused)
	lost := 0
	for key, made := range a.truth.tracks {
		stored := received.tracks[key]
		if made.counter {
			require.NotNil(t, stored, key)
			assert.InDelta(t, made.last, stored.last, 0, key)
		}
		if stored != nil {
			lost += made.points - stored.points
		}
	}
	assert.Positive(t, lost)
}

func unpack(r *http.Request) (pmetric.Metrics, error) {
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		return pmetric.Metrics{}, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return pmetric.Metrics{}, err
	}
	request := pmetricotlp.NewExportRequest()
	err = request.UnmarshalProto(text)
	return request.Metrics(), err
}

func TestAnswersOfAGatewayAreAcknowledgedRefusedOrRefusedForGood(t *testing.T) {
	status, body := http.StatusOK, []byte(nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(body) // the client reads it
	}))
	defer server.Close()
	export := func() (int, error) { return exportOnce(t.Context(), server.Client(), server.URL, nil) }
	_, err := export()
	require.NoError(t, err)
	partly := pmetricotlp.NewExportResponse()
	partly.PartialSuccess().SetRejectedDataPoints(7)
	body, err = partly.MarshalProto()
	require.NoError(t, err)
	rejected, err := export()
	require.NoError(t, err)
	assert.Equal(t, 7, rejected)
	for code, forGood := range map[int]bool{429: false, 503: false, 400: true, 500: true} {
		status, body = code, nil
		_, err := export()
		assert.Equal(t, forGood, errors.Is(err, errForGood), "%d: %v", code, err)
		assert.Error(t, err)
	}
}

func TestAServiceGoesToTheNextAddressWhereOneIsDead(t *testing.T) {
	living, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, living.Close()) }()
	go func() {
		for {
			c, err := living.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c) // until the client ends it
			_ = c.Close()
		}
	}()
	s, err := newService([]string{freeAddress(), living.Addr().String()})
	require.NoError(t, err)
	defer s.close()
	for range 4 {
		c, err := net.Dial("tcp", s.address())
		require.NoError(t, err)
		_, err = c.Write([]byte("ping"))
		require.NoError(t, err)
		got := make([]byte, 4)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		assert.Equal(t, "ping", string(got))
		require.NoError(t, c.Close())
	}
}

func TestAKilledProgramIsStartedAgainAndItsCPUTimeGoesOn(t *testing.T) {
	p, err := start(t.TempDir()+"/log", nil, "/bin/sh", "-c", "while :; do :; done")
	require.NoError(t, err)
	defer p.end()
	p.begin()
	for began := time.Now(); p.used().cpu < 50*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		require.Less(t, time.Since(began), patience)
	}
	first := p.pid()
	require.NoError(t, p.kill())
	assert.Zero(t, p.pid())
	spent := p.used().cpu
	assert.GreaterOrEqual(t, spent, 50*time.Millisecond)
	require.NoError(t, p.start())
	assert.NotEqual(t, first, p.pid())
	assert.GreaterOrEqual(t, p.used().cpu, spent)
}
