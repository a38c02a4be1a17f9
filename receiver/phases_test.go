// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.uber.org/goleak"

	"github.com/energyreceiver/energyreceiver/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// newPhasesNode returns a node that takes marks from a socket.
func newPhasesNode(t *testing.T, edit ...func(*Config)) (n *testNode, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "phases")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	edit = append(edit, func(c *Config) { c.Phases = configoptional.Some(PhasesConfig{Socket: socket, Max: 3}) })
	n = newTestNode(t, edit...)
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	return n, socket
}

// spend lets time pass, in which the package uses energy and process 10 a part of the CPU time.
func (n *testNode) spend(d time.Duration, joules, busy float64) {
	n.t.Helper()
	n.host.Run(d, map[int]int64{10: int64(busy * float64(d/hostsim.Tick))})
	n.host.Zones["intel-rapl:0"].Energy += uint64(joules * joule)
	require.NoError(n.t, n.host.Render())
}

func send(t *testing.T, socket, line string) {
	t.Helper()
	m, err := phase.Parse(line)
	require.NoError(t, err)
	require.NoError(t, phase.Send(t.Context(), socket, m))
}

// phaseEnergy returns the energy of a phase in joules, active and idle.
func (n *testNode) phaseEnergy(name string) (active, idle float64) {
	n.t.Helper()
	return n.one("system.phase.energy", "energy.phase="+name, "energy.state=active").value,
		n.one("system.phase.energy", "energy.phase="+name, "energy.state=idle").value
}

func TestEnergyIsDividedAtMarks(t *testing.T) {
	n, socket := newPhasesNode(t)
	n.start()
	began := n.s.ledger.Last().Stamp
	n.spend(4*time.Second, 40, 0.5)
	send(t, socket, "begin build")
	built := n.s.ledger.Last().Stamp
	n.spend(3*time.Second, 90, 1)
	send(t, socket, "begin test")
	n.spend(2*time.Second, 10, 0.1)
	send(t, socket, "begin build")
	n.spend(time.Second, 30, 1)
	send(t, socket, "end")
	n.spend(time.Second, 8, 0.25)
	n.scrape()
	for name, want := range map[string][3]float64{"none": {20 + 2, 20 + 6, 5}, "build": {120, 0, 4}, "test": {1, 9, 2}} {
		active, idle := n.phaseEnergy(name)
		assert.InDelta(t, want[0], active, 1e-6, name)
		assert.InDelta(t, want[1], idle, 1e-6, name)
		assert.InDelta(t, want[2], n.one("system.phase.time", "energy.phase="+name).value, 1e-9, name)
	}
	assert.InDelta(t, n.sum("system.energy", nil), n.sum("system.phase.energy", nil), 1e-6)
	point := n.one("system.phase.energy", "energy.phase=build", "energy.state=active", "energy.zone=package", "energy.source=measured")
	assert.Equal(t, built, point.start)
	assert.Equal(t, began, n.one("system.phase.time", "energy.phase=none").start)
	n.refuse = errRefused
	n.run(10*joule, nil)
	n.refuse = nil
	n.run(10*joule, nil)
	_, idle := n.phaseEnergy("none")
	assert.InDelta(t, 26+20, idle, 1e-6, "a delivery that is refused loses nothing")
}

func TestWithoutTheSettingThereAreNoPhases(t *testing.T) {
	n := newTestNode(t)
	n.start()
	n.run(100*joule, nil)
	assert.Empty(t, n.points("system.phase.energy", nil))
	assert.Empty(t, n.points("system.phase.time", nil))
	assert.Empty(t, n.s.phases.list)
}

func TestAMeterThatIsReadSeldomTellsTheEnergyOfTheRightPhases(t *testing.T) {
	n, socket := newPhasesNode(t)
	m := &slowMeter{reading: power.Reading{Zone: &power.Zone{ID: "slow", Name: "package-0", Kind: power.Package, Source: power.Measured}}}
	n.s.openMeters = func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
		return power.NewSet(power.Member{Name: string(MeterPowercap), Meter: m}), nil
	}
	n.start()
	n.spend(time.Second, 0, 0.5)
	send(t, socket, "begin build")
	n.spend(2*time.Second, 0, 1)
	send(t, socket, "begin test")
	n.spend(3*time.Second, 0, 0)
	send(t, socket, "begin late") // the meter has news: 300 J of 6 s, in which 2.5 s were busy
	n.scrape()
	for name, want := range map[string][2]float64{"none": {25, 175. / 6}, "build": {100, 175. / 3}, "test": {0, 175. / 2}, "late": {0, 0}} {
		active, idle := n.phaseEnergy(name)
		assert.InDelta(t, want[0], active, 1e-5, name)
		assert.InDelta(t, want[1], idle, 1e-5, name)
	}
	assert.InDelta(t, 300, n.sum("system.phase.energy", nil), 1e-6)
}

func TestMarksInQuickSuccessionMeasureNoMoreThanAHundredTimesASecond(t *testing.T) {
	n, _ := newPhasesNode(t)
	n.start()
	before := n.s.cpu.Table().Scans()
	for i := range 1000 {
		n.host.Uptime += time.Millisecond
		require.NoError(t, n.s.mark(phase.Mark{Phase: fmt.Sprint(i % 3)}))
	}
	assert.LessOrEqual(t, n.s.cpu.Table().Scans()-before, uint64(100))
	n.spend(9*time.Second, 90, 0)
	n.scrape()
	assert.InDelta(t, 90, n.sum("system.phase.energy", nil), 1e-6)
	assert.InDelta(t, 10, n.sum("system.phase.time", nil), 1e-6, "every millisecond is some phase's")
	assert.InDelta(t, 0.333, n.one("system.phase.time", "energy.phase=1").value, 1e-6)
}

func TestMarksCostATwentiethOfTheTimeAtMost(t *testing.T) {
	n, _ := newPhasesNode(t)
	n.start()
	before := n.s.cpu.Table().Scans()
	for i := range 1000 {
		n.host.Uptime += time.Millisecond
		n.s.phases.took = 10 * time.Millisecond // so long does a window take on a large machine
		require.NoError(t, n.s.mark(phase.Mark{Phase: fmt.Sprint(i % 3)}))
	}
	assert.LessOrEqual(t, n.s.cpu.Table().Scans()-before, uint64(5))
}

func TestPhasesBeyondTheLimitAreRefusedAndSaidOnce(t *testing.T) {
	n, socket := newPhasesNode(t)
	n.start()
	for _, name := range []string{"a", "b", "c", "a"} {
		send(t, socket, "begin "+name)
	}
	for range 2 {
		assert.ErrorContains(t, phase.Send(t.Context(), socket, phase.Mark{Phase: "d"}), "there are 3 phases with other names already")
	}
	assert.Equal(t, "a", n.s.phases.current, "the phase goes on")
	send(t, socket, "end")
	assert.Equal(t, 1, n.logs.FilterMessageSnippet("Phase refused").Len())
}

func TestMarksWhileScansFailStillDivideTheEnergy(t *testing.T) {
	n, socket := newPhasesNode(t)
	n.start()
	source := &failingSource{Procfs: cpu.NewProcfs(n.host.Root())}
	n.take(source)
	n.run(10*joule, nil)
	source.fail = errRefused
	n.spend(4*time.Second, 40, 0.5)
	send(t, socket, "begin build")
	n.spend(6*time.Second, 60, 0.5)
	source.fail = nil
	n.scrape()
	active, idle := n.phaseEnergy("build")
	assert.InDelta(t, 30, active, 1e-6)
	assert.InDelta(t, 30, idle, 1e-6)
	assert.InDelta(t, n.sum("system.energy", nil), n.sum("system.phase.energy", nil), 1e-6)
}

func TestAMarkBeforeTheFirstMeasurementCounts(t *testing.T) {
	n, socket := newPhasesNode(t)
	require.NoError(t, n.host.Render())
	stat := filepath.Join(n.host.Root(), "proc/stat")
	require.NoError(t, os.Rename(stat, stat+".away"))
	require.NoError(t, n.s.start(t.Context(), n))
	t.Cleanup(func() { require.NoError(t, n.s.shutdown(context.Background())) })
	require.Nil(t, n.s.ledger)
	send(t, socket, "begin boot")
	n.run(100*joule, nil)
	n.run(100*joule, nil)
	assert.InDelta(t, 100, n.sum("system.phase.energy", attrs{"energy.phase": "boot"}), 1e-6)
	assert.Len(t, n.points("system.phase.time", nil), 1)
}

func TestASocketThatCannotBeListenedAtIsACondition(t *testing.T) {
	n, socket := newPhasesNode(t)
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	n.start()
	degraded := n.logs.FilterMessage("Collection degraded").All()
	require.Len(t, degraded, 1)
	assert.Equal(t, "phases", degraded[0].ContextMap()["condition"])
	n.run(0, nil)
	assert.Equal(t, 1, n.logs.FilterMessage("Collection degraded").Len())
}

func TestLinesOfAFileAreMarks(t *testing.T) {
	n, _ := newPhasesNode(t)
	path := filepath.Join(t.TempDir(), "phases")
	n.s.phases.config.File = path
	n.start()
	n.spend(time.Second, 10, 1)
	require.NoError(t, os.WriteFile(path, []byte("begin night\n"), 0o600))
	require.Eventually(t, func() bool {
		n.s.mu.Lock()
		defer n.s.mu.Unlock()
		return n.s.phases.current == "night"
	}, time.Minute, time.Millisecond)
	n.spend(time.Second, 7, 1)
	n.scrape()
	active, _ := n.phaseEnergy("night")
	assert.InDelta(t, 7, active, 1e-6)
}

func TestMarksBesideScrapesAndAShutdownDoNotWaitForEachOther(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n, socket := newPhasesNode(t)
	require.NoError(t, n.host.Render())
	require.NoError(t, n.s.start(t.Context(), n))
	var sending sync.WaitGroup
	for i := range 8 {
		sending.Go(func() {
			for j := range 50 {
				if err := phase.Send(t.Context(), socket, phase.Mark{Phase: fmt.Sprint((i + j) % 3)}); err != nil {
					return // shut down
				}
			}
		})
	}
	for range 10 {
		n.scrape()
	}
	require.NoError(t, n.s.shutdown(t.Context()))
	sending.Wait()
	assert.NoFileExists(t, socket)
}

func TestPhasesThatAreConfiguredWrong(t *testing.T) {
	for why, c := range map[string]PhasesConfig{
		"socket: must be set":              {Max: 1},
		"socket: must be an absolute path": {Socket: "s", Max: 1},
		"file: must be an absolute path":   {File: "s", Max: 1},
		"max: must be between 1 and 10000": {Socket: "/s"},
		"10000, is 10001":                  {Socket: "/s", Max: 10_001},
		"socket: must have at most 107":    {Socket: "/" + strings.Repeat("s", 107), Max: 1},
		"file: must not be the socket":     {Socket: "/run/s", File: "/run//s", Max: 1},
	} {
		assert.ErrorContains(t, c.Validate(), why)
	}
	assert.NoError(t, (&PhasesConfig{File: "/s", Max: 1}).Validate())
	assert.NoError(t, (&PhasesConfig{Socket: "/" + strings.Repeat("s", 106), Max: 1}).Validate())
	for range 20 {
		assert.EqualError(t, (&PhasesConfig{Socket: "s", File: "f", Max: 1}).Validate(),
			"socket: must be an absolute path, is \"s\"\nfile: must be an absolute path, is \"f\"")
	}
}

// busyCard is a graphics card that was busy for so many seconds of the last ten.
type busyCard struct{ seconds units.CPUTime }

func (c *busyCard) Read(time.Time, *cpu.Table) ([]gpu.Usage, error) {
	return []gpu.Usage{{Domain: cardZone.Domain, Busy: c.seconds * units.Second, Total: 10 * units.Second}}, nil
}

func (*busyCard) Close() error { return nil }

func TestEnergyOfGPUsIsDividedByHowBusyTheyWere(t *testing.T) {
	n, socket := newPhasesNode(t)
	m, card := &slowMeter{reading: power.Reading{Zone: &cardZone}}, &busyCard{}
	n.s.openMeters = func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
		return power.NewSet(power.Member{Name: string(MeterHwmon), Meter: m}), nil
	}
	n.s.gpus.sources = append(n.s.gpus.sources, card)
	n.start()
	n.spend(10*time.Second, 0, 1)
	send(t, socket, "begin train")
	card.seconds = 10
	n.spend(10*time.Second, 0, 0)
	send(t, socket, "begin infer")
	card.seconds = 5
	n.spend(10*time.Second, 0, 0.5)
	n.scrape() // the meter has news: 300 J of 30 s, in which the card was busy for 15 s
	for name, want := range map[string]float64{"none": 0, "train": 100, "infer": 50} {
		active, idle := n.phaseEnergy(name)
		assert.InDelta(t, want, active, 1e-5, name)
		assert.InDelta(t, 50, idle, 1e-5, name)
	}
}

func TestWhatIsUsedWhileAZoneIsGoneHasNoneOfItsEnergy(t *testing.T) {
	n, socket := newPhasesNode(t)
	zone := n.host.Zones["intel-rapl:0"]
	n.start()
	n.spend(10*time.Second, 10, 1)
	n.scrape()
	delete(n.host.Zones, "intel-rapl:0")
	send(t, socket, "begin without")
	for range 2 {
		n.host.Run(time.Hour, map[int]int64{10: 360_000})
		n.scrape()
	}
	n.host.Zones["intel-rapl:0"] = zone
	require.NoError(t, n.host.Render())
	send(t, socket, "begin with")
	n.scrape()
	n.spend(10*time.Second, 10, 1)
	n.scrape()
	active, _ := n.phaseEnergy("with")
	assert.InDelta(t, 10, active, 1e-6)
	assert.InDelta(t, n.sum("system.energy", nil), n.sum("system.phase.energy", nil), 1e-6)
}

func TestDividingAWindowAllocatesNothing(t *testing.T) {
	n, socket := newPhasesNode(t)
	n.start()
	n.spend(time.Second, 10, 1)
	send(t, socket, "begin build")
	n.spend(time.Second, 10, 1)
	n.scrape()
	p, ledger := &n.s.phases, n.s.ledger.Engine.Ledger()
	at, node := p.read, p.node
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		at = at.Add(time.Second)
		node.Busy, node.Total = node.Busy+units.Second, node.Total+2*units.Second
		ledger.Kinds[0].Active += units.Joule
		ledger.Kinds[0].Idle += units.Joule
		p.readNode(at, node, true)
		p.observe(n.s.ledger)
	}))
}
