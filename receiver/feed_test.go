// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/goleak"

	"github.com/energyreceiver/energyreceiver/extension/energyguests"
	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

const (
	uuidA = "0a1b2c3d-0000-4000-8000-00000000000a"
	uuidB = "0a1b2c3d-0000-4000-8000-00000000000b"
)

// qemu returns the process of a virtual machine, in the cgroup that libvirt makes for it.
func qemu(name, uuid string) *hostsim.Process {
	const exe = "/usr/bin/qemu-system-x86_64"
	return &hostsim.Process{
		Parent: 1, Comm: "qemu-system-x86", Exe: exe, Args: []string{exe, "-name", "guest=" + name, "-uuid", uuid},
		Cgroup: "0::/machine.slice/machine-qemu-1-" + uuid[:4] + ".scope/libvirt/emulator",
	}
}

// exporterTo starts an extension that gives virtual machines their energy by a directory.
func exporterTo(t *testing.T, receiver component.ID, path string) extension.Extension {
	factory := energyguests.NewFactory()
	cfg := factory.CreateDefaultConfig().(*energyguests.Config)
	cfg.Receiver, cfg.Path = receiver, path
	e, err := factory.Create(context.Background(), extensiontest.NewNopSettings(factory.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(context.Background(), nil))
	return e
}

// fed are sums over the windows of a feed, in µJ of all kinds.
type fed struct {
	windows, collections       int
	active, idle, unattributed uint64
	processes                  map[int32]uint64
	cpu                        map[int32]time.Duration
	vms                        []feed.VM // of the last collection
	start, end, attributed     time.Time
	gaps                       int // windows that do not begin where the one before ended
	executable, container      string
}

func sumOf(energies []uint64) (sum uint64) {
	for _, e := range energies {
		sum += e
	}
	return sum
}

func (f *fed) take(w *feed.Window) {
	if f.windows > 0 && !w.Start.Equal(f.end) {
		f.gaps++
	}
	f.windows++
	f.start, f.end, f.attributed = w.Start, w.End, w.Attributed
	f.active += sumOf(w.Active)
	f.idle += sumOf(w.Idle)
	f.unattributed += sumOf(w.Unattributed)
	for _, p := range w.Processes {
		f.processes[p.PID] += sumOf(p.Energy)
		f.cpu[p.PID] += p.CPU
		f.executable, f.container = p.Executable, p.ContainerID
	}
	if w.EndsCollection {
		f.collections++
		f.vms = slices.Clone(w.VMs)
	}
}

// feeds opens the feed of a node that has not started.
func (n *testNode) feeds(processes, vms bool) *fed {
	f := &fed{processes: map[int32]uint64{}, cpu: map[int32]time.Duration{}}
	n.set.ID = component.NewIDWithName(metadata.Type, n.t.Name())
	reader := &feed.Reader{Processes: processes, VMs: vms, Take: f.take}
	feed.Of(n.set.ID).Open(reader)
	n.t.Cleanup(func() { feed.Of(n.set.ID).Close(reader) })
	return f
}

func TestTheFeedHasWhatTheSeriesHave(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Attribution.Idle = "equal" })
	f := n.feeds(true, true)
	n.host.Processes[10], n.host.Processes[11] = qemu("a", uuidA), qemu("b", uuidB)
	n.start()
	for i := range 5 {
		n.run(123_456_789, map[int]int64{10: 300, 11: int64(100 * i), 1: 7})
		n.s.sample()
		feed.Of(n.set.ID).EndWindow(t.Context()) // too soon for another window
	}
	n.run(0, nil)
	assert.Zero(t, f.gaps)
	assert.Equal(t, 6, f.collections)
	assert.InDelta(t, n.sum("system.energy", nil, "energy.state=active"), float64(f.active)/joule, 1e-9)
	assert.InDelta(t, n.sum("system.unattributed.energy", nil), float64(f.unattributed)/joule, 1e-9)
	var processes uint64
	for pid, energy := range f.processes {
		processes += energy
		assert.Positive(t, f.cpu[pid])
	}
	assert.Equal(t, f.active-f.unattributed, processes)
	require.Len(t, f.vms, 2)
	for _, vm := range f.vms {
		assert.InDelta(t, n.sum("vm.energy", attrs{"vm.id": vm.ID}), float64(sumOf(vm.Energy))/joule, 1e-9)
	}
	assert.Equal(t, f.end, f.attributed)
}

func TestTheFeedHasTheLastEnergyOfAMachineAndNoneWithoutASeries(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Series.VMs.Max = 1 })
	f := n.feeds(false, true)
	n.host.Processes[10], n.host.Processes[11] = qemu("a", uuidA), qemu("b", uuidB)
	n.start()
	n.run(600*joule, map[int]int64{10: 500, 11: 10})
	delete(n.host.Processes, 10)
	n.run(600*joule, nil)
	require.Len(t, f.vms, 1)
	assert.Equal(t, uuidA, f.vms[0].ID)
	assert.True(t, f.vms[0].Ended)
	n.run(600*joule, nil)
	n.run(600*joule, map[int]int64{11: 100})
	require.Len(t, f.vms, 1)
	assert.Equal(t, uuidB, f.vms[0].ID)
	assert.Empty(t, f.processes, "they were not asked for")
}

func TestTheFeedDividesProcessesByPackage(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Attribution.Scope = config.ScopeZone })
	n.host.CPUs, n.host.Topology = 4, []hostsim.Place{{}, {Package: 1}, {}, {Package: 1}}
	n.host.Zones["intel-rapl:1"] = &hostsim.Zone{Name: "package-1", Max: 1 << 40}
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app", LastCPU: 3}
	var got feed.Window
	var process feed.Process
	n.set.ID = component.NewIDWithName(metadata.Type, t.Name())
	reader := &feed.Reader{Processes: true, Take: func(w *feed.Window) { got, process = *w, w.Processes[0] }}
	feed.Of(n.set.ID).Open(reader)
	t.Cleanup(func() { feed.Of(n.set.ID).Close(reader) })
	n.host.EachCPU = make([]hostsim.CPU, 4)
	n.start()
	for i := range n.host.EachCPU {
		n.host.EachCPU[i].Idle += 500
	}
	n.host.EachCPU[3].User += 500
	n.run(600*joule, map[int]int64{10: 500})
	assert.Equal(t, []int32{0, 1, 0, 1}, got.Packages)
	require.Len(t, process.Packages, 2)
	assert.Equal(t, feed.Part{Energy: make([]uint64, len(got.Kinds))}, process.Packages[0])
	assert.Equal(t, feed.Part{CPU: process.CPU, Energy: process.Energy}, process.Packages[1])
	assert.Positive(t, sumOf(process.Energy))
}

// No row is missing of a window that a reader gets.
func TestAReaderThatOpensWhileAWindowIsAttributedWaitsForTheNext(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Attribution.Weight = allWeight(config.WeightCycles) })
	n.feeds(false, false)
	late := &fed{processes: map[int32]uint64{}, cpu: map[int32]time.Duration{}}
	open := func([]*weigh.Share) {}
	n.machine.OpenWeigher = func(window.Key, *window.KeyOptions) (window.Weigher, error) {
		return watched{&fakeWeigher{}, func(shares []*weigh.Share) { open(shares) }}, nil
	}
	n.start()
	open = func([]*weigh.Share) {
		feed.Of(n.set.ID).Open(&feed.Reader{Processes: true, Take: late.take})
		open = func([]*weigh.Share) {}
	}
	n.run(600*joule, map[int]int64{1: 100})
	assert.Zero(t, late.windows)
	n.run(600*joule, map[int]int64{1: 100})
	assert.Equal(t, 1, late.windows)
	assert.Equal(t, late.active, late.processes[1])
}

func TestAWindowForAFeedAllocatesNothing(t *testing.T) {
	for _, isOpen := range []bool{false, true} {
		n := newTestNode(t, func(c *Config) { c.Attribution.Scope = config.ScopeZone })
		n.host.CPUs, n.host.Topology = 4, []hostsim.Place{{}, {Package: 1}, {}, {Package: 1}}
		n.set.ID = component.NewIDWithName(metadata.Type, t.Name())
		if isOpen {
			feed.Of(n.set.ID).Open(&feed.Reader{Processes: true, VMs: true, Take: func(*feed.Window) {}})
		}
		n.host.Processes[10], n.host.Processes[11] = qemu("a", uuidA), qemu("b", uuidB)
		n.start()
		n.run(600*joule, map[int]int64{10: 500, 11: 300})
		l := &n.s.attributor.Feeding
		claim := attribution.Claim{Claimant: n.s.attributor.Ledger.Open(identity.Owner{Process: identity.Process{PID: 10}}, n.host.Now()), CPU: units.Second}
		domains := slices.Repeat([]attribution.Usage{{Claims: []attribution.Claim{claim}}}, 3)
		assert.Zero(t, testing.AllocsPerRun(20, func() {
			l.Begin(n.s.attributor)
			l.Read(n.s.attributor, n.s.attributor.Ledger.Sharer().Share(&attribution.Interval{Domains: domains}))
			n.s.publish(n.s.attributor.Collector.Last())
		}), isOpen)
	}
}

func TestAReaderEndsAWindowUnlessTheReceiverHasNoTimeOrIsShutDown(t *testing.T) {
	n := newTestNode(t)
	f := n.feeds(true, false)
	n.start()
	n.run(600*joule, map[int]int64{1: 100})
	windows, end := f.windows, f.end
	endAfter := func(ctx context.Context, elapsed time.Duration) {
		n.host.Run(elapsed, map[int]int64{1: 10})
		require.NoError(t, n.host.Render())
		feed.Of(n.set.ID).EndWindow(ctx)
	}
	n.s.windows.Demand.Took = time.Minute
	feed.Of(n.set.ID).EndWindow(t.Context())
	assert.Equal(t, windows, f.windows, "another one would cost too much")
	n.s.windows.Demand.Took = 0
	endAfter(t.Context(), time.Second)
	assert.Equal(t, windows+1, f.windows)
	assert.Equal(t, time.Second, f.end.Sub(end))
	assert.Zero(t, f.gaps)

	n.s.mu.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	endAfter(ctx, time.Second)
	n.s.mu.Unlock()
	assert.Equal(t, windows+1, f.windows, "the receiver had no time")

	n.stop()
	n.host.Run(time.Second, nil)
	assert.False(t, n.s.endWindow(t.Context()), "for a reader that asked before")
	endAfter(t.Context(), time.Second)
	assert.Equal(t, windows+1, f.windows)
}

func TestNoWindowEndsAfterTheLastCollection(t *testing.T) {
	n := newTestNode(t)
	var ends []bool
	next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error {
		n.host.Run(time.Second, nil)
		ends = append(ends, n.endWindow())
		return n.host.Render()
	})
	require.NoError(t, err)
	n.next = next
	n.start()
	n.run(600*joule, map[int]int64{1: 100})
	n.host.Run(time.Second, nil)
	n.stop()
	assert.Equal(t, []bool{false}, ends)
}

// spend lets time pass, in which the package uses energy and each process a part of the CPU time of one CPU.
func (n *testNode) spend(d time.Duration, joules float64, busy map[int]float64) {
	n.t.Helper()
	ticks := map[int]int64{}
	for pid, share := range busy {
		ticks[pid] = int64(share * float64(d/hostsim.Tick))
	}
	n.host.Run(d, ticks)
	n.host.Zones["intel-rapl:0"].Energy += uint64(joules * joule)
	require.NoError(n.t, n.host.Render())
}

func newDemandNode(t *testing.T) *testNode {
	t.Helper()
	n := newTestNode(t)
	for pid, name := range map[int]string{10: "first", 20: "second"} {
		n.host.Processes[pid] = &hostsim.Process{Parent: 1, Comm: name, Exe: "/bin/" + name}
	}
	return n
}

func TestAWindowOnDemandThatCannotBeMeasuredContinues(t *testing.T) {
	n := newDemandNode(t)
	source := new(failingSource)
	n.reads(&source.Procfs, source)
	n.start()
	n.run(10*joule, nil)
	source.fail = errRefused
	n.spend(5*time.Second, 30, map[int]float64{10: 1})
	assert.False(t, n.endWindow())
	source.fail = nil
	n.spend(5*time.Second, 30, map[int]float64{20: 1})
	n.scrape()
	for _, name := range []string{"first", "second"} {
		assert.InDelta(t, 30, n.sum("process.energy", attrs{"process.executable.name": name}), 1e-6, name)
	}
}

func TestWindowsOnDemandAndCollectionsDoNotWaitForEachOther(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n := newDemandNode(t)
	n.start()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 50 {
				n.endWindow()
			}
		})
	}
	for range 10 {
		n.scrape()
	}
	callers.Wait()
}
