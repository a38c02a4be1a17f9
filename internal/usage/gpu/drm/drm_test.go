// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const (
	card   = "0000:03:00.0"
	second = units.CPUTime(time.Second)
	ms     = units.CPUTime(time.Millisecond)
)

// watched is a simulated host whose GPUs a source watches.
type watched struct {
	testing.TB
	*hostsim.Host
	processes *cpu.Procfs
	table     *proc.Table
	source    *Source
}

func watch(t testing.TB) *watched {
	dir, err := os.MkdirTemp("/dev/shm", "drm-") // thousands of small files are slow on a disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	h := hostsim.New(dir)
	h.Cached = true
	w := &watched{TB: t, Host: h, processes: cpu.NewProcfs(cpu.Options{Root: dir}), source: New(Options{Root: dir})}
	w.table = proc.New(w.processes.Traits().Traits)
	if strings.HasPrefix(dir, "/dev/shm") {
		w.source.reader.entries = func(size int64) int64 { return size/20 - 2 } // mm/shmem.c, BOGO_DIRENT_SIZE
	}
	t.Cleanup(func() {
		assert.NoError(t, w.processes.Close())
		assert.NoError(t, w.source.Close())
	})
	return w
}

// watchAMD returns a simulated host with a GPU whose driver is amdgpu.
func watchAMD(t testing.TB) *watched {
	w := watch(t)
	w.addGPU(0, card, "amdgpu")
	return w
}

// guardEverything makes the source read the files of the simulated host as it reads those of the kernel.
func (w *watched) guardEverything() {
	w.source.reader.guard = kernfs.NewGuard(kernfs.GuardOptions[*files]{
		Root: w.Root(), New: func() *files { return newFiles(w.Root()) }, Everywhere: true, Haste: 2 * time.Second,
	})
}

// addGPU adds a PCI device with a render node.
func (w *watched) addGPU(number int, address, driver string) {
	w.addDevice(number, "pci", "pci0000:00", address, driver)
}

// addDevice adds a device of a bus with a render node.
func (w *watched) addDevice(number int, bus, parent, name, driver string) {
	device, node := path.Join("sys/devices", parent, name), fmt.Sprint("renderD", 128+number)
	w.Links[path.Join(device, "driver")] = path.Join("../../../bus", bus, "drivers", driver)
	w.Links[path.Join("sys/bus", bus, "devices", name)] = path.Join("../../../devices", parent, name)
	w.Files[path.Join(device, "drm", node, "dev")] = fmt.Sprintf("226:%d\n", 128+number)
	w.Links[path.Join(device, "drm", node, "device")] = "../../../" + name
	w.Links[path.Join("sys/class/drm", node)] = path.Join("../../devices", parent, name, "drm", node)
}

// add adds a process that has just started.
func (w *watched) add(pid, parent int, files ...hostsim.OpenFile) *hostsim.Process {
	p := &hostsim.Process{Comm: "app", Parent: parent, Start: int64(w.Uptime / hostsim.Tick), Files: append([]hostsim.OpenFile{}, files...)}
	w.Processes[pid] = p
	return p
}

// render returns a descriptor of the first render node with the lines of its driver.
func render(fd int, client uint64, lines ...string) hostsim.OpenFile {
	return node(fd, 0, append([]string{"drm-driver:\tamdgpu", fmt.Sprint("drm-client-id:\t", client), "drm-pdev:\t" + card}, lines...)...)
}

func node(fd, number int, lines ...string) hostsim.OpenFile {
	return hostsim.OpenFile{FD: fd, Target: fmt.Sprint("/dev/dri/renderD", 128+number),
		Info: "pos:\t0\nflags:\t02100002\nmnt_id:\t28\n" + strings.Join(lines, "\n") + "\n"}
}

func gfx(used units.CPUTime) string { return fmt.Sprintf("drm-engine-gfx:\t%d ns", used) }

// pass lets a second pass in which the processes with the PIDs ran, and reads.
func (w *watched) pass(pids ...int) []gpu.Usage {
	w.Helper()
	ran := map[int]int64{}
	for _, pid := range pids {
		ran[pid] = 1
	}
	w.Run(time.Second, ran)
	usage, err := w.read()
	require.NoError(w, err)
	return usage
}

func (w *watched) read() ([]gpu.Usage, error) {
	w.Helper()
	require.NoError(w, w.Render())
	require.NoError(w, w.processes.Scan(w.table, cpu.Request{}))
	return w.source.Read(w.Now(), w.table)
}

// used returns the time of each user of the only GPU.
func used(t testing.TB, usage []gpu.Usage) map[int32]units.CPUTime {
	t.Helper()
	require.Len(t, usage, 1)
	byPID := map[int32]units.CPUTime{}
	for _, u := range usage[0].Users {
		require.Len(t, u.PIDs, 1)
		require.NotContains(t, byPID, u.PIDs[0], "a process is one user")
		byPID[u.PIDs[0]] = u.Used
	}
	return byPID
}

func TestUsersHaveTheTimeThatEnginesWorkedForThem(t *testing.T) {
	w := watchAMD(t)
	a, b := w.add(10, 1, render(3, 1, gfx(7*second))), w.add(11, 1, render(3, 2))
	first := w.pass()
	assert.Equal(t, units.GPU(card), first[0].Domain)
	assert.Zero(t, first[0].Total, "the first Read is the baseline")

	a.Files[0], b.Files[0] = render(3, 1, gfx(7*second+600*ms)), render(3, 2, gfx(200*ms), "drm-engine-dec:\t50000000 ns")
	usage := w.pass(10, 11)
	assert.Equal(t, second, usage[0].Total)
	assert.Equal(t, 800*ms, usage[0].Busy, "the busiest engine class")
	assert.Equal(t, map[int32]units.CPUTime{10: 600 * ms, 11: 250 * ms}, used(t, usage), "all engine classes")

	usage = w.pass()
	assert.Zero(t, usage[0].Busy)
	assert.Equal(t, map[int32]units.CPUTime{10: 0, 11: 0}, used(t, usage), "both have it open")

	a.Files[0], b.Files[0] = render(3, 1, gfx(70*second)), render(3, 2, gfx(second))
	usage = w.pass(10, 11)
	assert.Equal(t, second, usage[0].Busy, "at most the interval")
	assert.Equal(t, map[int32]units.CPUTime{10: second, 11: 800 * ms}, used(t, usage))
}

func TestNoGPU(t *testing.T) {
	w := watch(t)
	w.add(10, 1, render(3, 1))
	for range 3 {
		assert.Empty(t, w.pass(10))
	}
	w.addGPU(0, card, "amdgpu")
	assert.Empty(t, w.pass(10), "looked for a second ago")
	w.Run(time.Minute, nil)
	assert.Len(t, w.pass(10), 1)
}

func TestAClientInSeveralDescriptorsAndProcessesIsCountedOnce(t *testing.T) {
	w := watchAMD(t)
	parent, child := w.add(10, 1), w.add(11, 10)
	open := func(u units.CPUTime) {
		parent.Files = []hostsim.OpenFile{render(3, 1, gfx(u)), render(4, 1, gfx(u))}
		child.Files = []hostsim.OpenFile{render(3, 1, gfx(u))}
	}
	open(0)
	w.pass()
	open(300 * ms)
	usage := w.pass(10, 11)
	assert.Equal(t, 300*ms, usage[0].Busy)
	assert.Equal(t, map[int32]units.CPUTime{10: 300 * ms}, used(t, usage), "the parent's")

	parent.Files = parent.Files[1:]
	open = func(u units.CPUTime) { parent.Files[0], child.Files[0] = render(4, 1, gfx(u)), render(3, 1, gfx(u)) }
	open(500 * ms)
	assert.Equal(t, map[int32]units.CPUTime{10: 200 * ms}, used(t, w.pass()), "by its other descriptor")

	delete(w.Processes, 10)
	child.Parent = 1
	child.Files[0] = render(3, 1, gfx(900*ms))
	assert.Equal(t, map[int32]units.CPUTime{11: 400 * ms}, used(t, w.pass()), "it went on to the child")
}

func TestAClientBelongsToAParentOrToTheProcessThatStartedLast(t *testing.T) {
	type holder struct{ pid, parent, start int }
	for name, c := range map[string]struct {
		holders []holder // in the order in which they open it
		want    int32
	}{
		"a child":                               {[]holder{{10, 1, 1}, {11, 10, 3}}, 10},
		"a child that is looked at first":       {[]holder{{20, 1, 1}, {11, 20, 3}}, 20},
		"a session of a broker":                 {[]holder{{10, 1, 1}, {20, 1, 3}}, 20},
		"a session that is looked at first":     {[]holder{{20, 1, 1}, {11, 1, 3}}, 11},
		"a child with a broker after its start": {[]holder{{20, 1, 1}, {11, 20, 3}, {30, 1, 2}}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := watchAMD(t)
			open := func(u units.CPUTime) {
				for _, h := range c.holders {
					p := w.add(h.pid, h.parent, render(3, 1, gfx(u)))
					p.Start = int64(h.start)
				}
			}
			open(0)
			w.pass()
			open(100 * ms)
			assert.Equal(t, map[int32]units.CPUTime{c.want: 100 * ms}, used(t, w.pass()))
		})
	}
}

func TestWhatACounterStepsBackByIsNotCountedAgain(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "i915")
	p := w.add(10, 1)
	at := func(u units.CPUTime) map[int32]units.CPUTime {
		p.Files = []hostsim.OpenFile{render(3, 1, fmt.Sprintf("drm-engine-render:\t%d ns", u))}
		return used(t, w.pass(10))
	}
	at(5 * second)
	assert.Equal(t, 400*ms, at(5*second + 400*ms)[10])
	assert.Zero(t, at(5*second + 100*ms)[10])
	assert.Zero(t, at(5*second + 300*ms)[10])
	assert.Equal(t, 200*ms, at(5*second + 600*ms)[10])
	assert.Zero(t, at(1 << 63)[10], "garbage")
	assert.Equal(t, 100*ms, at(5*second + 700*ms)[10])
}

func TestAClientThatIsNew(t *testing.T) {
	tests := map[string]struct {
		open func(w *watched, client hostsim.OpenFile)
		want units.CPUTime
	}{
		"of a new process": {func(w *watched, c hostsim.OpenFile) { w.add(20, 1, c) }, 300 * ms},
		"of a process that had none at the last Read": {func(w *watched, c hostsim.OpenFile) {
			w.Processes[10].Files = []hostsim.OpenFile{c}
		}, 300 * ms},
		"inherited from before": {func(w *watched, _ hostsim.OpenFile) { w.add(20, 1, render(3, 1, gfx(900*second))) }, 0},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			w := watchAMD(t)
			w.add(10, 1)
			w.pass()
			w.pass(10)
			c.open(w, render(3, 1, gfx(300*ms)))
			for pid, u := range used(t, w.pass(10)) {
				assert.Equal(t, c.want, u, pid)
			}
		})
	}
}

// The kernel does not show the number of descriptors.
func TestClientsAreFoundBeforeLinux62(t *testing.T) {
	w := watch(t)
	w.source.reader.entries = func(int64) int64 { return 0 }
	w.addGPU(0, card, "amdgpu")
	w.add(10, 1, render(3, 1))
	w.add(11, 1)
	assert.Len(t, used(t, w.pass()), 1)
	w.pass(11)
	w.Processes[11].Files = append(w.Processes[11].Files, render(3, 2))
	w.pass(11)
	assert.Len(t, used(t, w.pass(11)), 2, "after the shortest pause")
}

func TestDriversCountInTheirOwnWays(t *testing.T) {
	const intel = "drm-driver:\txe\ndrm-client-id:\t4\ndrm-pdev:\t" + card
	tests := map[string]struct {
		platform     bool
		driver       string
		before, then string
		used, busy   units.CPUTime
	}{
		"xe counts cycles of all and the client's": {
			driver: "xe",
			before: intel + "\ndrm-cycles-ccs:\t100\ndrm-total-cycles-ccs:\t7655183225\ndrm-engine-capacity-ccs:\t4\ndrm-cycles-bcs:\t0\ndrm-total-cycles-bcs:\t7655183225",
			then:   intel + "\ndrm-cycles-ccs:\t38400100\ndrm-total-cycles-ccs:\t7674383225\ndrm-engine-capacity-ccs:\t4\ndrm-cycles-bcs:\t1920000\ndrm-total-cycles-bcs:\t7674383225",
			used:   600 * ms, busy: 500 * ms,
		},
		"i915 has several engines of a class": {
			driver: "i915",
			before: "drm-driver:\ti915\ndrm-pdev:\t" + card + "\ndrm-client-id:\t4\ndrm-engine-video:\t10 ns\ndrm-engine-capacity-video:\t2",
			then:   "drm-driver:\ti915\ndrm-pdev:\t" + card + "\ndrm-client-id:\t4\ndrm-engine-video:\t1000000010 ns\ndrm-engine-capacity-video:\t2",
			used:   500 * ms, busy: 500 * ms,
		},
		"msm counts time beside cycles": {
			driver: "msm", platform: true,
			before: "drm-driver:\tmsm\ndrm-client-id:\t4\ndrm-engine-gpu:\t100 ns\ndrm-cycles-gpu:\t5\ndrm-maxfreq-gpu:\t710000000 Hz",
			then:   "drm-driver:\tmsm\ndrm-client-id:\t4\ndrm-engine-gpu:\t250000100 ns\ndrm-cycles-gpu:\t75\ndrm-maxfreq-gpu:\t710000000 Hz",
			used:   250 * ms, busy: 250 * ms,
		},
		"panthor may count cycles only": {
			driver: "panthor", platform: true,
			before: "drm-driver:\tpanthor\ndrm-client-id:\t4\ndrm-cycles-panthor:\t5\ndrm-maxfreq-panthor:\t1000 MHz\ndrm-curfreq-panthor:\t500000000 Hz",
			then:   "drm-driver:\tpanthor\ndrm-client-id:\t4\ndrm-cycles-panthor:\t300000005\ndrm-maxfreq-panthor:\t1000 MHz\ndrm-curfreq-panthor:\t500000000 Hz",
			used:   300 * ms, busy: 300 * ms,
		},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			w, domain := watch(t), units.GPU(card)
			if c.platform {
				domain = units.GPU("ff9a0000.gpu")
				w.addDevice(0, "platform", "platform", "ff9a0000.gpu", c.driver)
			} else {
				w.addGPU(0, card, c.driver)
			}
			p := w.add(10, 1, node(3, 0, c.before))
			w.pass()
			p.Files[0] = node(3, 0, c.then)
			usage := w.pass(10)
			require.Len(t, usage, 1)
			assert.Equal(t, domain, usage[0].Domain)
			assert.Equal(t, c.busy, usage[0].Busy)
			assert.Equal(t, map[int32]units.CPUTime{10: c.used}, used(t, usage))
		})
	}
}

func TestAGPUWhoseDriverCountsNothingIsLeftOut(t *testing.T) {
	tests := map[string]struct{ driver, info string }{
		"nvidia":                     {"nvidia", "pos:\t0"},
		"nouveau":                    {"nouveau", "drm-driver:\tnouveau\ndrm-client-id:\t1\ndrm-pdev:\t" + card},
		"i915 before generation 8":   {"i915", "drm-driver:\ti915\ndrm-client-id:\t1\ndrm-pdev:\t" + card},
		"panfrost without profiling": {"panfrost", "drm-driver:\tpanfrost\ndrm-client-id:\t1\ndrm-maxfreq-fragment:\t800000000 Hz"},
		"a kernel before Linux 5.19": {"amdgpu", "pdev:\t0000:03:00.0\npasid:\t32769\ngfx0:\t12.00%"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.addGPU(0, card, c.driver)
			w.add(10, 1, node(3, 0, c.info))
			defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
				assert.False(t, c.driver == "nvidia" && strings.Contains(path, "/fd"), "%s need not be read", path)
				return got, err
			})()
			w.pass()
			assert.Empty(t, w.pass(10))
		})
	}
}

// addKFD adds a GPU to KFD's topology, with 100 compute units.
func (w *watched) addKFD(number int, id string, location int) {
	dir := fmt.Sprint("sys/class/kfd/kfd/topology/nodes/", number)
	w.Files[dir+"/gpu_id"] = id + "\n"
	w.Files[dir+"/properties"] = fmt.Sprintf("cpu_cores_count 0\nsimd_count 400\nsimd_per_cu 4\nlocation_id %d\ndomain 0\nnum_sdma_engines 2\n", location)
	w.Files["sys/class/kfd/kfd/topology/nodes/0/gpu_id"] = "0\n"
	w.Files["sys/class/kfd/kfd/topology/nodes/0/properties"] = "cpu_cores_count 64\nsimd_count 0\n"
}

// compute shows what a process does through KFD.
func (w *watched) compute(pid int, id string, occupied int, copied time.Duration) {
	dir := fmt.Sprint("sys/class/kfd/kfd/proc/", pid)
	w.Files[dir+"/stats_"+id+"/cu_occupancy"] = fmt.Sprintln(occupied)
	w.Files[dir+"/sdma_"+id] = fmt.Sprintln(copied.Microseconds())
}

func TestKFDsComputeIsOfTheSameGPUAsDRMsClients(t *testing.T) {
	w := watchAMD(t)
	w.addKFD(1, "4660", 0x300)
	p := w.add(10, 1, render(3, 1, gfx(0)))
	w.add(11, 1)
	w.compute(10, "4660", 0, 7*time.Second)
	w.pass()
	p.Files[0] = render(3, 1, gfx(100*ms))
	w.compute(10, "4660", 60, 7*time.Second+200*time.Millisecond)
	w.compute(11, "4660", 20, 100*time.Millisecond)
	usage := w.pass(10, 11)
	assert.Equal(t, 800*ms, usage[0].Busy, "of the compute units")
	assert.Equal(t, map[int32]units.CPUTime{10: 800 * ms, 11: 250 * ms}, used(t, usage))

	require.NoError(t, os.RemoveAll(filepath.Join(w.Root(), "sys/class/kfd/kfd/proc/11")))
	maps.DeleteFunc(w.Files, func(path, _ string) bool { return strings.Contains(path, "kfd/proc/11/") })
	assert.Equal(t, map[int32]units.CPUTime{10: 600 * ms}, used(t, w.pass(10)), "11 has closed it")
}

func TestAnSDMACounterThatRestedIsReportedWithinAFewReads(t *testing.T) {
	w := watch(t)
	w.addKFD(1, "7", 0x300)
	w.add(10, 1)
	w.compute(10, "7", 0, 0)
	for range 3 * sdmaRest {
		w.pass()
	}
	w.compute(10, "7", 0, 200*time.Millisecond)
	sum := units.CPUTime(0)
	for range sdmaRest {
		sum += used(t, w.pass())[10]
	}
	assert.Equal(t, 100*ms, sum, "of two engines")
}

func TestKFDsProcessesAreBounded(t *testing.T) {
	const gpus = 64
	w := watch(t)
	w.add(1, 0)
	for i := range gpus {
		w.addKFD(1+i, fmt.Sprint(1000+i), i<<8)
	}
	for pid := range maxClients/gpus + 10 {
		w.compute(1+pid, "1000", 1, 0)
	}
	w.pass()
	assert.Len(t, w.pass(1)[0].Users, maxClients/gpus)
}

func TestPartitionsOfAGPUAreOneGPU(t *testing.T) {
	w := watch(t)
	w.addKFD(1, "1", 0x300)
	w.addKFD(2, "2", 0x300|1<<28)
	w.add(10, 1)
	w.compute(10, "1", 0, 0)
	w.compute(10, "2", 0, 0)
	w.pass()
	w.compute(10, "2", 100, 0)
	usage := w.pass(10)
	assert.Equal(t, 500*ms, usage[0].Busy)
	assert.Equal(t, map[int32]units.CPUTime{10: 500 * ms}, used(t, usage))
}

// A job uses 40 % of a GPU that another process uses too, and closes the GPU in the next second.
func TestTheLastSliceOfAJobIsEstimated(t *testing.T) {
	for name, c := range map[string]struct {
		starts time.Duration    // before the last Read, if it is new
		other  [2]units.CPUTime // used by the other process in both seconds
		want   units.CPUTime    // last slice of the job
		busy   units.CPUTime
	}{
		"half of the second before":   {other: [2]units.CPUTime{100 * ms, 100 * ms}, want: 200 * ms, busy: 300 * ms},
		"at the rate since its start": {starts: 500 * time.Millisecond, want: 400 * ms, busy: 400 * ms},
		"no more than others leave":   {other: [2]units.CPUTime{0, 950 * ms}, want: 50 * ms, busy: second},
	} {
		t.Run(name, func(t *testing.T) {
			w := watchAMD(t)
			other, job := w.add(20, 1, render(3, 1, gfx(second))), w.add(10, 1)
			if c.starts == 0 {
				job.Files = append(job.Files, render(3, 2, gfx(0)))
			} else {
				delete(w.Processes, 10)
			}
			w.pass()
			if c.starts > 0 {
				job = w.add(10, 1)
				job.Start += int64((time.Second - c.starts) / hostsim.Tick)
			}
			job.Files = append(job.Files[:0], render(3, 2, gfx(400*ms)))
			other.Files[0] = render(3, 1, gfx(second+c.other[0]))
			w.pass(10, 20)
			before := w.Now()
			delete(w.Processes, 10)
			other.Files[0] = render(3, 1, gfx(second+c.other[0]+c.other[1]))
			usage := w.pass(20)
			assert.Equal(t, c.want, used(t, usage)[10])
			assert.Equal(t, c.busy, usage[0].Busy)
			for _, u := range usage[0].Users {
				assert.Equal(t, u.PIDs[0] == 10, u.Last.Equal(before), "a later process with the PID of the job did not use the GPU")
			}
			assert.NotContains(t, used(t, w.pass(20)), int32(10), "it is gone")
		})
	}
}
