// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
)

// pyroscope applies the rules by which Pyroscope converts OTLP profiles (pkg/ingester/otlp), one request for each
// Profiles: it refuses the whole request if a profile breaks one. It returns the total of each flame graph, by
// service and profile type.
type pyroscope struct {
	*testing.T
	totals map[string]int64
}

func (y pyroscope) ingest(pd pprofile.Profiles) {
	d := profiles.DictionaryOf(pd)
	for _, rp := range pd.ResourceProfiles().All() {
		for of := range profiles.All(rp) {
			// The profile's name is its period type. Without a period it is process_cpu, for all profiles.
			require.NotZero(y, of.Period())
			name := d.Text(of.PeriodType().TypeStrindex()) + ":" + d.Text(of.SampleType().TypeStrindex()) +
				":" + d.Text(of.SampleType().UnitStrindex())
			for _, s := range of.Samples().All() {
				require.Equal(y, 1, s.Values().Len(), "values of a sample")
				y.resolve(d, s)
				y.totals[y.serviceOf(rp.Resource().Attributes())+" "+name] += s.Values().At(0)
			}
		}
	}
}

// serviceOf returns the service of a resource. Only attributes that are strings count.
func (y pyroscope) serviceOf(a pcommon.Map) string {
	if v, ok := a.Get("service.name"); ok && v.Type() == pcommon.ValueTypeStr && v.Str() != "" {
		return v.Str()
	}
	if v, ok := a.Get("process.executable.name"); ok && v.Type() == pcommon.ValueTypeStr && v.Str() != "" {
		return "unknown_service:" + v.Str()
	}
	return "unknown_service"
}

// resolve looks up all indices of a sample: each must be in its table.
func (y pyroscope) resolve(d profiles.Dictionary, s pprofile.Sample) {
	isIn := func(i int32, n int) { require.True(y, i >= 0 && int(i) < n, "an index out of range") }
	for _, i := range s.AttributeIndices().All() {
		isIn(i, d.AttributeTable().Len())
	}
	if s.LinkIndex() != 0 {
		isIn(s.LinkIndex(), d.LinkTable().Len())
	}
	isIn(s.StackIndex(), d.StackTable().Len())
	for _, i := range d.StackTable().At(int(s.StackIndex())).LocationIndices().All() {
		isIn(i, d.LocationTable().Len())
		isIn(d.LocationTable().At(int(i)).MappingIndex(), d.MappingTable().Len())
		for _, line := range d.LocationTable().At(int(i)).Lines().All() {
			isIn(line.FunctionIndex(), d.FunctionTable().Len())
		}
	}
}

func TestPyroscopeShowsTheEnergyOfEachProgram(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Idle, cfg.Unattributed = true, true
	f := start(t, cfg)
	w := windowOf(0, 1000, 900_000)
	w.Kinds = append(w.Kinds, feed.Kind{Zone: "gpu"})
	w.Active, w.Idle, w.Unattributed = []uint64{900_000 + 300 + 14 + 600 + 40, 70}, []uint64{5_000, 0}, []uint64{40, 0}
	w.Processes[0].Energy = []uint64{900_000, 70}
	for i, name := range []string{"quiet", "kworker/7:1H", "kworker/u256:0"} {
		w.Processes = append(w.Processes, feed.Process{PID: int32(9 - i), Executable: name, Energy: []uint64{7, 0}, CPU: 1})
	}
	w.Processes[1].Energy[0] = 300
	f.publish(w)
	b := sampled(1, ns(10), ns(20)) // the resource has no name, as that of a kernel thread
	b.add(1, ns(30))
	b.last().SetStackIndex(1 << 20) // would have the batch refused
	b.add(5, ns(40))
	b.add(8, ns(40))
	b.add(1, ns(50))
	b.resource().Resource().Attributes().PutStr("service.name", "shop")
	b.resource().Resource().Attributes().PutStr("process.executable.name", "a")
	eachProfile(b.Profiles, func(of pprofile.Profile) { of.SetPeriod(50_000_000) })
	f.consume(b)
	f.end()
	y := pyroscope{t, map[string]int64{}}
	for _, pd := range f.sink.AllProfiles() {
		y.ingest(pd)
	}
	const energy = " cpu:energy:microjoules"
	assert.Equal(t, map[string]int64{
		"a" + energy: 600_000 + 70, "shop" + energy: 300_000, "quiet" + energy: 300, "kworker" + energy: 14,
		"[short-lived processes]" + energy: 600, "[idle]" + energy: 5_000, "[unattributed]" + energy: 40,
	}, y.totals)
}
