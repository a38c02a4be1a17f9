// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// exactSource reports that it accounts for all CPU time.
type exactSource struct {
	*cpu.Procfs
}

func (exactSource) Traits() cpu.Traits {
	return cpu.Traits{Name: "exact", Traits: proc.Traits{Exact: true, ChildTimes: true}}
}

// openAs returns a function for the scraper's open that opens the test's source.
func openAs(open func(o cpu.Options) cpu.Source) func(cpu.Options) (*cpu.Reader, error, error) {
	return func(o cpu.Options) (*cpu.Reader, error, error) { return cpu.NewReader(open(o), o), nil, nil }
}

// reads makes the node start with a source that reads procfs.
func (n *testNode) reads(procfs **cpu.Procfs, source cpu.Source) {
	n.opens(func(o cpu.Options) cpu.Source {
		*procfs = cpu.NewProcfs(o)
		return source
	})
}

// replaceSource makes procfs replace a source that fails.
func (n *testNode) replaceSource(source *failingSource) {
	n.t.Helper()
	source.fail = errRefused
	for range 3 {
		n.run(0, nil)
	}
	require.True(n.t, n.isReplaced())
	n.run(0, nil)
}

// isReplaced reports whether procfs has replaced the CPU time source.
func (n *testNode) isReplaced() bool {
	return n.logs.FilterMessage("CPU time source replaced by procfs").Len() > 0
}

// openExact makes the node start with an exact source.
func (n *testNode) openExact() {
	n.opens(func(o cpu.Options) cpu.Source { return exactSource{cpu.NewProcfs(o)} })
}

// opens makes the node start with a source.
func (n *testNode) opens(source func(o cpu.Options) cpu.Source) {
	n.machine.OpenCPU = openAs(source)
}

// openOnly returns a function that opens these meters only.
func openOnly(members ...power.Member) func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
	return func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
		return power.NewSet(members...), nil
	}
}

// useMeters makes the node start with these meters only.
func (n *testNode) useMeters(members ...power.Member) {
	n.machine.OpenMeters = openOnly(members...)
}

// tally follows the sum of a metric over all series that ever existed.
type tally struct {
	n      *testNode
	metric string
	with   []string
	values map[string]float64
}

// last sets the baseline to the current values of the metric's series.
func (n *testNode) last(metric string, with ...string) *tally {
	c := &tally{n, metric, with, map[string]float64{}}
	c.grown()
	return c
}

// grown returns how much the series grew since the last call.
func (c *tally) grown() (by float64) {
	for _, p := range c.n.points(c.metric, nil, c.with...) {
		by += p.value - c.values[p.series]
		c.values[p.series] = p.value
	}
	return by
}

func TestTimeOfFailedScansIsUnattributedWhenProcfsTakesOver(t *testing.T) {
	model := func(c *Config) {
		c.Model = configoptional.Some(linear(40, 120))
	}
	// In ten seconds the sensor counts 100 J, and the model 10 s of 88 W.
	for name, c := range map[string]struct {
		edit  func(*Config)
		total float64
	}{
		"powercap": {func(*Config) {}, 100},
		"model":    {func(c *Config) { model(c); c.Meters.Use = only() }, 880},
	} {
		for _, windows := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", windows ", windows), func(t *testing.T) {
				n := newTestNode(t, c.edit)
				n.process(10, "app")
				source := new(failingSource)
				n.reads(&source.Procfs, source)
				if open := n.machine.OpenCPU; windows {
					n.host.Files = map[string]string{"sys/devices/system/cpu/online": "0\n"}
					n.machine.OpenCPU = func(o cpu.Options) (reader *cpu.Reader, rejected, err error) {
						o.Window = cpu.TickWindow / 2
						return open(o)
					}
				}
				n.start()
				n.run(100*joule, nil)
				active, idle := n.last("system.energy", "energy.state=active"), n.last("system.energy", "energy.state=idle")
				process, unattributed := n.last("process.energy"), n.last("system.unattributed.energy")
				used := map[int]int64{10: 600}

				source.fail = errRefused
				for range 3 {
					n.run(100*joule, used)
				}
				require.True(t, n.isReplaced())
				assert.InDelta(t, 0.6*3*c.total, active.grown(), 1e-3, "nothing is lost")
				assert.InDelta(t, 0.4*3*c.total, idle.grown(), 1e-3, "and split by the utilization of /proc/stat")
				assert.InDelta(t, 0.6*3*c.total, unattributed.grown(), 1e-3)
				assert.Zero(t, process.grown(), "and attributed to no process")

				n.run(100*joule, used)
				assert.InDelta(t, c.total, active.grown()+idle.grown(), 1e-3)
				assert.InDelta(t, 0.6*c.total, process.grown(), 1e-3, "procfs attributes the time since")
				assert.Zero(t, unattributed.grown())
			})
		}
	}
}

// shortLivedSource is an exact source whose next scan reports short-lived processes of some cgroups.
type shortLivedSource struct {
	*cpu.Procfs
	in []proc.Charge
}

func (*shortLivedSource) Traits() cpu.Traits {
	return cpu.Traits{Name: "exact", Traits: proc.Traits{Exact: true, ChildTimes: true}}
}

func (u *shortLivedSource) Scan(t *proc.Table, of cpu.Request) error {
	err := u.Procfs.Scan(t, of)
	t.Charges = append(t.Charges, u.in...)
	u.in = nil
	return err
}

func TestAContainerThatLivedBetweenTwoScansHasItsEnergy(t *testing.T) {
	const pod = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
	n := newTestNode(t)
	n.process(10, "app", docker(idA))
	source := new(shortLivedSource)
	n.reads(&source.Procfs, source)
	n.start()
	began := n.stamp()
	source.in = []proc.Charge{
		{Slot: -1, Path: "/kubepods/burstable/pod" + pod + "/" + idB, CPU: 100 * cpu.Tick},
		{Slot: -1, Path: "/system.slice/docker-" + idA + ".scope/init", CPU: 200 * cpu.Tick}, // in a child cgroup without live processes
		{Slot: -1, Path: "/system.slice/cron.service", CPU: 300 * cpu.Tick},
	}
	n.runUnseen(600)
	n.run(100*joule, map[int]int64{10: 100})
	short := n.one("container.energy", "container.id="+idB, "k8s.pod.uid="+pod)
	assert.InDelta(t, 10, short.value, 1e-6)
	assert.Equal(t, began, short.start)
	assert.InDelta(t, 10, n.one("k8s.pod.energy", "k8s.pod.uid="+pod).value, 1e-6)
	n.expect(energies{"A": 20 + 10, "10": 10, "others": 60, "unattributed": 0}, 1e-6)
	n.run(0, nil)
	assert.Empty(t, n.points("container.energy", attrs{"container.id": idB}), "gone once its end was acknowledged")
	assert.NotEmpty(t, n.points("container.energy", attrs{"container.id": idA}))
	t.Attr("terminated", fmt.Sprintf("%.6g J", short.value))
}
