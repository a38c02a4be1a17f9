// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powercap"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config/configtest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// everything enables all metrics and resource attributes but one.
func everything(but string) func(*Config) {
	return func(c *Config) {
		for name, enabled := range switches(c) {
			*enabled = name != but
		}
	}
}

// switches returns the setting enabled of each metric and resource attribute by its name.
func switches(c *Config) map[string]*bool {
	all := enabledBy(&c.Metrics)
	maps.Copy(all, enabledBy(&c.ResourceAttributes))
	return all
}

// enabledBy returns the addresses of the fields Enabled of a struct's fields by their keys.
func enabledBy(settings any) map[string]*bool {
	all := map[string]*bool{}
	v := reflect.ValueOf(settings).Elem()
	for i := range v.NumField() {
		all[v.Type().Field(i).Tag.Get("mapstructure")] = v.Field(i).FieldByName("Enabled").Addr().Interface().(*bool)
	}
	return all
}

// emitAll returns the metrics of a host with data for every metric and every attribute. Each call with the same
// settings returns the same bits.
func emitAll(t *testing.T, options ...func(*Config)) pmetric.Metrics {
	t.Helper()
	n := newTestNode(t, append([]func(*Config){func(c *Config) {
		root := c.RootPath
		*c = *configtest.Load(t, config.Default(),
			"zones: [package, core, uncore, dram]\nseries: {processes: {min_energy: 0.5}}\n"+
				"attribution: {static_power: base, idle: equal, weight: cpu_time}")
		c.RootPath, c.Attribution.Tuning = root, config.StaticTuning{Base: time.Second, Rest: 1}
	}}, options...)...)
	h := n.host
	n.machine.Now = func() time.Time { return h.Booted.Add(h.Uptime) }
	for id, name := range map[string]string{"intel-rapl:1": "package-1", "intel-rapl:0:0": "core", "intel-rapl:0:1": "uncore",
		"intel-rapl:0:2": "dram", "intel-rapl:2": "psys"} {
		h.Zones[id] = &hostsim.Zone{Name: name, Max: 262_143_328_850}
	}
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000a.slice/cri-containerd-"
	h.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/usr/bin/app", Args: []string{"app", "--serve"}, UID: 1000, Cgroup: "0::" + pod + idA + ".scope"}
	h.Processes[20] = &hostsim.Process{Parent: 1, Comm: "job", Exe: "/usr/bin/job", Args: []string{"job"}, Cgroup: docker(idB)}
	h.Processes[30] = &hostsim.Process{Parent: 1, Comm: "qemu-system-x86", Exe: "/usr/bin/qemu-system-x86_64",
		Args: []string{"/usr/bin/qemu-system-x86_64", "-name", "vm7", "-uuid", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"}}
	h.Processes[40] = &hostsim.Process{Parent: 2, Comm: "kworker/0:1", Kernel: true}
	h.Processes[50] = &hostsim.Process{Parent: 1, Comm: "solve", Exe: "/usr/bin/solve", Args: []string{"solve"}, UID: 1000, Cgroup: "0::" + slurmStep}
	podLogs(t, n, "shop_web_"+uidA)
	n.logLink(idA)
	n.named("var/lib/docker/containers/"+idB+"/config.v2.json", `{"Name":"/job","Config":{"Image":"job:1"}}`)
	n.machine.ReadCPUs = func(string) ([]divide.CPU, error) {
		return []divide.CPU{{Number: 0, Vendor: "GenuineIntel", Model: "A CPU", Package: "0", Core: "0"}, {Number: 1}}, nil
	}
	n.machine.OpenMeters = func(_ context.Context, cfg *Config, _ component.Host, _ component.TelemetrySettings) (*power.Set, error) {
		all := func(power.Kind) bool { return true }
		rapl := powercap.New(cfg.RootPath, all)
		return power.NewSet(power.Member{Name: "powercap", Meter: rapl}, power.Member{Name: "hwmon", Meter: new(cardMeter)}), nil
	}
	n.start()
	n.transferAll(pod+idA+".scope", scope(idB), 1)
	for i := range uint64(2) { // more the second time, so that not all power is static
		for _, z := range h.Zones {
			if z.Name == "core" || z.Name == "uncore" {
				z.Energy += (5 + 15*i) * joule
			} else if !strings.HasPrefix(z.Name, "package-") {
				z.Energy += (30 + 30*i) * joule
			}
		}
		h.Zones["intel-rapl:0"].Energy += (20 + 20*i) * joule
		h.Zones["intel-rapl:1"].Energy += (20 + 20*i) * joule
		h.Processes[20].CUser += 100
		h.CPU.User += 100
		h.Run(10*time.Second, map[int]int64{1: 1, 10: 200, 20: 100, 30: 300, 40: 10, 50: 100})
		require.NoError(t, h.Render())
		md, err := n.s.scrape(t.Context())
		require.NoError(t, err)
		n.md = md
	}
	return n.md
}

// cardMeter reads one graphics card and the whole machine, and cardUsage says how busy it was.
type (
	cardMeter struct{ readings [2]power.Reading }
	cardUsage struct{ usage [1]gpu.Usage }
)

var cardZone = power.Zone{
	ID: "0000:03:00.0:PPT", Name: "amdgpu", Vendor: "AMD", Kind: power.GPU, Method: power.Measured, Domain: "gpu-0000:03:00.0",
}

var machineZone = power.Zone{ID: "bmc", Name: "bmc", Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs}

func (m *cardMeter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	for i, zone := range []*power.Zone{&cardZone, &machineZone} {
		r := &m.readings[i]
		r.Zone, r.At, r.Total = zone, s.At, r.Total+units.Energy(i+1)*40*units.Joule
	}
	return m.readings[:], nil
}

func (u *cardUsage) Read(time.Time, *proc.Table) ([]gpu.Usage, error) {
	u.usage[0] = gpu.Usage{Domain: cardZone.Domain, Busy: units.Second, Total: 4 * units.Second}
	return u.usage[:], nil
}

func (*cardMeter) Usage() gpu.Source { return new(cardUsage) }

func (*cardMeter) Close() error { return nil }
func (*cardUsage) Close() error { return nil }

func TestEveryMetricHasTheAttributesOfItsDescription(t *testing.T) {
	got := map[string]map[string]bool{}
	for _, rm := range emitAll(t, everything("")).ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if got[m.Name()] == nil {
				got[m.Name()] = map[string]bool{}
			}
			for _, p := range dataPoints(m).All() {
				for key := range p.Attributes().All() {
					got[m.Name()][key] = true
				}
			}
		}
	}
	info := reflect.ValueOf(metadata.MetricsInfo)
	require.Len(t, got, info.NumField())
	for i := range info.NumField() {
		name := info.Field(i).FieldByName("Name").String()
		require.Contains(t, got, name)
		if want := info.Field(i).FieldByName("Attributes").Interface().([]string); slices.Contains(want, "otel.metric.overflow") {
			if strings.HasPrefix(name, "process.") {
				assert.Contains(t, got[name], "otel.metric.overflow", name)
			}
			got[name]["otel.metric.overflow"] = true
		}
		assert.ElementsMatch(t, info.Field(i).FieldByName("Attributes").Interface(), slices.Collect(maps.Keys(got[name])), name)
	}
}

func TestSpecializedMetricsAndAttributesAreOffByDefault(t *testing.T) {
	var off []string
	for name, enabled := range switches(config.Default()) {
		if !*enabled {
			off = append(off, name)
		}
	}
	assert.ElementsMatch(t, []string{
		"process.cpu.time", "container.cpu.time", "system.cpu.info", "system.cpu.busy", "hw.gpu.utilization", "system.power.uncertainty", "process.power.uncertainty",
		"container.power.uncertainty", "k8s.pod.power.uncertainty", "vm.power.uncertainty", "process.command_line",
		"process.parent_pid", "slurm.job.user", "systemd.unit.energy", "systemd.unit.power", "container.disk.io", "container.network.io", "k8s.pod.network.io",
	}, off)
}

func TestSwitchingAMetricOrAttributeOffRemovesItAndNothingElse(t *testing.T) {
	all := emitAll(t, everything(""))
	for name := range switches(config.Default()) {
		want := pmetric.NewMetrics()
		all.CopyTo(want)
		want.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
			rm.Resource().Attributes().Remove(name)
			metrics := rm.ScopeMetrics().At(0).Metrics()
			metrics.RemoveIf(func(m pmetric.Metric) bool { return m.Name() == name })
			return metrics.Len() == 0
		})
		require.NotEqual(t, text(t, all), text(t, want), name)
		require.Equal(t, text(t, want), text(t, emitAll(t, everything(name))), name)
	}
}

// text formats all metrics, with the attributes of resources in alphabetical order.
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

func TestEveryResourceAttributeCanBeFilteredBy(t *testing.T) {
	all := emitAll(t, everything(""))
	for name := range enabledBy(&config.Default().ResourceAttributes) {
		value := ""
		want := withoutResources(all, name, func(v string) bool {
			if value == "" {
				value = v
			}
			return v == value
		})
		require.NotEmpty(t, value, name)
		require.Equal(t, text(t, want), text(t, emitAll(t, everything(""), filtered(name, nil, []filter.Config{{Strict: value}}))), name)
	}
}

// withoutResources returns a copy without the resources that have an excluded attribute value.
func withoutResources(md pmetric.Metrics, attribute string, gone func(value string) bool) pmetric.Metrics {
	left := pmetric.NewMetrics()
	md.CopyTo(left)
	left.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		v, ok := rm.Resource().Attributes().Get(attribute)
		return ok && gone(v.AsString())
	})
	return left
}

// filtered sets the filters of a resource attribute.
func filtered(attribute string, include, exclude []filter.Config) func(*Config) {
	return func(c *Config) {
		v := reflect.ValueOf(&c.ResourceAttributes).Elem()
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("mapstructure") == attribute {
				setting := v.Field(i).Addr().Interface().(*metadata.ResourceAttributeConfig)
				setting.MetricsInclude, setting.MetricsExclude = include, exclude
			}
		}
	}
}
