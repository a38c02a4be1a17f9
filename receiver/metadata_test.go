// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.yaml.in/yaml/v3"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// documentation is metadata.yaml.
type documentation struct {
	ScopeName          string                         `yaml:"scope_name"`
	SemConvVersion     string                         `yaml:"sem_conv_version"`
	ResourceAttributes map[string]documentedAttribute `yaml:"resource_attributes"`
	Attributes         map[string]documentedAttribute `yaml:"attributes"`
	Metrics            map[string]documentedMetric    `yaml:"metrics"`
	Telemetry          struct {
		Metrics map[string]documentedMetric `yaml:"metrics"`
	} `yaml:"telemetry"`
}

type documentedAttribute struct {
	Type    string   `yaml:"type"`
	Enum    []string `yaml:"enum"`
	Enabled *bool    `yaml:"enabled"` // of resource attributes
	Level   string   `yaml:"requirement_level"`
}

type documentedMetric struct {
	Enabled     bool     `yaml:"enabled"`
	Description string   `yaml:"description"`
	Unit        string   `yaml:"unit"`
	Attributes  []string `yaml:"attributes"`
	Sum         *struct {
		ValueType   string `yaml:"value_type"`
		Monotonic   bool   `yaml:"monotonic"`
		Temporality string `yaml:"aggregation_temporality"`
	} `yaml:"sum"`
	Gauge *struct {
		ValueType string `yaml:"value_type"`
	} `yaml:"gauge"`
}

func readDocumentation(t *testing.T) *documentation {
	t.Helper()
	text, err := os.ReadFile("metadata.yaml")
	require.NoError(t, err)
	doc := new(documentation)
	require.NoError(t, yaml.Unmarshal(text, doc))
	return doc
}

// everything is the setting that switches all metrics and resource attributes on but one.
func everything(doc *documentation, but string) string {
	var b strings.Builder
	b.WriteString("zones: [package, core, uncore, dram]\nprocesses: {min_energy: 0.5}\n" +
		"attribution: {split: base, base_time: 1s, rest_utilization: 1, idle: equal}\nmetrics:\n")
	for _, name := range slices.Sorted(maps.Keys(doc.Metrics)) {
		b.WriteString("  " + name + ": {enabled: " + onUnless(name == but) + "}\n")
	}
	b.WriteString("resource_attributes:\n")
	for _, name := range slices.Sorted(maps.Keys(doc.ResourceAttributes)) {
		b.WriteString("  " + name + ": {enabled: " + onUnless(name == but) + "}\n")
	}
	return b.String()
}

func onUnless(off bool) string {
	if off {
		return "false"
	}
	return "true"
}

// emitAll returns what the receiver emits on a host where there is something to say of every metric and
// every attribute. It is the same, to the bit, at each call with the same settings.
func emitAll(t *testing.T, settings string) pmetric.Metrics {
	t.Helper()
	n := newTestNode(t, func(c *Config) {
		root := c.RootPath
		*c = *mustLoad(t, settings)
		c.RootPath = root
	})
	h := n.host
	n.s.now = func() time.Time { return h.Booted.Add(h.Uptime) }
	for id, name := range map[string]string{"intel-rapl:1": "package-1", "intel-rapl:0:0": "core", "intel-rapl:0:1": "uncore",
		"intel-rapl:0:2": "dram", "intel-rapl:2": "psys"} {
		h.Zones[id] = &hostsim.Zone{Name: name, Max: 262_143_328_850}
	}
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000a.slice/cri-containerd-"
	h.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/usr/bin/app", Args: []string{"app", "--serve"}, Cgroup: "0::" + pod + idA + ".scope"}
	h.Processes[20] = &hostsim.Process{Parent: 1, Comm: "job", Exe: "/usr/bin/job", Args: []string{"job"}, Cgroup: docker(idB)}
	h.Processes[30] = &hostsim.Process{Parent: 1, Comm: "qemu-system-x86", Exe: "/usr/bin/qemu-system-x86_64",
		Args: []string{"/usr/bin/qemu-system-x86_64", "-name", "vm7", "-uuid", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"}}
	h.Processes[40] = &hostsim.Process{Parent: 2, Comm: "kworker/0:1", Kernel: true}
	n.s.readCPUs = func(string) ([]cpu.CPU, error) {
		return []cpu.CPU{{Number: 0, Vendor: "GenuineIntel", Model: "A CPU", Package: "0", Core: "0"}, {Number: 1}}, nil
	}
	n.start()
	for i := range uint64(2) { // more the second time, so that what was learned is static is not all
		for _, z := range h.Zones {
			if z.Name == "core" || z.Name == "uncore" {
				z.Energy += (5 + 15*i) * joule
			} else if !strings.HasPrefix(z.Name, "package-") {
				z.Energy += (30 + 30*i) * joule
			}
		}
		h.Zones["intel-rapl:0"].Energy += (20 + 20*i) * joule
		h.Zones["intel-rapl:1"].Energy += (20 + 20*i) * joule
		h.Run(10*time.Second, map[int]int64{1: 1, 10: 200, 20: 100, 30: 300, 40: 10})
		require.NoError(t, h.Render())
		md, err := n.s.scrape(t.Context())
		require.NoError(t, err)
		n.md = md
	}
	return n.md
}

// emitted is what the points of one metric have in common.
type emitted struct {
	metric     pmetric.Metric
	attributes map[string]pcommon.ValueType
	values     map[string][]string // of each attribute
}

func emittedByName(t *testing.T, md pmetric.Metrics) map[string]*emitted {
	t.Helper()
	out := map[string]*emitted{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				e := out[m.Name()]
				if e == nil {
					e = &emitted{m, map[string]pcommon.ValueType{}, map[string][]string{}}
					out[m.Name()] = e
				}
				require.Equal(t, e.metric.Description(), m.Description(), m.Name())
				require.Equal(t, e.metric.Unit(), m.Unit(), m.Name())
				require.Equal(t, e.metric.Type(), m.Type(), m.Name())
				require.Positive(t, dataPoints(m).Len(), m.Name())
				for _, p := range dataPoints(m).All() {
					for k, v := range p.Attributes().All() {
						e.attributes[k] = v.Type()
						e.values[k] = append(e.values[k], v.AsString())
					}
				}
			}
		}
	}
	return out
}

func TestEveryMetricIsAsDocumented(t *testing.T) {
	doc := readDocumentation(t)
	md := emitAll(t, everything(doc, ""))
	got := emittedByName(t, md)
	require.ElementsMatch(t, slices.Collect(maps.Keys(doc.Metrics)), slices.Collect(maps.Keys(got)))
	used := map[string]bool{}
	for _, own := range doc.Telemetry.Metrics { // TestEveryOwnMetricIsThereFromTheFirstScanOn holds them against what it tells
		for _, key := range own.Attributes {
			used[key] = true
		}
	}
	for name, want := range doc.Metrics {
		t.Run(name, func(t *testing.T) {
			e := got[name]
			assert.Equal(t, want.Description, e.metric.Description())
			assert.Equal(t, want.Unit, e.metric.Unit())
			switch {
			case want.Sum != nil:
				require.Nil(t, want.Gauge)
				require.Equal(t, pmetric.MetricTypeSum, e.metric.Type())
				assert.Equal(t, want.Sum.Monotonic, e.metric.Sum().IsMonotonic())
				assert.Equal(t, want.Sum.Temporality, strings.ToLower(e.metric.Sum().AggregationTemporality().String()))
				assert.Equal(t, "double", want.Sum.ValueType)
			default:
				require.NotNil(t, want.Gauge)
				require.Equal(t, pmetric.MetricTypeGauge, e.metric.Type())
				assert.Equal(t, "double", want.Gauge.ValueType)
			}
			for _, p := range dataPoints(e.metric).All() {
				assert.Equal(t, pmetric.NumberDataPointValueTypeDouble, p.ValueType())
				assert.Equal(t, want.Sum != nil, p.StartTimestamp() != 0, "a sum has a start, a gauge has none")
			}
			assert.ElementsMatch(t, want.Attributes, slices.Collect(maps.Keys(e.attributes)))
			for key, valueType := range e.attributes {
				used[key] = true
				a := doc.Attributes[key]
				assert.Equal(t, a.Type, typeName(valueType), key)
				assert.Equal(t, "required", a.Level, key)
				if len(a.Enum) > 0 {
					assert.Subset(t, a.Enum, e.values[key], key)
				}
			}
		})
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(doc.Attributes)), slices.Collect(maps.Keys(used)))
	for _, rm := range md.ResourceMetrics().All() {
		assert.Equal(t, "https://opentelemetry.io/schemas/"+doc.SemConvVersion, rm.SchemaUrl())
		for _, sm := range rm.ScopeMetrics().All() {
			assert.Equal(t, doc.ScopeName, sm.Scope().Name())
			assert.Equal(t, metadata.ScopeName, sm.Scope().Name())
		}
	}
}

func TestEveryResourceAttributeIsAsDocumented(t *testing.T) {
	doc := readDocumentation(t)
	types, values := map[string]string{}, map[string][]string{}
	for _, rm := range emitAll(t, everything(doc, "")).ResourceMetrics().All() {
		for k, v := range rm.Resource().Attributes().All() {
			types[k] = typeName(v.Type())
			values[k] = append(values[k], v.AsString())
		}
	}
	want := map[string]string{}
	for name, a := range doc.ResourceAttributes {
		want[name] = a.Type
		if len(a.Enum) > 0 {
			assert.Subset(t, a.Enum, values[name], name)
		}
	}
	assert.Equal(t, want, types)
}

func typeName(v pcommon.ValueType) string {
	switch v {
	case pcommon.ValueTypeStr:
		return "string"
	case pcommon.ValueTypeInt:
		return "int"
	default:
		return v.String()
	}
}

func TestOnlyWhatFewWantIsOffByDefault(t *testing.T) {
	var off []string
	doc := readDocumentation(t)
	for name, m := range doc.Metrics {
		if !m.Enabled {
			off = append(off, name)
		}
	}
	for name, a := range doc.ResourceAttributes {
		if !*a.Enabled {
			off = append(off, name)
		}
	}
	few := []string{
		"process.cpu.time", "container.cpu.time", "system.cpu.info", "system.cpu.utilization", "process.power.uncertainty",
		"container.power.uncertainty", "k8s.pod.power.uncertainty", "vm.power.uncertainty",
	}
	assert.ElementsMatch(t, append(few, "process.command_line"), off)

	var missing []string
	all, got := emittedByName(t, emitAll(t, everything(doc, ""))), emittedByName(t, emitAll(t, "zones: [package, core, uncore, dram]"))
	for name := range all {
		if got[name] == nil {
			missing = append(missing, name)
		}
	}
	assert.ElementsMatch(t, append(few, "system.energy.split.learned"), missing, "the default split has nothing to learn")
}

func TestSwitchingAMetricOffRemovesItAndNothingElse(t *testing.T) {
	doc := readDocumentation(t)
	all := emitAll(t, everything(doc, ""))
	for name := range doc.Metrics {
		want := pmetric.NewMetrics()
		all.CopyTo(want)
		want.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
			metrics := rm.ScopeMetrics().At(0).Metrics()
			metrics.RemoveIf(func(m pmetric.Metric) bool { return m.Name() == name })
			return metrics.Len() == 0
		})
		require.NotEqual(t, text(t, all), text(t, want), name)
		require.Equal(t, text(t, want), text(t, emitAll(t, everything(doc, name))), name)
	}
}

func TestSwitchingAResourceAttributeOffRemovesItAndNothingElse(t *testing.T) {
	doc := readDocumentation(t)
	all := emitAll(t, everything(doc, ""))
	for name := range doc.ResourceAttributes {
		want := pmetric.NewMetrics()
		all.CopyTo(want)
		for _, rm := range want.ResourceMetrics().All() {
			rm.Resource().Attributes().Remove(name)
		}
		require.NotEqual(t, text(t, all), text(t, want), name)
		require.Equal(t, text(t, want), text(t, emitAll(t, everything(doc, name))), name)
	}
}

func TestWithAllMetricsOffNothingIsEmitted(t *testing.T) {
	doc := readDocumentation(t)
	settings := strings.ReplaceAll(everything(doc, ""), "enabled: true", "enabled: false")
	n := newTestNode(t, func(c *Config) {
		root := c.RootPath
		*c = *mustLoad(t, settings)
		c.RootPath = root
	})
	n.start()
	n.run(10*joule, map[int]int64{1: 100})
	assert.Zero(t, n.md.ResourceMetrics().Len())
}

// text is all of the metrics, with the attributes of resources in alphabetical order.
func text(t *testing.T, md pmetric.Metrics) string {
	t.Helper()
	for _, rm := range md.ResourceMetrics().All() {
		sorted := pcommon.NewMap()
		attributes := rm.Resource().Attributes()
		raw := attributes.AsRaw()
		for _, k := range slices.Sorted(maps.Keys(raw)) {
			v, _ := attributes.Get(k)
			v.CopyTo(sorted.PutEmpty(k))
		}
		sorted.MoveTo(attributes)
	}
	b, err := new(pmetric.JSONMarshaler).MarshalMetrics(md)
	require.NoError(t, err)
	return string(b)
}

func TestResourcesAreFilteredByTheirAttributes(t *testing.T) {
	doc := readDocumentation(t)
	all := emitAll(t, everything(doc, ""))
	tests := []struct {
		name, attribute, filter string
		keep                    func(value string) bool // of resources that have the attribute
	}{
		{"include a value", "container.id", "metrics_include: [{strict: " + idA + "}]", func(v string) bool { return v == idA }},
		{"include what none has", "container.id", "metrics_include: [{strict: x}]", func(string) bool { return false }},
		{"exclude a value", "container.id", "metrics_exclude: [{strict: " + idA + "}]", func(v string) bool { return v != idA }},
		{"exclude by an expression", "process.executable.name", `metrics_exclude: [{regexp: "^(job|kworker.*)$"}]`,
			func(v string) bool { return v != "job" && !strings.HasPrefix(v, "kworker") }},
		{"include one of several", "process.executable.name", "metrics_include: [{strict: app}, {strict: other}]",
			func(v string) bool { return v == "app" || v == "other" }},
		{"include and exclude", "process.executable.path", `metrics_include: [{regexp: "^/usr/"}], metrics_exclude: [{strict: /usr/bin/job}]`,
			func(v string) bool { return strings.HasPrefix(v, "/usr/") && v != "/usr/bin/job" }},
		{"a number", "process.pid", `metrics_exclude: [{strict: "30"}]`, func(v string) bool { return v != "30" }},
		{"the node too", "energy.source", "metrics_exclude: [{strict: measured}]", func(v string) bool { return v != "measured" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := pmetric.NewMetrics()
			all.CopyTo(want)
			want.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
				v, ok := rm.Resource().Attributes().Get(tt.attribute)
				return ok && !tt.keep(v.AsString())
			})
			require.NotEqual(t, all.ResourceMetrics().Len(), want.ResourceMetrics().Len())
			settings := strings.Replace(everything(doc, ""), "  "+tt.attribute+": {enabled: true}", "  "+tt.attribute+": {enabled: true, "+tt.filter+"}", 1)
			assert.Equal(t, text(t, want), text(t, emitAll(t, settings)))
		})
	}
}

func TestEveryResourceAttributeCanBeFilteredBy(t *testing.T) {
	doc := readDocumentation(t)
	all := emitAll(t, everything(doc, ""))
	for name := range doc.ResourceAttributes {
		value := ""
		want := pmetric.NewMetrics()
		all.CopyTo(want)
		want.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
			v, ok := rm.Resource().Attributes().Get(name)
			if value == "" && ok {
				value = v.AsString()
			}
			return ok && v.AsString() == value
		})
		require.NotEmpty(t, value, name)
		settings := strings.Replace(everything(doc, ""), "  "+name+": {enabled: true}",
			"  "+name+": {enabled: true, metrics_exclude: [{strict: '"+value+"'}]}", 1)
		require.Equal(t, text(t, want), text(t, emitAll(t, settings)), name)
	}
}
