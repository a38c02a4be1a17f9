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
)

// month is a simulated month, and the month before, of four nodes that report every minute.
type month struct {
	begin, from, to time.Time // of the month before, and of the month
	random          *rand.Rand
	nodes           []*monthNode
	now, before     map[string]float64 // truth in joules: active, idle, unattributed and namespaces
	births, samples int                // of pods and counters in both months
}

// monthNode is a node, and what happens to its collector.
type monthNode struct {
	name     string
	zones    map[string]bool // whether the energy of a zone is added
	counters map[string]*monthCounter
	pods     []*monthPod
	last     time.Time // of a report
	away     []Span    // without a collector
	forgets  bool      // totals begin at 0 after each absence: there is no storage
}

// Span is a time range.
type Span struct{ From, To time.Time }

type monthPod struct {
	namespace, name string
	watts           float64
	end             time.Time
}

// monthCounter is a counter of a node, with the points that were not sent yet.
type monthCounter struct {
	metric, zone, state string
	pod                 *monthPod // nil for counters of the node
	value, sent         float64   // sent is negative before the first report
	start               time.Time
	points              pmetric.NumberDataPointSlice
}

// newMonth returns October 2025. All collectors are away for four hours of the month, and each node
// for minutes or hours of both months.
func newMonth() *month {
	m := &month{
		from: time.Date(2025, 10, 1, 0, 0, 0, 0, time.UTC), to: time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC),
		random: rand.New(rand.NewPCG(45, 1)), now: map[string]float64{}, before: map[string]float64{},
	}
	m.begin = m.from.Add(m.from.Sub(m.to))
	for i, zones := range []map[string]bool{
		{"package": true, "dram": true, "core": false}, {"package": true, "gpu": true},
		{"package": true, "psys": false}, {"platform": true, "gpu": false},
	} {
		n := &monthNode{
			name: fmt.Sprintf("node-%d", i+1), zones: zones, counters: map[string]*monthCounter{}, forgets: i%2 == 0,
		}
		outage := m.from.Add(11*24*time.Hour + 2*time.Hour + 20*time.Minute)
		n.away = append(n.away, Span{outage, outage.Add(4 * time.Hour)})
		for at := m.begin; at.Before(m.to); at = at.Add(time.Duration(40+m.random.IntN(120)) * time.Hour) {
			n.away = append(n.away, Span{at, at.Add(time.Duration(2+m.random.IntN(12)) * time.Minute)})
		}
		long := m.from.Add(time.Duration(20+i)*24*time.Hour + time.Duration(i)*25*time.Minute)
		n.away = append(n.away, Span{long, long.Add(time.Duration(5+i) * time.Hour)})
		m.nodes = append(m.nodes, n)
	}
	return m
}

// run simulates, and sends the data of each node and day.
func (m *month) run(send func(pmetric.Metrics) error) error {
	for at := m.begin.Add(-2 * time.Hour); !at.After(m.to); at = at.Add(time.Minute) {
		for i, n := range m.nodes {
			m.step(n, i, at)
			if at.Minute() == 0 && at.Hour() == 0 || at.Equal(m.to) {
				if err := send(n.metrics()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const podAlphabet = "bcdfghjklmnpqrstvwxz2456789"

func (m *month) born(n *monthNode, namespace, workload string, watts float64, end time.Time) {
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = podAlphabet[m.random.IntN(len(podAlphabet))]
	}
	watts *= 0.5 + m.random.Float64()
	n.pods = append(n.pods, &monthPod{namespace, workload + "-7d4b9c6f5-" + string(suffix), watts, end})
	m.births++
}

// step simulates a minute of a node that ends at a time.
func (m *month) step(n *monthNode, number int, at time.Time) {
	busy := 0.2 // weekends and nights
	if day := at.Weekday(); day != time.Saturday && day != time.Sunday && at.Hour() >= 7 && at.Hour() < 19 {
		busy = 1
	}
	alive := n.pods[:0]
	for _, p := range n.pods {
		if p.end.After(at) {
			alive = append(alive, p)
		}
	}
	for i := len(alive); i < len(n.pods); i++ {
		n.pods[i] = nil
	}
	n.pods = alive
	if m.random.Float64() < 0.15*busy {
		m.born(n, "ci", "build", 40, at.Add(time.Duration(1+m.random.IntN(20))*time.Minute))
	}
	if m.random.Float64() < 0.002 {
		m.born(n, "ml", "train", 90, at.Add(time.Duration(60+m.random.IntN(900))*time.Minute))
	}
	if at.Weekday() == time.Tuesday && at.Hour() == 9 && at.Minute() == 7*number || len(n.pods) == 0 { // a release
		for range 3 {
			m.born(n, "shop", "web", 15, at.Add(7*24*time.Hour))
		}
	}
	if at.Before(m.from) && at.Hour() == 3 && at.Minute() == 0 {
		m.born(n, "old", "report", 30, at.Add(50*time.Minute))
	}
	m.count(n, at, busy)
}

// count adds the energy of a minute, and reports unless the collector is away.
func (m *month) count(n *monthNode, at time.Time, busy float64) {
	isAway := false
	for _, s := range n.away {
		isAway = isAway || at.After(s.From) && !at.After(s.To)
	}
	resets := isAway && n.forgets
	if resets {
		for _, c := range n.counters {
			c.value, c.start = 0, at
		}
	}
	live := map[string]bool{}
	for _, zone := range slices.Sorted(maps.Keys(n.zones)) {
		total := 0.0
		for _, p := range n.pods {
			watts := p.watts * busy
			if p.namespace != "shop" {
				watts = p.watts
			}
			total += watts
			n.add(live, resets, at, "k8s.pod.energy", zone, "", p, watts)
		}
		system := 5 + 3*m.random.Float64()
		n.add(live, resets, at, "system.unattributed.energy", zone, "active", nil, system)
		n.add(live, resets, at, "system.energy", zone, "active", nil, total+system+2)
		n.add(live, resets, at, "system.energy", zone, "idle", nil, 60)
	}
	for key, c := range n.counters {
		if !live[key] && c.points.Len() == 0 {
			delete(n.counters, key) // it was sent
		} else if live[key] && !isAway {
			m.report(n, c, at)
		}
	}
	if !isAway {
		n.last = at
	}
}

// add adds the energy of a minute to a counter, unless it resets.
func (n *monthNode) add(
	live map[string]bool, resets bool, at time.Time, metric, zone, state string, p *monthPod, watts float64,
) {
	key := metric + zone + state
	if p != nil {
		key += p.namespace + p.name
	}
	c := n.counters[key]
	if c == nil {
		c = &monthCounter{metric: metric, zone: zone, state: state, pod: p, sent: -1, start: at}
		c.points = pmetric.NewNumberDataPointSlice()
		n.counters[key] = c
	}
	if live[key] = true; !resets {
		c.value += watts * 60
	}
}

// report adds a point, and its increase to the truth if the node reported within the hour before.
func (m *month) report(n *monthNode, c *monthCounter, at time.Time) {
	m.samples++
	p := c.points.AppendEmpty()
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(c.start.Add(-time.Minute)))
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	p.SetDoubleValue(c.value)
	p.Attributes().PutStr("energy.zone", c.zone)
	p.Attributes().PutStr("energy.method", "measured")
	if c.state != "" {
		p.Attributes().PutStr("energy.state", c.state)
	}
	grown := c.value - max(0, c.sent)
	if c.value < c.sent {
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
	case c.pod != nil:
		truth[c.pod.namespace] += grown
	case c.metric == "system.energy":
		truth[c.state] += grown
	default:
		truth["unattributed"] += grown
	}
}

// metrics returns the points that were not sent yet.
func (n *monthNode) metrics() pmetric.Metrics {
	md := pmetric.NewMetrics()
	for _, c := range n.counters {
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr("host.name", n.name)
		if c.pod != nil {
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
		{"VictoriaMetrics 1.137, OTLP", MetricsQL, openVictoriaMetrics},
		{"VictoriaMetrics 1.137, OTLP without translation", MetricsQL, openVictoriaMetricsWithDots},
		{"Mimir 3.0, OTLP", PromQL, openMimirWithMonths},
	} {
		if !chosen(*storeNames, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			b, err := s.open(t, t.TempDir())
			if errors.Is(err, errLacks) {
				t.Skip(err)
			}
			require.NoError(t, err)
			m, began := newMonth(), time.Now()
			require.NoError(t, m.run(func(md pmetric.Metrics) error { return b.send(collection{}, md) }))
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
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	for what, truth := range map[string]map[string]float64{"month": m.now, "month before": m.before} {
		s := d.sums
		if what != "month" {
			s = d.Before
		}
		got := map[string]float64{"active": s.Active, "idle": s.Idle, "unattributed": s.Unattributed}
		for _, r := range d.Rows {
			got[r.Name] = r.Joules
			if what != "month" {
				got[r.Name] = r.Before
			}
		}
		for name, joules := range truth {
			off := got[name]/joules - 1
			t.Logf("%s, %s: %.0f J, %+.3f %%", what, name, joules, 100*off)
			assert.LessOrEqual(t, math.Abs(off), 0.005, "%s of the %s", name, what)
		}
	}
	t.Logf("coverage %v, before %v, notes %s", d.Coverage, d.Before.Coverage, strings.Join(d.Notes, "; "))
	outage := time.Date(2025, 10, 12, 3, 0, 0, 0, time.UTC)
	assert.Equal(t, []Span{{outage, outage.Add(3 * time.Hour)}}, d.Gaps)
}
