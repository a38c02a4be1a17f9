// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package window

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// gpuNode is a node with GPUs and processes that use no CPU time.
type gpuNode struct {
	options  Options
	t        testing.TB
	b        *Collector
	reader   *cpu.Reader
	now      time.Duration
	list     []tasks.Process
	ended    []tasks.Ended
	readings []power.Reading
	usages   []gpu.Usage
	m        Measurement
}

var boot = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var attributedGPUs = []power.Kind{power.GPU}

// newGPUNode returns a node whose GPUs each draw 40 W. cgroups are those of the processes 1, 2, ...
func newGPUNode(t testing.TB, gpus, processes int, rules attribution.Rules, cgroups ...string) *gpuNode {
	return newGPUNodeWith(t, gpus, processes, ledger.Config{Rules: rules}, cgroups...)
}

func newGPUNodeWith(t testing.TB, gpus, processes int, config ledger.Config, cgroups ...string) *gpuNode {
	n := &gpuNode{t: t, now: 100 * time.Second}
	root := t.TempDir()
	for i := range processes {
		n.start(int32(i + 1))
		if i < len(cgroups) {
			dir := filepath.Join(root, "proc", fmt.Sprint(i+1))
			require.NoError(t, os.MkdirAll(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::"+cgroups[i]+"\n"), 0o600))
		}
	}
	for i := range gpus {
		zone := &power.Zone{ID: fmt.Sprint(i), Kind: power.GPU, Method: power.Measured, Domain: units.GPU(fmt.Sprint(i))}
		n.readings = append(n.readings, power.Reading{Zone: zone})
		n.usages = append(n.usages, gpu.Usage{Domain: zone.Domain})
	}
	tree := cgroup.New(cgroup.Options{Root: root})
	n.reader = newGPUReader(root, n)
	n.options = Options{
		Ledger: ledger.New(config, boot.Add(n.now)), Exact: true, Cgroups: tree,
		Identifier: workload.NewIdentifier(root, workload.Wanted{}), Kinds: []power.Class{{Zone: power.GPU, Method: power.Measured}},
	}
	n.b = NewCollector(n.options)
	t.Cleanup(func() { _, _, _ = n.b.Identifier.Close(), tree.Close(), n.reader.Close() })
	n.second()
	return n
}

// gpuGroups are the cgroups of processes, with the container and pod of each.
var gpuGroups = []struct{ path, container, pod string }{
	{"/", "", ""},
	{gpuScope(1, 'a'), strings.Repeat("a", 64), gpuPod(1)},
	{gpuScope(1, 'b'), strings.Repeat("b", 64), gpuPod(1)},
	{gpuScope(2, 'c'), strings.Repeat("c", 64), gpuPod(2)},
}

func gpuPod(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func gpuScope(pod int, container byte) string {
	slice := "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(gpuPod(pod), "-", "_") + ".slice"
	return slice + "/cri-containerd-" + strings.Repeat(string(container), 64) + ".scope"
}

// keyOf names an account.
func keyOf(a *ledger.Account) string {
	switch {
	case a.Other:
		return "other " + a.Entity.String()
	case a.Entity == identity.ProcessEntity:
		return fmt.Sprint("p ", a.Owner.Process.PID, " ", a.Owner.Process.Start)
	case a.Entity == identity.ContainerEntity:
		return "c " + a.Owner.Container.ID
	default:
		return "d " + a.Owner.Pod.UID
	}
}

func (n *gpuNode) start(pid int32) {
	n.list = append(n.list, tasks.Process{Pid: uint32(pid), Parent: 1, Start: uint64(n.now), Threads: 1})
}

func (n *gpuNode) end(pid int32) {
	for i := range n.list {
		if n.list[i].Pid == uint32(pid) {
			n.ended = append(n.ended, tasks.Ended{Pid: uint32(pid), Parent: 1, Start: n.list[i].Start})
			n.list = append(n.list[:i:i], n.list[i+1:]...)
			return
		}
	}
}

func (n *gpuNode) List(bool) (tasks.Listing, error) {
	return tasks.Listing{Processes: n.list}, nil
}

func (*gpuNode) Shrink(int) error         { return nil }
func (*gpuNode) SetDomains([]int32) error { return nil }
func (*gpuNode) Watch(func()) error       { return nil }

func (n *gpuNode) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	for i := range n.ended {
		yield(&n.ended[i])
	}
	n.ended = n.ended[:0]
	return tasks.Lost{}, nil
}

func (*gpuNode) DrainCgroups(func(id uint64, path string)) error { return nil }
func (*gpuNode) Close() error                                    { return nil }

// second lets a second pass, in which GPU 0 was busy for half of the time and used by users.
func (n *gpuNode) second(users ...gpu.User) {
	n.usages[0] = gpu.Usage{Domain: n.usages[0].Domain, Busy: units.Second / 2, Total: units.Second, Users: users}
	n.observe()
}

// newGPUReader returns a reader of the processes of a node.
func newGPUReader(root string, n *gpuNode) *cpu.Reader {
	options := cpu.Options{Root: root, Kind: cpu.KindBPF}
	return cpu.NewReader(cpu.NewSimulatedBPF(options, n, func() time.Duration { return n.now }), options)
}

func (n *gpuNode) observe() {
	n.now += time.Second
	for i := range n.readings {
		n.readings[i].Total += 40 * units.Joule
		n.readings[i].At = boot.Add(n.now)
	}
	_, err := n.reader.Read()
	require.NoError(n.t, err)
	n.m = Measurement{
		ReadAt: boot.Add(n.now), Stamp: boot.Add(n.now), Table: n.reader.Table(), Readings: n.readings, GPUs: n.usages,
		Attributed: attributedGPUs,
	}
	n.b.Observe(&n.m)
}

// joules returns the active and the idle energy of each account that has any.
func (n *gpuNode) joules() (active, idle map[string]float64) {
	active, idle = map[string]float64{}, map[string]float64{}
	for a := range n.b.Ledger.Accounts {
		name := keyOf(a)
		if a.Entity == identity.ProcessEntity && !a.Other {
			name = fmt.Sprint(a.Owner.Process.PID)
		}
		if amounts := a.Amounts(0); amounts.Energy > 0 || amounts.Idle > 0 {
			active[name], idle[name] = amounts.Energy.Joules(), amounts.Idle.Joules()
		}
	}
	return active, idle
}

func (n *gpuNode) unattributed() float64 { return n.b.Ledger.Kinds[0].Unattributed.Joules() }

func uses(used units.CPUTime, pids ...int32) gpu.User { return gpu.User{PIDs: pids, Used: used} }

func TestAGPUIsSharedByGPUTimeAmongThoseWithoutCPUTime(t *testing.T) {
	n := newGPUNode(t, 1, 3, attribution.Rules{})
	for range 10 {
		n.second(uses(300, 1), uses(100, 2), uses(0, 3))
	}
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 150, "2": 50}, active, "3:1, and nothing for holding memory")
	assert.Zero(t, n.unattributed())
}

func TestABusyGPUWithoutKnownUsersIsNotSharedEqually(t *testing.T) {
	n := newGPUNode(t, 1, 3, attribution.Rules{Idle: attribution.IdleEqual})
	n.second(uses(0, 1), uses(0, 2))
	active, idle := n.joules()
	assert.Equal(t, map[string]float64{"1": 10, "2": 10}, idle, "of the processes that have it open")
	assert.Equal(t, map[string]float64{"1": 0, "2": 0}, active)
	assert.InDelta(t, 20, n.unattributed(), 0)
}

func TestAGPUOfWhichNothingTellsIsActiveAndUnattributed(t *testing.T) {
	n := newGPUNode(t, 1, 1, attribution.Rules{Idle: attribution.IdleEqual})
	n.usages = nil
	n.b = NewCollector(n.options) // a new collector, without any reports so far
	n.b.Ledger = ledger.New(ledger.Config{}, boot.Add(n.now))
	n.observe()
	n.observe()
	assert.InDelta(t, 40, n.unattributed(), 0)
	assert.Equal(t, []attribution.DomainTime{{}, {}}, n.b.Ledger.Domains, "its utilization is not known")
}

func TestABusyTimeThatASourceAssumesIsNoUtilization(t *testing.T) {
	n := newGPUNode(t, 1, 1, attribution.Rules{})
	n.b.Ledger.Emitted()
	n.usages[0] = gpu.Usage{Domain: n.usages[0].Domain, Busy: units.Second, Total: units.Second, Unattributed: units.Second, Assumed: true}
	n.observe()
	assert.InDelta(t, 40, n.unattributed(), 0)
	assert.Equal(t, attribution.DomainTime{}, n.b.Ledger.Domains[1])
	n.second()
	assert.Equal(t, attribution.DomainTime{Busy: units.Second / 2, Total: units.Second}, n.b.Ledger.Domains[1])
}

func TestAGPUWaitsForItsUsageAndAtLastGoesOnWithoutIt(t *testing.T) {
	n := newGPUNode(t, 1, 1, attribution.Rules{})
	n.usages[0] = gpu.Usage{Domain: n.usages[0].Domain}
	for range 10 {
		n.observe()
	}
	k := &n.b.Ledger.Kinds[0]
	assert.Zero(t, k.Active)
	n.second(uses(1, 1))
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 220}, active, "of the time before, too")
	n.usages[0] = gpu.Usage{Domain: n.usages[0].Domain}
	for range int(maxSilence/time.Second) + 10 {
		n.observe()
	}
	assert.Greater(t, n.unattributed(), 40*maxSilence.Seconds())
}

func TestProcessesThatCannotBeToldApartClaimForWhatTheyArePartOf(t *testing.T) {
	a, b, c := gpuGroups[1], gpuGroups[2], gpuGroups[3]
	for _, test := range []struct {
		name string
		pids []int32
		want map[string]float64
	}{
		{"a process by itself", []int32{1}, map[string]float64{"1": 20, "c " + a.container: 20, "d " + a.pod: 20}},
		{"named twice", []int32{1, 1}, map[string]float64{"1": 20, "c " + a.container: 20, "d " + a.pod: 20}},
		{"one container", []int32{1, 2}, map[string]float64{"other process": 20, "c " + a.container: 20, "d " + a.pod: 20}},
		{"one pod", []int32{1, 3}, map[string]float64{"other process": 20, "d " + a.pod: 20}},
		{"two pods", []int32{1, 4}, map[string]float64{}},
		{"no container", []int32{5, 6}, map[string]float64{}},
		{"one that is not known", []int32{1, 99}, map[string]float64{}},
	} {
		n := newGPUNode(t, 1, 6, attribution.Rules{}, a.path, a.path, b.path, c.path, "/", "/")
		n.second(uses(7, test.pids...))
		active, _ := n.joules()
		assert.Equal(t, test.want, active, test.name)
		assert.Equal(t, len(test.want) == 0, n.unattributed() == 20, test.name)
	}
}

func TestProcessesOfWhichOnlySomeAreExcludedAreUnattributed(t *testing.T) {
	a, b := gpuGroups[1], gpuGroups[2]
	for _, excluded := range []string{"", a.path, b.path} {
		n := newGPUNode(t, 1, 2, attribution.Rules{}, a.path, b.path)
		n.b.Exclusion = workload.NewExclusion(workload.Excluded{Cgroup: func(path string) bool { return path == excluded }}, nil)
		n.end(1)
		n.end(2)
		n.second()
		n.start(1)
		n.start(2)
		n.second()
		n.second(uses(7, 1, 2))
		active, _ := n.joules()
		assert.Equal(t, excluded == "", active["d "+a.pod] == 20, excluded)
	}
}

func TestAPIDThatAnotherProcessHasWithAnotherCPUTimeSourceIsNobodys(t *testing.T) {
	n := newGPUNode(t, 1, 2, attribution.Rules{})
	n.second(uses(1, 1), uses(1, 2))
	n.end(1)
	n.start(1)
	n.now += time.Second
	n.readings[0].Total, n.readings[0].At = n.readings[0].Total+40*units.Joule, boot.Add(n.now)
	n.reader = newGPUReader(t.TempDir(), n)
	_, err := n.reader.Read()
	require.NoError(t, err)
	n.usages[0].Users = []gpu.User{{PIDs: []int32{1}, Used: 1, Last: boot.Add(n.now)}, uses(1, 2)}
	n.m = Measurement{
		ReadAt: boot.Add(n.now), Stamp: boot.Add(n.now), Table: n.reader.Table(), Readings: n.readings, GPUs: n.usages, Attributed: attributedGPUs,
	}
	n.b.observeAnother(&n.m, true)
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 10, "2": 20}, active)
	assert.InDelta(t, 10, n.unattributed(), 0)
}

func TestTheTimeUntilAnotherSourceHasNoInterruptsOfBefore(t *testing.T) {
	n := newGPUNode(t, 1, 1, attribution.Rules{})
	n.b.InterruptsUnattributed = true
	n.m.Node = cpu.Node{Busy: units.Second, Total: 4 * units.Second, Interrupt: units.Second / 2}
	n.b.last.Node = n.m.Node
	n.now += time.Second
	n.m.ReadAt, n.m.Stamp = boot.Add(n.now), boot.Add(n.now)
	n.b.observeAnother(&n.m, true)
	node := &n.b.Interval().Domains[0]
	assert.Equal(t, []units.CPUTime{units.Second, units.Second}, []units.CPUTime{node.Busy, node.Unattributed}, "all of it counts as busy")
}

func TestAUserThatNoScanSawBelongsToItsCgroup(t *testing.T) {
	n := newGPUNode(t, 1, 1, attribution.Rules{})
	n.second(gpu.User{PIDs: []int32{99}, Used: 1, Cgroup: gpuGroups[1].path}, gpu.User{PIDs: []int32{98}, Used: 1, Cgroup: "/"})
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"other process": 10, "c " + gpuGroups[1].container: 10, "d " + gpuGroups[1].pod: 10}, active)
	assert.InDelta(t, 10, n.unattributed(), 0)
}

func TestAUserThatEndedIsStillNamedByLateSamples(t *testing.T) {
	n := newGPUNode(t, 1, 2, attribution.Rules{})
	n.second(uses(1, 1))
	last := boot.Add(n.now)
	n.end(1)
	n.start(1) // another process with the same PID, a while later
	n.list[1].Start += uint64(100 * time.Millisecond)
	n.second(uses(1, 2))
	n.second(gpu.User{PIDs: []int32{1}, Used: 1, Last: last})
	energies := map[time.Duration]float64{}
	for a := range n.b.Ledger.Accounts {
		if a.Owner.Process.PID == 1 {
			energies[a.Owner.Process.Start] = a.Amounts(0).Energy.Joules()
		}
	}
	assert.Equal(t, map[time.Duration]float64{100 * time.Second: 40, last.Sub(boot) + 100*time.Millisecond: 0}, energies)
	for range 3 {
		n.second(uses(1, 2))
	}
	n.second(gpu.User{PIDs: []int32{1}, Used: 1, Last: last})
	assert.InDelta(t, 20, n.unattributed(), 0, "not for ever")
}

func TestAYoungProcessThatEndedBeforeItWasNamedIsFound(t *testing.T) {
	n := newGPUNode(t, 1, 1, attribution.Rules{})
	n.second(gpu.User{Used: 1}) // no process was named yet
	n.start(2)
	n.second(uses(1, 1))
	last := boot.Add(n.now)
	n.end(2)
	n.second(uses(1, 1))
	n.second(gpu.User{PIDs: []int32{2}, Used: 1, Last: last})
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 40, "2": 20}, active)
}

func TestABurstOfYoungProcessesDoesNotReplaceAUserThatEnded(t *testing.T) {
	n := newGPUNode(t, 1, 1, attribution.Rules{})
	n.second(uses(1, 1))
	for pid := range int32(maxLateUsers + 10) {
		n.start(pid + 2)
	}
	n.second(uses(1, 1))
	last := boot.Add(n.now)
	for pid := range int32(maxLateUsers + 11) {
		n.end(pid + 1)
	}
	n.second()
	assert.Len(t, n.b.gpus.young, maxLateUsers)
	n.second(gpu.User{PIDs: []int32{1}, Used: 1, Last: last})
	assert.InDelta(t, 20, n.unattributed(), 0, "that of the second without users")
	n.second()
	n.second()
	assert.Empty(t, n.b.gpus.young)
}

func TestAYoungSleeperThatEndsLeavesTheOthersAsleep(t *testing.T) {
	n := newGPUNodeWith(t, 1, 2, ledger.Config{Processes: ledger.ByProgram})
	n.second(uses(1, 1))
	sleeper := n.b.claimants[n.b.gpus.processes[2].slot]
	require.True(t, sleeper.sleeps)
	n.start(3)
	n.second(uses(1, 1))
	n.end(3)
	n.second(uses(1, 1))
	for _, s := range n.b.sleepers {
		assert.Equal(t, 1, s.count)
	}
	for range 5 {
		n.second(uses(1, 1))
	}
	n.start(4) // would take the claimant of the sleepers if that was closed
	n.second(uses(1, 1), uses(1, 4))
	assert.Equal(t, sleeper.id, n.b.claimants[n.b.gpus.processes[2].slot].id)
	assert.NotEqual(t, sleeper.id, n.b.claimants[n.b.gpus.processes[4].slot].id)
	n.end(2)
	n.second(uses(1, 1))
	assert.Empty(t, n.b.sleepers)
}

func TestGPUsBeyondTheLimitAreUnattributed(t *testing.T) {
	n := newGPUNode(t, maxGPUs+3, 1, attribution.Rules{})
	for range 2 {
		for i := range n.usages {
			n.usages[i].Busy, n.usages[i].Total, n.usages[i].Users = units.Second, units.Second, []gpu.User{uses(1, 1)}
		}
		n.observe()
	}
	assert.Len(t, n.b.Domains(), 1+maxGPUs+1)
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 2 * 40 * maxGPUs}, active)
	assert.InDelta(t, 2*40*3, n.unattributed(), 0)
}

func TestImpossibleUsageIsBounded(t *testing.T) {
	n := newGPUNode(t, 1, 2, attribution.Rules{})
	const huge = ^units.CPUTime(0)
	n.usages[0] = gpu.Usage{
		Domain: n.usages[0].Domain, Busy: huge, Total: huge - 1, Unattributed: huge,
		Users: []gpu.User{uses(huge, 1), uses(huge, 2), {Used: huge}},
	}
	n.observe()
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 10, "2": 10}, active)
	assert.InDelta(t, 20, n.unattributed(), 0)
}

func TestProcessesThatEndedAreForgotten(t *testing.T) {
	n := newGPUNode(t, 1, 3, attribution.Rules{})
	n.second(uses(1, 1))
	assert.Len(t, n.b.gpus.processes, 3)
	n.end(2)
	n.second(uses(1, 1))
	assert.Len(t, n.b.gpus.processes, 2)
	n.b.Shrink(n.reader.Table())
	n.second(uses(1, 1))
	n.second(uses(1, 3))
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 60, "3": 20}, active)
}

func TestObserveOfManyGPUsAllocatesNothing(t *testing.T) {
	const users = 200
	for _, idle := range []attribution.IdleAllocation{attribution.IdleNone, attribution.IdleEqual, attribution.IdleUsed} {
		n := newGPUNode(t, 16, 10_000, attribution.Rules{Idle: idle}, gpuGroups[1].path, gpuGroups[1].path)
		for i := range n.usages {
			u := &n.usages[i]
			u.Busy, u.Total = units.Second/2, units.Second
			for pid := range int32(users) {
				u.Users = append(u.Users, uses(units.CPUTime(pid), 1+pid))
			}
			u.Users = append(u.Users, uses(5, 1, 2), gpu.User{PIDs: []int32{20_000}, Used: 3})
		}
		for range 3 {
			n.observe()
		}
		assert.Zero(t, allocs.Count(20, n.observe))
	}
}
