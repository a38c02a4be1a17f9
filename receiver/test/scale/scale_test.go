// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestANodeReportsTheComputedNumberOfPoints(t *testing.T) {
	for _, s := range []shape{
		{processes: 300, containers: 100},
		{processes: 300, containers: 100, withoutProcesses: true},
		{processes: 300, containers: 100, withoutPower: true},
		{processes: 30, containers: 10},
		{processes: 50},
	} {
		n := newNode(1, s, time.Unix(1_800_000_000, 0))
		for range 3 {
			assert.Equal(t, s.points(), n.collect(10*time.Second).DataPointCount(), "%+v", s)
		}
	}
	assert.Equal(t, 1822, shape{processes: 300, containers: 100}.points(), "as docs/production.md says")
}

func TestEveryResourceHasItsNodesName(t *testing.T) {
	n := newNode(7, shape{processes: 3, containers: 2}, time.Unix(1_800_000_000, 0))
	for _, rm := range n.collect(time.Second).ResourceMetrics().All() {
		name, _ := rm.Resource().Attributes().Get("host.name")
		assert.Equal(t, n.name, name.Str())
	}
}

func TestEnergyGoesOnFromCollectionToCollection(t *testing.T) {
	n := newNode(1, shape{processes: 30, containers: 10}, time.Unix(1_800_000_000, 0))
	sum := func(md pmetric.Metrics) (joules float64) {
		for _, rm := range md.ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				if m.Name() == "process.energy" {
					for _, p := range m.Sum().DataPoints().All() {
						joules += p.DoubleValue()
					}
				}
			}
		}
		return joules
	}
	first := sum(n.collect(10 * time.Second))
	require.Positive(t, first)
	assert.Greater(t, sum(n.collect(10*time.Second)), first)
}

func TestRefusedCollectionsAreResentAndTheSinkCountsAllPoints(t *testing.T) {
	s, err := startSink(0)
	require.NoError(t, err)
	defer s.close()
	answers := []int{http.StatusServiceUnavailable, http.StatusOK}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := answers[0]
		answers = answers[1:]
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		s.take(w, r)
	}))
	defer server.Close()
	var a agents
	m, err := a.pack(newNode(1, shape{processes: 5, containers: 2}, time.Now()).collect(time.Second))
	require.NoError(t, err)
	refused, err := post(server.Client(), server.URL, m.body, time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, 1, refused)
	require.NoError(t, s.wait(m.points))
	assert.EqualValues(t, a.points, s.points.Load())
	assert.EqualValues(t, a.packed, s.bytes.Load())

	answers = slices.Repeat([]int{http.StatusBadRequest}, 2)
	_, err = post(server.Client(), server.URL, m.body, time.Millisecond)
	assert.Error(t, err, "an invalid request is not sent again")
}

func TestAProgramsCPUTimeIsThatOfItsUserAndSystemTime(t *testing.T) {
	p, err := start(t.TempDir()+"/log", nil, "/bin/sh", "-c", "while :; do :; done")
	require.NoError(t, err)
	defer p.end()
	p.begin()
	for began := time.Now(); p.used().cpu < 50*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		require.Less(t, time.Since(began), patience)
	}
	assert.Positive(t, p.used().resident)
}
