// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/otlptranslator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// metricsOfAHost returns what the receiver measures on a simulated machine.
func metricsOfAHost(t *testing.T) pmetric.Metrics {
	t.Helper()
	const pod = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f9619ff_8b86_4011_b42d_00c04fc964ff.slice/cri-containerd-"
	h := hostsim.New(t.TempDir())
	h.Zones["intel-rapl:0"] = &hostsim.Zone{Name: "package-0", Max: 262_143_328_850, Energy: 5_000_000}
	h.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 262_143_328_850, Energy: 1_000_000}
	h.Processes[70] = &hostsim.Process{Comm: "go", Exe: "/usr/local/go/bin/go", Parent: 1}
	h.Processes[71] = &hostsim.Process{Comm: "web", Exe: "/web", Parent: 1, Cgroup: pod + strings.Repeat("a1", 32) + ".scope"}
	h.Processes[72] = &hostsim.Process{Comm: "db", Exe: "/db", Parent: 1, Cgroup: "0::/system.slice/docker-" + strings.Repeat("b2", 32) + ".scope"}
	require.NoError(t, h.Render())
	cfg := energyreceiver.DefaultConfig()
	cfg.RootPath, cfg.CPUTime, cfg.Window = h.Root(), "procfs", 0
	cfg.Metrics.SystemCPUBusy.Enabled, cfg.Metrics.ProcessCPUTime.Enabled, cfg.Metrics.SystemdUnitEnergy.Enabled = true, true, true
	embedded, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{Logger: zap.NewNop()})
	require.NoError(t, err)
	require.NoError(t, embedded.Start(t.Context()))
	h.Run(time.Second, map[int]int64{70: 25, 71: 10, 72: 5})
	for _, z := range h.Zones {
		z.Energy += 12_345_678
	}
	require.NoError(t, h.Render())
	md, err := embedded.Collect(t.Context())
	require.NoError(t, err)
	require.NoError(t, embedded.Shutdown(t.Context()))
	return md
}

// exported returns metrics as the collector's Prometheus exporter serves them.
func exported(t *testing.T, md pmetric.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	found := map[string]*dto.MetricFamily{}
	labels := func(to []*dto.LabelPair, from pcommon.Map) []*dto.LabelPair {
		for key, value := range from.All() {
			name, err := (&otlptranslator.LabelNamer{}).Build(key)
			require.NoError(t, err)
			to = append(to, &dto.LabelPair{Name: &name, Value: new(value.AsString())})
		}
		return to
	}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			translated := otlptranslator.Metric{Name: m.Name(), Unit: m.Unit(), Type: otlptranslator.MetricTypeGauge}
			kind, points := dto.MetricType_GAUGE, pmetric.NumberDataPointSlice{}
			switch m.Type() {
			case pmetric.MetricTypeSum:
				translated.Type, kind, points = otlptranslator.MetricTypeMonotonicCounter, dto.MetricType_COUNTER, m.Sum().DataPoints()
			case pmetric.MetricTypeGauge:
				points = m.Gauge().DataPoints()
			default:
				continue
			}
			name, err := (&otlptranslator.MetricNamer{WithMetricSuffixes: true}).Build(translated)
			require.NoError(t, err)
			if found[name] == nil {
				found[name] = &dto.MetricFamily{Name: &name, Type: &kind}
			}
			for _, p := range points.All() {
				if p.Flags().NoRecordedValue() {
					continue
				}
				sample := &dto.Metric{
					Label: labels(labels(nil, rm.Resource().Attributes()), p.Attributes()), TimestampMs: new(p.Timestamp().AsTime().UnixMilli()),
				}
				if kind == dto.MetricType_COUNTER {
					sample.Counter = &dto.Counter{Value: new(p.DoubleValue()), CreatedTimestamp: timestamppb.New(p.StartTimestamp().AsTime())}
				} else {
					sample.Gauge = &dto.Gauge{Value: new(p.DoubleValue())}
				}
				found[name].Metric = append(found[name].Metric, sample)
			}
		}
	}
	return found
}

// served returns an endpoint with metric families, in the format that the client accepts.
func served(t *testing.T, found map[string]*dto.MetricFamily) string {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		format := expfmt.Negotiate(r.Header)
		w.Header().Set("Content-Type", string(format))
		encoder := expfmt.NewEncoder(w, format)
		for _, family := range found {
			assert.NoError(t, encoder.Encode(family))
		}
	})
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/metrics"
}

func textOf(t *testing.T, found map[string]*dto.MetricFamily) io.Reader {
	t.Helper()
	var b bytes.Buffer
	encoder := expfmt.NewEncoder(&b, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range found {
		require.NoError(t, encoder.Encode(family))
	}
	return &b
}

// figuresOf returns a snapshot without what differs between the ways to read it: NaN, fractions of
// milliseconds, and the order of rows.
func figuresOf(s *Snapshot) string {
	milli := func(at time.Time) time.Time { return at.UTC().Truncate(time.Millisecond) }
	rows := map[string]string{}
	for _, r := range s.Rows {
		rows[fmt.Sprint(r.Kind, r.Identity)] = fmt.Sprint(r.Energy, r.Start, r.Watts, r.GPUWatts, r.CPUTime, r.Ended)
	}
	text := fmt.Sprint(milli(s.At), s.Host, s.Kepler, s.Busy, s.Notes, s.Untimed, s.Partial, rows)
	for _, z := range s.Zones {
		z.At = milli(z.At)
		text += fmt.Sprintf("\n%+v", z)
	}
	for _, m := range s.Meters {
		text += fmt.Sprintf("\n%+v", m)
	}
	return text
}

func TestTheReceiverAndItsExporterHaveTheSameFigures(t *testing.T) {
	md := metricsOfAHost(t)
	direct := FromMetrics(md)
	scraped, err := Scrape(t.Context(), http.DefaultClient, served(t, exported(t, md)))
	require.NoError(t, err)
	assert.Equal(t, figuresOf(direct), figuresOf(scraped))
	fromText, err := FromPrometheus(textOf(t, exported(t, md)))
	require.NoError(t, err)
	for i := range direct.Zones { // the text format has none
		direct.Zones[i].Start = time.Time{}
	}
	for i := range direct.Rows {
		direct.Rows[i].Start = time.Time{}
	}
	assert.Equal(t, figuresOf(direct), figuresOf(fromText))

	require.Len(t, direct.Zones, 2)
	assert.Equal(t, power.Class{Zone: power.Package, Method: power.Measured}, direct.Zones[0].Class)
	assert.Equal(t, units.Energy(12_345_678), direct.Zones[0].Active+direct.Zones[0].Idle)
	assert.False(t, scraped.Zones[0].Start.IsZero(), "restarts are noticed by it")
	assert.Len(t, direct.Meters, 2)
	assert.InDelta(t, 0.4, direct.Busy, 0.3)
	kinds := map[Kind]int{}
	for i := range direct.Rows {
		kinds[direct.Rows[i].Kind]++
	}
	assert.Equal(t, 1, kinds[Pod])
	assert.GreaterOrEqual(t, kinds[Process], 3)
	for _, r := range direct.Rows {
		if r.Kind == Container && r.Identity[PodUID] != "" {
			assert.Equal(t, "containerd", r.Identity[Runtime])
		}
		if r.Kind == Process && r.Identity[PID] == "70" {
			assert.Equal(t, [2]string{"go", "/usr/local/go/bin/go"}, [2]string{r.Identity[Executable], r.Identity[Path]})
			assert.Positive(t, r.CPUTime)
		}
	}
}

func parsed(t *testing.T, text string) *Snapshot {
	t.Helper()
	s, err := FromPrometheus(strings.NewReader(text))
	require.NoError(t, err)
	return s
}

func recorded(t *testing.T, name string) *Snapshot {
	t.Helper()
	text, err := os.ReadFile("../../testdata/" + name)
	require.NoError(t, err)
	return parsed(t, string(text))
}

// rowOf returns the row of a kind with an attribute.
func rowOf(t *testing.T, s *Snapshot, kind Kind, attribute Attribute, value string) *Row {
	t.Helper()
	for i := range s.Rows {
		if r := &s.Rows[i]; r.Kind == kind && r.Identity[attribute] == value {
			return r
		}
	}
	require.Failf(t, "no row", "%v %s", kind, value)
	return nil
}

func TestAProcessThatEndedHasNoPower(t *testing.T) {
	s := recorded(t, "measured.prom")
	cc1 := rowOf(t, s, Process, Executable, "cc1plus")
	assert.True(t, cc1.Ended)
	assert.True(t, math.IsNaN(cc1.Watts))
	assert.Equal(t, units.Energy(15_500_000), cc1.Energy[0])
	a := Account{FromZero: true}
	a.Add(s)
	for _, e := range a.Workloads(Process).Rows {
		assert.NotEqual(t, "cc1plus", e.Identity[Executable])
	}
}

func TestWorkloadsHaveNoIdleEnergy(t *testing.T) {
	s := parsed(t, `# TYPE system_energy_joules_total counter
system_energy_joules_total{energy_state="active",energy_zone="package"} 10
system_energy_joules_total{energy_state="idle",energy_zone="package"} 30
# TYPE system_unattributed_energy_joules_total counter
system_unattributed_energy_joules_total{energy_state="active",energy_zone="package"} 4
system_unattributed_energy_joules_total{energy_state="idle",energy_zone="package"} 5
# TYPE process_energy_joules_total counter
process_energy_joules_total{process_pid="7",energy_state="active",energy_zone="package"} 6
process_energy_joules_total{process_pid="7",energy_state="idle",energy_zone="package"} 25
`)
	assert.True(t, s.Untimed)
	assert.Equal(t, []units.Energy{6_000_000}, s.Rows[0].Energy)
	assert.Equal(t, units.Energy(4_000_000), s.Zones[0].Unattributed)
}

func TestGPUsAreNotAddedToTheWholeMachine(t *testing.T) {
	s := parsed(t, `# TYPE system_energy_joules_total counter
system_energy_joules_total{energy_state="active",energy_zone="platform"} 10
system_energy_joules_total{energy_state="active",energy_zone="gpu"} 4
# TYPE process_energy_joules_total counter
process_energy_joules_total{process_pid="7",energy_zone="platform"} 10
process_energy_joules_total{process_pid="7",energy_zone="gpu"} 4
# TYPE process_power_watts gauge
process_power_watts{process_pid="7",energy_zone="platform"} 5
process_power_watts{process_pid="7",energy_zone="gpu"} 2
`)
	a := Account{FromZero: true}
	a.Add(s)
	rows := a.Workloads(Process).Rows
	require.Len(t, rows, 1)
	assert.Equal(t, units.Energy(10_000_000), a.Sum(rows[0].Amounts).Used)
	assert.InDelta(t, 5, rows[0].Watts, 0)
	assert.InDelta(t, 2, rows[0].GPUWatts, 0)
}

func TestConditionsAndTheExpectedErrorAreRead(t *testing.T) {
	s := parsed(t, `system_power_watts{energy_state="active",energy_zone="package",energy_method="modeled"} 10
system_power_watts{energy_state="active",energy_zone="dram",energy_method="measured"} 10
system_power_uncertainty_watts{energy_zone="dram",energy_method="measured"} 2
otelcol_receiver_energy_condition_ratio{condition="storage",receiver="energy"} 1
otelcol_receiver_energy_condition_ratio{condition="GPU usage",receiver="energy"} 0
otelcol_receiver_energy_model_expected_error_ratio{energy_zone="package",receiver="energy"} 0.74
`)
	require.Len(t, s.Notes, 1)
	assert.Contains(t, s.Notes[0], `"storage"`)
	assert.InDelta(t, 0.74, s.Zones[0].Uncertainty, 1e-9)
	assert.InDelta(t, 0.2, s.Zones[1].Uncertainty, 1e-9)

	collector := parsed(t, "system_power_watts{energy_state=\"active\",energy_zone=\"package\",energy_method=\"modeled\"} 10\n")
	collector.AddTelemetry(t.Context(), http.DefaultClient, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `otelcol_receiver_energy_condition_ratio{condition="storage",receiver="energy"} 1
otelcol_receiver_energy_model_expected_error_ratio{energy_zone="package",receiver="energy"} 0.74
`)
	}))
	assert.Equal(t, s.Notes, collector.Notes)
	assert.InDelta(t, 0.74, collector.Zones[0].Uncertainty, 1e-9)
}

func TestKeplersFiguresAreRead(t *testing.T) {
	s := recorded(t, "kepler.prom")
	assert.True(t, s.Kepler)
	assert.Equal(t, "node-7", s.Host)
	db := rowOf(t, s, Process, PID, "4711")
	assert.Equal(t, []units.Energy{250_000_000, 12_000_000}, db.Energy)
	assert.InDelta(t, 12.5, db.Watts, 1e-9)
	assert.Equal(t, 90*time.Second, db.CPUTime)
	assert.Equal(t, "shop", rowOf(t, s, Pod, PodName, "db-0").Identity[Namespace])
	for i := range s.Rows {
		assert.NotEqual(t, "99", s.Rows[i].Identity[PID], "it has terminated")
	}
	a := Account{FromZero: true}
	a.Add(s)
	assert.NoError(t, a.Workloads(Process).Err)
	assert.False(t, recorded(t, "measured.prom").Kepler)
}

func TestFailuresOfAnEndpointHaveTheirCause(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for want, endpoint := range map[string]string{
		"no process listens on 127.": closed.URL,
		"404":                        serve(t, http.NotFound),
		"not the Prometheus text":    serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>no</html>") }),
		"the parser failed":          serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "# TYPE A \n{}0") }),
		"not the Prometheus protobuf": serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
			_, _ = w.Write([]byte{0xff, 0xff, 0xff, 0xff, 0x7f, 0})
		}),
		"older than 0.10": serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "kepler_node_package_joules_total{mode=\"dynamic\",package=\"0\"} 5\n")
		}),
	} {
		_, err := Scrape(t.Context(), http.DefaultClient, endpoint)
		require.ErrorContains(t, err, want)
	}
}

// FuzzPrometheus reads arbitrary responses of an endpoint, and adds them up.
func FuzzPrometheus(f *testing.F) {
	for _, name := range []string{"measured.prom", "modeled.prom", "kepler.prom"} {
		text, err := os.ReadFile("../../testdata/" + name)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte("# TYPE process_power_watts gauge\nprocess_power_watts{process_pid=\"-1\",energy_zone=\"\"} NaN 9223372036854775807\n"))
	f.Add([]byte("# TYPE system_energy_joules_total counter\nsystem_energy_joules_total{energy_zone=\"\xff\x1b[2J\"} +Inf\n"))
	f.Add([]byte("# TYPE process_energy_joules_total histogram\nprocess_energy_joules_total_bucket{le=\"1\"} 1\n"))
	f.Add([]byte("# TYPE A \n{}0"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := FromPrometheus(bytes.NewReader(text))
		if err != nil {
			return
		}
		a := Account{}
		a.Add(s)
		a.Add(s)
		if len(s.Zones) == 0 {
			return
		}
		for kind := range NumKinds {
			for _, e := range a.Workloads(kind).Rows {
				assert.Zero(t, a.Sum(e.Amounts).Used, "the same snapshot twice has no energy")
			}
		}
	})
}

func TestOneMicrojouleOfAFigureIsKept(t *testing.T) {
	for joules, want := range map[float64]units.Energy{0.000001: 1, 1e9 + 0.000001: 1e15 + 1, -1: 0, math.NaN(): 0} {
		assert.Equal(t, want, (&point{value: joules}).energy())
	}
}

func TestFiguresOfTwoCollectionsArePartial(t *testing.T) {
	const energy = `system_energy_joules_total{energy_zone="package",energy_method="measured",energy_state=`
	const idle = energy + "\"idle\"} 5 1000\n"
	for text, partial := range map[string]bool{
		idle + energy + "\"active\"} 5 1000\nsystem_cpu_busy_ratio 0.5 1000\n": false,
		idle + energy + "\"active\"} 5 2000\nsystem_cpu_busy_ratio 0.5 2000\n": true,
		idle + energy + "\"active\"} 5 1000\nsystem_cpu_busy_ratio 0.5 2000\n": true,
		idle + energy + "\"active\"} 5 1000\n":                                 false,
		"system_cpu_busy_ratio 0.5 2000\n":                                     false,
	} {
		assert.Equal(t, partial, parsed(t, text).Partial, text)
	}
	s := parsed(t, "system_cpu_busy_ratio 0.5 2000\n")
	assert.InDelta(t, 0.5, s.Busy, 0)
	assert.Equal(t, int64(2), s.At.Unix(), "also without a zone")
	assert.True(t, parsed(t, "system_cpu_busy_ratio 0.5\n").Untimed)
}

// A series of a workload may end and another one begin in one collection, with the same attributes.
func TestTwoSeriesOfAWorkloadAreTwoRows(t *testing.T) {
	md := pmetric.NewMetrics()
	add := func(name, attribute, value string, joules float64, start int64) {
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr(attribute, value)
		m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName(name)
		points := m.SetEmptyGauge().DataPoints()
		if start > 0 {
			points = m.SetEmptySum().DataPoints()
		}
		p := points.AppendEmpty()
		p.Attributes().PutStr("energy.zone", "package")
		p.SetDoubleValue(joules)
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Unix(start, 0)))
		p.SetTimestamp(pcommon.NewTimestampFromTime(time.Unix(100, 0)))
	}
	add("system.energy", "host.name", "node", 9, 1)
	for _, s := range []struct{ joules, start int64 }{{3, 10}, {1, 50}, {2, 30}} {
		add("process.energy", "process.executable.name", "cc1", float64(s.joules), s.start)
		add("process.cpu.time", "process.executable.name", "cc1", float64(s.joules), s.start)
	}
	add("process.power", "process.executable.name", "cc1", 4, 0)
	s := FromMetrics(md)
	var got []string
	for _, r := range s.Rows {
		got = append(got, fmt.Sprint(r.Start.Unix(), r.Energy, r.CPUTime, r.Watts))
	}
	assert.Equal(t, []string{"10 [3000000] 3s NaN", "50 [1000000] 1s 4", "30 [2000000] 2s NaN"}, got, "the newest has the power")
	a := Account{FromZero: true}
	a.Add(s)
	rows := a.Workloads(Process).Rows
	require.Len(t, rows, 1)
	assert.Equal(t, units.Energy(6_000_000), rows[0].Amounts[0].Used)
}
