// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// month is a simulated month, and the month before, of four nodes that report every minute.
type month struct {
	begin, from, to time.Time // of the month before, and of the month
	random          *rand.Rand
	nodes           []*monthNode
	now, before     map[string]float64 // truth in joules: active, idle, unattributed and namespaces
	births, samples int                // of pods and counters in both months
}

// monthNode is a node with the interruptions of its collector.
type monthNode struct {
	name     string
	zones    map[string]bool // whether the energy of a zone is added
	counters map[string]*monthCounter
	pods     []monthPod
	last     time.Time // of a report
	away     []Span    // without a collector
	forgets  bool      // totals begin at 0 after each absence, because there is no storage
}

// Span is a time range.
type Span struct{ From, To time.Time }

type monthPod struct {
	namespace, name string
	watts           float64
	end             time.Time
}

// monthWorkloads have a namespace each.
var monthWorkloads = []struct {
	namespace, name string
	watts           float64 // at most, of a pod
	perMinute       float64 // pods that start on a node per minute
	minutes         int     // of a pod, at most
}{
	{"ci", "build", 60, 0.07, 20}, {"ml", "train", 135, 0.002, 900}, {"shop", "web", 20, 0.0005, 7 * 24 * 60},
	{"old", "report", 45, 0.001, 60}, // ends with the month before
}

// monthCounter is a counter of a node, with its unsent points.
type monthCounter struct {
	metric, zone, state string
	pod                 monthPod // without a name for counters of the node
	value, sent         float64
	start, live         time.Time // live is the last minute with energy
	points              pmetric.NumberDataPointSlice
}

// newMonth returns October 2025. All collectors are down for four hours of the month, and each
// node's for minutes or hours of both months.
func newMonth() *month {
	m := &month{
		from: time.Date(2025, 10, 1, 0, 0, 0, 0, time.UTC), to: time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC),
		random: rand.New(rand.NewPCG(45, 1)), now: map[string]float64{}, before: map[string]float64{},
	}
	m.begin = m.from.Add(m.from.Sub(m.to))
	outage := m.from.Add(11*24*time.Hour + 2*time.Hour + 20*time.Minute)
	for i, zones := range []map[string]bool{
		{"package": true, "dram": true, "core": false}, {"package": true, "gpu": true},
		{"package": true, "psys": false}, {"platform": true, "gpu": false},
	} {
		long := m.from.Add(time.Duration(20+i)*24*time.Hour + time.Duration(i)*25*time.Minute)
		n := &monthNode{
			name: fmt.Sprintf("node-%d", i+1), zones: zones, counters: map[string]*monthCounter{}, forgets: i%2 == 0,
			away: []Span{{outage, outage.Add(4 * time.Hour)}, {long, long.Add(time.Duration(5+i) * time.Hour)}},
		}
		for at := m.begin; at.Before(m.to); at = at.Add(time.Duration(40+m.random.IntN(120)) * time.Hour) {
			n.away = append(n.away, Span{at, at.Add(time.Duration(2+m.random.IntN(12)) * time.Minute)})
		}
		m.nodes = append(m.nodes, n)
	}
	return m
}

// run simulates, and sends the data of each node and day.
func (m *month) run(send func(pmetric.Metrics) error) error {
	for at := m.begin.Add(-24 * time.Hour); !at.After(m.to); at = at.Add(time.Minute) {
		for _, n := range m.nodes {
			m.startPods(n, at)
			m.count(n, at)
			if at.Minute() == 0 && at.Hour() == 0 {
				if err := send(n.metrics()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// startPods removes pods that have ended from a node, and adds new ones.
func (m *month) startPods(n *monthNode, at time.Time) {
	n.pods = slices.DeleteFunc(n.pods, func(p monthPod) bool { return !p.end.After(at) })
	for _, w := range monthWorkloads {
		if m.random.Float64() >= w.perMinute || w.namespace == "old" && at.After(m.from.Add(-time.Hour)) {
			continue
		}
		m.births++
		id := strings.NewReplacer("0", "b", "1", "c", "3", "d").Replace(fmt.Sprintf("%05d", m.births))
		n.pods = append(n.pods, monthPod{
			w.namespace, w.name + "-7d4b9c6f5-" + id, w.watts * (1 + 2*m.random.Float64()) / 3,
			at.Add(time.Duration(1+m.random.IntN(w.minutes)) * time.Minute),
		})
	}
}

// count adds the energy of a minute, and reports unless the collector is down.
func (m *month) count(n *monthNode, at time.Time) {
	isAway := slices.ContainsFunc(n.away, func(s Span) bool { return at.After(s.From) && !at.After(s.To) })
	for _, zone := range slices.Sorted(maps.Keys(n.zones)) {
		total := 0.0
		for _, p := range n.pods {
			total += p.watts
			n.add(at, monthCounter{metric: series.Pod, zone: zone, pod: p}, p.watts)
		}
		system := 5 + 3*m.random.Float64()
		n.add(at, monthCounter{metric: series.Unattributed, zone: zone, state: "active"}, system)
		n.add(at, monthCounter{metric: series.System, zone: zone, state: "active"}, total+system+2)
		n.add(at, monthCounter{metric: series.System, zone: zone, state: "idle"}, 60)
	}
	for key, c := range n.counters {
		switch {
		case isAway && n.forgets:
			c.value, c.start = 0, at
		case !c.live.Equal(at) && c.points.Len() == 0:
			delete(n.counters, key) // it was sent
		case c.live.Equal(at) && !isAway:
			m.report(n, c, at)
		}
	}
	if !isAway {
		n.last = at
	}
}

// add adds the energy of a minute to a counter.
func (n *monthNode) add(at time.Time, of monthCounter, watts float64) {
	key := of.metric + of.zone + of.state + of.pod.name
	c := n.counters[key]
	if c == nil {
		c = &of
		c.start, c.points = at.Add(-time.Minute), pmetric.NewNumberDataPointSlice()
		n.counters[key] = c
	}
	c.live = at
	c.value += watts * 60
}

// report adds a point. If the node reported within the hour before, it adds the increase to the
// truth.
func (m *month) report(n *monthNode, c *monthCounter, at time.Time) {
	m.samples++
	p := c.points.AppendEmpty()
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(c.start))
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	p.SetDoubleValue(c.value)
	p.Attributes().PutStr("energy.zone", c.zone)
	p.Attributes().PutStr("energy.method", "measured")
	if c.state != "" {
		p.Attributes().PutStr("energy.state", c.state)
	}
	grown := c.value - c.sent
	if grown < 0 {
		grown = c.value
	}
	c.sent = c.value
	truth := m.now
	if !at.After(m.from) {
		truth = m.before
	}
	if at.Sub(n.last) > time.Hour || !n.zones[c.zone] || !at.After(m.begin) {
		return
	}
	switch {
	case c.pod.name != "":
		truth[c.pod.namespace] += grown
	case c.metric == series.System:
		truth[c.state] += grown
	default:
		truth["unattributed"] += grown
	}
}

// metrics returns the unsent points.
func (n *monthNode) metrics() pmetric.Metrics {
	md := pmetric.NewMetrics()
	for _, c := range n.counters {
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr("host.name", n.name)
		if c.pod.name != "" {
			rm.Resource().Attributes().PutStr("k8s.pod.uid", c.pod.namespace+c.pod.name)
			rm.Resource().Attributes().PutStr("k8s.pod.name", c.pod.name)
			rm.Resource().Attributes().PutStr("k8s.namespace.name", c.pod.namespace)
		}
		metric := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		metric.SetName(c.metric)
		metric.SetUnit("J")
		sum := metric.SetEmptySum()
		sum.SetIsMonotonic(true)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		c.points.MoveAndAppendTo(sum.DataPoints())
	}
	return md
}

// TestMonths compares `energy report` of a month with the truth. `make stores` runs it.
func TestMonths(t *testing.T) {
	if *storeNames == "" {
		t.Skip("make stores runs it")
	}
	binary, err := filepath.Abs("../../../build/energy")
	require.NoError(t, err)
	if path := os.Getenv("INTEGRATION_ENERGY"); path != "" {
		binary = path
	}
	for _, s := range []store{
		{"Prometheus 3.15, OTLP", PromQL, openPrometheus()},
		{"Prometheus 3.15, OTLP without translation", PromQL, openUntranslated},
		{"VictoriaMetrics 1.137, OTLP", MetricsQL, openVictoriaMetrics("-opentelemetry.usePrometheusNaming")},
		{"VictoriaMetrics 1.137, OTLP without translation", MetricsQL, openVictoriaMetrics()},
		{"Mimir 3.0, OTLP", PromQL, openMimir( // ingesters accept and return old samples
			"-querier.query-ingesters-within=0", "-blocks-storage.tsdb.block-ranges-period=2400h", "-blocks-storage.tsdb.retention-period=9999h")},
	} {
		if !chosen(*storeNames, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			b, err := s.open(t, t.TempDir())
			if errors.Is(err, errLacks) {
				t.Skip("this machine", err)
			}
			require.NoError(t, err)
			m, began := newMonth(), time.Now()
			require.NoError(t, m.run(func(md pmetric.Metrics) error { return b.send(time.Time{}, md) }))
			require.NoError(t, b.settle())
			t.Logf("%d samples, of %d pods, sent in %v", m.samples, m.births, time.Since(began).Round(time.Second))
			m.check(t, binary, b.(interface{ address() string }).address())
		})
	}
}

// check compares the report of a server with the truth.
func (m *month) check(t *testing.T, binary, server string) {
	t.Helper()
	began := time.Now()
	cmd := exec.Command(binary, "report", "--prometheus", server, "--month", "2025-10", "--json")
	cmd.Env, cmd.Stderr = append(os.Environ(), "TZ=UTC"), os.Stderr
	text, err := cmd.Output()
	require.NoError(t, err)
	t.Logf("report of %d bytes in %v", len(text), time.Since(began).Round(time.Second))
	type sums struct {
		Active       float64 `json:"active_joules"`
		Idle         float64 `json:"idle_joules"`
		Unattributed float64 `json:"unattributed_joules"`
		Coverage     float64
	}
	var d struct {
		sums
		Before sums
		Gaps   []Span
		Notes  []string
		Rows   []struct {
			Name   string
			Joules float64
			Before float64 `json:"before_joules"`
			Parts  []struct{ Name string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	got := map[string]float64{"active": d.Active, "idle": d.Idle, "unattributed": d.Unattributed}
	before := map[string]float64{"active": d.Before.Active, "idle": d.Before.Idle, "unattributed": d.Before.Unattributed}
	for _, r := range d.Rows {
		got[r.Name], before[r.Name] = r.Joules, r.Before
		for _, w := range monthWorkloads {
			assert.True(t, w.namespace != r.Name || len(r.Parts) == 0 || len(r.Parts) == 1 && r.Parts[0].Name == w.name, r)
		}
	}
	for _, of := range []struct {
		what       string
		got, truth map[string]float64
	}{{"month", got, m.now}, {"month before", before, m.before}} {
		for name, joules := range of.truth {
			off := of.got[name]/joules - 1
			t.Logf("%s, %s: %.0f J, %+.3f %%", of.what, name, joules, 100*off)
			assert.LessOrEqual(t, math.Abs(off), 0.005, "%s of the %s", name, of.what)
		}
	}
	t.Logf("coverage %v, before %v, notes %s", d.Coverage, d.Before.Coverage, strings.Join(d.Notes, "; "))
	outage := time.Date(2025, 10, 12, 3, 0, 0, 0, time.UTC)
	assert.Equal(t, []Span{{outage, outage.Add(3 * time.Hour)}}, d.Gaps)
}
