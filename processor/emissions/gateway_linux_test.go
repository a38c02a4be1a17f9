// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// sender is a machine that sends its collections at times of its own. The energy of its workloads is that of the node.
type sender struct {
	host      string
	at        time.Time
	node      int64            // µJ
	workloads map[string]int64 // µJ, by name and start time in seconds after the beginning
}

// collect lets some time pass, in which workloads come and go, and returns the collection.
// Some workloads use no energy in it.
func (s *sender) collect(random *rand.Rand, finals map[string]int64) pmetric.Metrics {
	before := s.at
	s.at = s.at.Add(10*time.Second + time.Duration(random.Int64N(int64(time.Second))))
	for name := range s.workloads {
		if random.IntN(10) == 0 {
			delete(s.workloads, name)
		}
	}
	if random.IntN(2) == 0 {
		since := before.Add(time.Duration(random.Int64N(int64(s.at.Sub(before))))).Sub(began)
		s.workloads[fmt.Sprint(len(finals), " ", int64(since))] = 0
	}
	md := pmetric.NewMetrics()
	for name := range s.workloads {
		if more := random.Int64N(2) * random.Int64N(1e9); more > 0 {
			s.workloads[name] += more
			s.node += more
		}
		var n, since int64
		_, _ = fmt.Sscan(name, &n, &since)
		s.add(md, "process.energy", name, began.Add(time.Duration(since)), s.workloads[name])
	}
	s.add(md, "system.energy", "node", began, s.node)
	return md
}

func (s *sender) add(md pmetric.Metrics, metric, name string, start time.Time, microjoules int64) {
	one := energy(s.at, float64(microjoules)/1e6, func(m pmetric.Metric, p pmetric.NumberDataPoint) {
		m.SetName(metric)
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	})
	attributes := one.ResourceMetrics().At(0).Resource().Attributes()
	attributes.PutStr("host.name", s.host)
	attributes.PutStr("name", name)
	one.ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
}

func TestMachinesAddUpBehindOneGateway(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	p := newTestProcessor(t)
	p.accounts = nil
	p.emissionsProcessor.intensity.Signal = dayIntensity(began, random)
	require.NoError(t, p.start(t.Context(), p))
	senders := make([]*sender, 5)
	for i := range senders {
		senders[i] = &sender{host: fmt.Sprint("host-", i), at: began.Add(time.Duration(i) * 1700 * time.Millisecond), workloads: map[string]int64{}}
	}
	node, workloads := map[string]int64{}, map[string]int64{} // µg, by host and by host and workload
	for range 400 {
		batch := pmetric.NewMetrics() // of some machines, in any order
		for _, i := range random.Perm(len(senders)) {
			md := senders[i].collect(random, workloads)
			if random.IntN(3) == 0 { // in two parts
				part := pmetric.NewMetrics()
				md.ResourceMetrics().At(md.ResourceMetrics().Len() - 1).MoveTo(part.ResourceMetrics().AppendEmpty())
				p.passTo(part, node, workloads)
				md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool { return rm.ScopeMetrics().Len() == 0 })
			}
			md.ResourceMetrics().MoveAndAppendTo(batch.ResourceMetrics())
		}
		p.passTo(batch, node, workloads)
	}
	assert.Empty(t, p.skipped())
	for host, whole := range node {
		sum, n := int64(0), int64(0)
		for name, value := range workloads {
			if name[:len(host)] == host {
				sum += value
				n++
			}
		}
		assert.LessOrEqual(t, sum, whole)
		assert.Greater(t, sum, whole-n)
		assert.Greater(t, n, int64(100))
	}
	assert.Len(t, node, len(senders))
}

// intervals notes the intervals that are asked for.
type intervals struct{ from, until []time.Time }

// Mean implements signal.Signal.
func (i *intervals) Mean(from, until time.Time) (signal.Mean, bool) {
	i.from, i.until = append(i.from, from), append(i.until, until)
	return signal.Mean{}, true
}

func TestTheFirstIntervalBeginsWithTheEarliestEnergy(t *testing.T) {
	p := newTestProcessor(t)
	asked := new(intervals)
	p.emissionsProcessor.intensity.Signal = asked
	require.NoError(t, p.start(t.Context(), p))
	md := energy(seconds(10), 1, func(_ pmetric.Metric, p pmetric.NumberDataPoint) {
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(seconds(7)))
	})
	node := energy(seconds(10), 1, func(m pmetric.Metric, p pmetric.NumberDataPoint) {
		m.SetName("system.energy")
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(seconds(2)))
	})
	node.ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
	p.pass(md)
	assert.Equal(t, &intervals{[]time.Time{seconds(2)}, []time.Time{seconds(10)}}, asked)
}

// passTo processes a batch and notes the emissions of each node and workload.
func (p *testProcessor) passTo(md pmetric.Metrics, node, workloads map[string]int64) {
	p.pass(md)
	for _, rm := range md.ResourceMetrics().All() {
		host, ok := rm.Resource().Attributes().Get("host.name")
		if !ok {
			continue
		}
		name, _ := rm.Resource().Attributes().Get("name")
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			value := int64(0)
			if m.Type() == pmetric.MetricTypeSum {
				value = int64(m.Sum().DataPoints().At(0).DoubleValue()*1e6 + 0.5)
			}
			switch m.Name() {
			case "system.emissions":
				node[host.Str()] = value
			case "process.emissions":
				workloads[host.Str()+name.Str()] = value
			}
		}
	}
}
