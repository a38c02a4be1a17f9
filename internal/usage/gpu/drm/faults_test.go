// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/test/unprivileged"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func TestAProcessThatClosesAndOpensAgainKeepsOnlyItsNewClient(t *testing.T) {
	w := watchAMD(t)
	p := w.add(10, 1, render(3, 1, gfx(second)))
	w.pass()
	p.Files[0] = render(3, 2, gfx(300*ms))
	assert.Equal(t, map[int32]units.CPUTime{10: 300 * ms}, used(t, w.pass(10)), "all of the client that was opened meanwhile")
	assert.Len(t, w.source.clients.list, 1)
	p.Files[0] = hostsim.OpenFile{FD: 3, Target: "/dev/null", Info: "pos:\t0\n"}
	assert.Equal(t, map[int32]units.CPUTime{10: 150 * ms}, used(t, w.pass(10)), "until then, for half of the interval")
	assert.Empty(t, used(t, w.pass(10)))
	assert.Empty(t, w.source.clients.list)
	assert.Empty(t, w.source.clients.byKey)
}

func TestOnlyTextsOfClientsAreKeptOpen(t *testing.T) {
	w := watchAMD(t)
	kept := func(want int) {
		t.Helper()
		assert.Equal(t, want, w.source.clients.kept.Held)
		for _, c := range w.source.clients.list {
			assert.NotNil(t, c.text)
		}
	}
	p := w.add(10, 1, render(3, 1), render(4, 2))
	w.add(11, 1, render(3, 1))
	w.pass()
	w.pass()
	kept(2)
	p.Files = []hostsim.OpenFile{}
	assert.Equal(t, map[int32]units.CPUTime{11: 0}, used(t, w.pass(10)), "by the other process's descriptor")
	w.pass()
	kept(1)
	delete(w.Processes, 11)
	w.pass()
	kept(0)
}

func TestProcessesThatAreNotActiveAreSwept(t *testing.T) {
	w := watchAMD(t)
	for pid := 10; pid < 20+sweepRows; pid++ {
		w.add(pid, 1)
	}
	w.add(20+sweepRows, 1, render(3, 1))
	require.NoError(t, w.Render())
	require.NoError(t, w.processes.Scan(w.table, cpu.Request{}))
	w.table.Active = nil // as BPF reports it
	_, err := w.source.Read(w.Now(), w.table)
	require.NoError(t, err)
	assert.Len(t, w.source.clients.list, 1, "the first Read looks at all processes")

	p := w.Processes[sweepRows]
	p.Files, p.User = append(p.Files, render(3, 2)), p.User+1
	w.Run(time.Second, nil)
	require.NoError(t, w.Render())
	require.NoError(t, w.processes.Scan(w.table, cpu.Request{})) // a scan that the source does not see
	for range 3 {
		w.pass()
	}
	assert.Len(t, w.source.clients.list, 2)
}

func TestALookThatExceedsTheBudgetDelaysLaterLooks(t *testing.T) {
	w := watchAMD(t)
	w.add(9, 1)
	w.pass()
	w.source.finder.budget = -2 * perSecond
	w.add(10, 1, render(3, 1))
	assert.Empty(t, used(t, w.pass(10)))
	assert.Empty(t, used(t, w.pass(10)))
	assert.Len(t, used(t, w.pass(10)), 1)
}

func TestDescriptorsThatMayNotBeReadAreOneError(t *testing.T) {
	w := watchAMD(t)
	w.add(10, 1, render(3, 1))
	w.add(11, 1, render(3, 2))
	w.add(12, 1, render(3, 3))
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		assert.NotContains(t, path, "/11/fdinfo", "the text of a descriptor whose link may not be read")
		if strings.Contains(path, "/proc/11/fd") || strings.Contains(path, "/proc/12/fd/") {
			return nil, syscall.EACCES
		}
		return got, err
	})
	defer restore()
	for range 3 {
		w.Run(time.Second, map[int]int64{11: 1, 12: 1})
		usage, err := w.read()
		assert.EqualError(t, err, errDenied.Error())
		assert.Equal(t, map[int32]units.CPUTime{10: 0}, used(t, usage), "the rest goes on")
	}
	restore()
	delete(w.Processes, 11)
	assert.Len(t, used(t, w.pass(12)), 2, "and the error ends")
}

func TestASuspendedGPUIsNotWokenUp(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "xe")
	status := "sys/devices/pci0000:00/" + card + "/power/runtime_status"
	xe := func(cycles, total int) hostsim.OpenFile {
		return node(3, 0, "drm-driver:\txe\ndrm-client-id:\t4\ndrm-pdev:\t"+card, fmt.Sprint("drm-cycles-ccs:\t", cycles), fmt.Sprint("drm-total-cycles-ccs:\t", total))
	}
	w.Files[status] = "active\n"
	w.pass()
	w.Run(findEvery, nil) // the next Read opens the file again
	p := w.add(10, 1, xe(0, 900))
	w.add(11, 1)
	w.pass()
	p.Files[0] = xe(100, 1000)
	w.pass(10)
	w.Files[status] = "suspended\n"
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		assert.NotContains(t, path, "/fdinfo/", "this would wake it up")
		return got, err
	})
	defer restore()
	other := xe(1, 1180)
	other.Info = strings.Replace(other.Info, "client-id:\t4", "client-id:\t5", 1)
	w.Processes[11].Files = append(w.Processes[11].Files, other)
	for range 3 {
		usage := w.pass(10, 11)
		assert.Zero(t, usage[0].Total, "its energy waits")
	}
	restore()
	w.Files[status] = "active\n"
	p.Files[0] = xe(250, 1180)
	usage := w.pass(10, 11)
	assert.Equal(t, 2*second, usage[0].Total, "those in which it went to sleep and woke up")
	assert.Equal(t, second+500*ms, usage[0].Busy, "by the rate of its clock, which stood still while it slept")
	assert.Equal(t, map[int32]units.CPUTime{10: second + 500*ms, 11: 0}, used(t, usage), "11 opened it meanwhile")
	p.Files[0] = xe(300, 1280)
	assert.Equal(t, map[int32]units.CPUTime{10: 500 * ms, 11: 0}, used(t, w.pass(10)))
}

func TestAProcessWithManyDescriptors(t *testing.T) {
	w := watchAMD(t)
	hostile, many := w.add(10, 1), w.add(11, 1)
	for fd := range 1000 {
		hostile.Files = append(hostile.Files, render(fd, uint64(1000+fd)))
	}
	for fd := range 2500 {
		many.Files = append(many.Files, hostsim.OpenFile{FD: fd, Target: "pipe:[7]", Info: "pos:\t0\n"})
	}
	many.Files[2400] = render(2400, 1)
	for _, p := range []*hostsim.Process{hostile, many} {
		slices.Reverse(p.Files) // a tmpfs lists the last file first, and procfs the lowest descriptor
	}
	w.add(12, 1, render(3, 2))
	w.add(13, 1, render(lastDescriptor+1, 3))
	w.pass()
	c := &crowd{watched: w, active: []proc.Slot{1, 2}}
	for range 10 {
		c.pass()
		require.LessOrEqual(t, len(w.source.finder.look.entries), maxTexts)
		require.LessOrEqual(t, w.source.reader.files().found.seen, maxLook)
	}
	byPID := used(t, w.source.report(w.Now()))
	assert.Contains(t, byPID, int32(11))
	assert.Contains(t, byPID, int32(12))
	assert.Len(t, w.source.clients.list, maxOfProcess+2)
}

func TestAGPUThatCountsNoWavesIsBusyForThoseThatHoldItsMemory(t *testing.T) {
	const busy = "sys/devices/pci0000:00/" + card + "/gpu_busy_percent"
	w := watchAMD(t)
	w.addKFD(1, "7", 0x300)
	w.addKFD(2, "8", 0x300|1<<28) // a partition
	p := w.add(10, 1, render(3, 1))
	hold := func(pid, id string, mib uint64) {
		w.Files["sys/class/kfd/kfd/proc/"+pid+"/vram_"+id] = fmt.Sprintln(mib << 20)
	}
	w.Files[busy] = "0\n"
	hold("11", "7", 3<<10)
	hold("12", "7", 0)
	w.add(11, 1)
	w.pass()
	w.Files[busy] = "80\n"
	p.Files[0] = render(3, 1, gfx(300*ms))
	usage := w.pass(10)
	assert.Equal(t, 800*ms, usage[0].Busy)
	assert.Equal(t, map[int32]units.CPUTime{10: 300 * ms, 11: 500 * ms}, used(t, usage))

	hold("12", "7", 512)
	hold("12", "8", 512)
	usage = w.pass()
	assert.Equal(t, 800*ms, usage[0].Busy)
	assert.Equal(t, map[int32]units.CPUTime{10: 0, 11: 600 * ms, 12: 200 * ms}, used(t, usage), "3 GiB and 1 GiB")
	t.Attr("gpu-memory-amd", fmt.Sprintf("%v, %v", time.Duration(used(t, usage)[11]), time.Duration(used(t, usage)[12])))
}

func TestAProcessWhoseWavesCannotBeReadOnceGetsNoTimeByItsMemory(t *testing.T) {
	w := watchAMD(t)
	w.addKFD(1, "7", 0x300)
	w.add(11, 1)
	w.compute(11, "7", 60, 0)
	w.Files["sys/class/kfd/kfd/proc/11/vram_7"] = "1\n"
	w.Files["sys/devices/pci0000:00/"+card+"/gpu_busy_percent"] = "80\n"
	w.pass()
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, "cu_occupancy") {
			return nil, syscall.EIO
		}
		return got, err
	})()
	assert.Empty(t, used(t, w.pass()))
}

func TestAGPUWhoseComputeIsHiddenIsLeftOut(t *testing.T) {
	for file, blocks := range map[string]bool{"stats_7/cu_occupancy": false, "kfd/kfd/proc": true} {
		w := watch(t)
		w.guardEverything()
		w.addGPU(0, card, "amdgpu")
		w.addKFD(1, "7", 0x300)
		w.compute(11, "7", 5, 0)
		w.pass()
		released := make(chan struct{})
		restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
			switch {
			case !strings.HasSuffix(path, file):
				return got, err
			case blocks:
				<-released
			}
			return nil, syscall.EPERM
		})
		w.Run(time.Second, nil)
		usage, err := w.read()
		close(released)
		restore()
		assert.Empty(t, usage, file)
		assert.ErrorIs(t, err, errHidden, file)
	}
}

// Whatever files hold and however reads fail, GPU time is neither lost in overflows nor more than
// there is.
func TestFaults(t *testing.T) {
	w := watchAMD(t)
	w.addGPU(1, "0000:04:00.0", "xe")
	w.addKFD(1, "7", 0x300)
	random := rand.New(rand.NewPCG(1, 2))
	garbage := []string{"", "\n", "drm-", "drm-client-id:\t1", "drm-engine-gfx:\t18446744073709551615 ns\n", "drm-engine-:\t1 ns\n",
		"drm-pdev:\t" + card + "\ndrm-client-id:\t-1\n", "drm-client-id:\t1\ndrm-pdev:\t0000:04:00.0\ndrm-cycles-ccs:\t99999999999999999999\n"}
	defer kernfs.InjectFaults(func(_ string, got []byte, err error) ([]byte, error) {
		switch random.IntN(20) {
		case 0:
			return nil, []error{syscall.EIO, syscall.ENOENT, syscall.ESRCH, syscall.EACCES, syscall.EMFILE}[random.IntN(5)]
		case 1:
			return got[:random.IntN(len(got)+1)], err
		case 2:
			return []byte(garbage[random.IntN(len(garbage))]), err
		}
		return got, err
	})()
	total := units.CPUTime(0)
	for i := range 200 {
		for pid := 10; pid < 20; pid++ {
			if random.IntN(10) == 0 {
				delete(w.Processes, pid)
				continue
			}
			total += second / 20
			w.add(pid, 1, render(3, uint64(pid), gfx(total)), node(4, 1, "drm-driver:\txe\ndrm-client-id:\t1\ndrm-pdev:\t0000:04:00.0",
				fmt.Sprint("drm-cycles-ccs:\t", i*7), fmt.Sprint("drm-total-cycles-ccs:\t", i*random.IntN(100)), "drm-engine-capacity-ccs:\t3"))
		}
		w.compute(10+random.IntN(10), "7", random.IntN(300), time.Duration(random.Int64N(1e12)))
		w.Run(time.Second, nil)
		require.NoError(t, w.Render())
		if err := w.processes.Scan(w.table, cpu.Request{}); err != nil {
			continue
		}
		usage, _ := w.source.Read(w.Now(), w.table)
		for _, u := range usage {
			require.LessOrEqual(t, u.Busy, u.Total)
			for _, user := range u.Users {
				require.NotEmpty(t, user.PIDs)
				require.Less(t, user.Used, 600*second*maxEngines)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("drm-driver:\txe\ndrm-client-id:\t4\ndrm-pdev:\t0000:03:00.0\ndrm-cycles-ccs:\t100\ndrm-total-cycles-ccs:\t7\ndrm-engine-capacity-ccs:\t4\n"))
	f.Add([]byte("drm-engine-gfx:\t7 ns\ndrm-maxfreq-gpu: 3 MHz\ndrm-engine-capacity-:\t0\ndrm-client-name:\tdrm-client-id: 9\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var info fdinfo
		info.parse(text)
		require.LessOrEqual(t, len(info.engines), maxEngines)
		d := &device{elapsed: time.Second}
		c := &client{key: key{device: d}}
		for range 3 {
			c.count(&info, time.Now(), true)
			require.LessOrEqual(t, d.busy(), second)
		}
	})
}

func TestXesTimestampThatIsSetBackLosesNothing(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "xe")
	p := w.add(10, 1)
	at := func(cycles, total int) map[int32]units.CPUTime {
		p.Files = []hostsim.OpenFile{node(3, 0, "drm-driver:\txe\ndrm-client-id:\t4\ndrm-pdev:\t"+card,
			fmt.Sprint("drm-cycles-ccs:\t", cycles), fmt.Sprint("drm-total-cycles-ccs:\t", total))}
		return used(t, w.pass(10))
	}
	at(1000, 50_000)
	assert.Equal(t, 500*ms, at(6000, 60_000)[10])
	assert.Equal(t, 300*ms, at(9000, 70)[10], "by the rate of before")
	assert.Equal(t, 100*ms, at(10_000, 10_070)[10])
}

func TestSlotsMayBeRenumbered(t *testing.T) {
	w := watchAMD(t)
	for pid := 20; pid < 40; pid++ {
		w.add(pid, 1)
	}
	p := w.add(50, 1, render(3, 1), render(4, 1))
	w.pass()
	for pid := 20; pid < 40; pid++ {
		delete(w.Processes, pid)
	}
	w.pass()
	w.table.Shrink()
	p.Files = []hostsim.OpenFile{render(4, 1, gfx(400*ms))}
	assert.Equal(t, map[int32]units.CPUTime{50: 400 * ms}, used(t, w.pass(50)))
	assert.Len(t, w.source.processes.bySlot, len(w.table.Rows))
}

// The process runs in each second, in the last of which it opens a GPU.
func TestAGPUThatAProcessOpensLateIsFoundWithinSeconds(t *testing.T) {
	for stable, most := range map[int]int{2: 1, 10: 1, 40: 3, 230: 5} {
		w := watch(t)
		if w.source.reader.entries == nil {
			t.Skip("lacks /dev/shm: the kernel counts no descriptors of a copy")
		}
		w.addGPU(0, card, "amdgpu")
		p := w.add(10, 1, hostsim.OpenFile{FD: 0, Target: "/dev/null", Info: "pos:\t0\n"})
		p.Start = 1
		for range stable {
			w.pass(10)
		}
		p.Files = append(p.Files, render(3, 1))
		took := 0
		for ; len(w.source.clients.list) == 0; took++ {
			w.pass(10)
		}
		assert.LessOrEqual(t, took, most, "after %d s", stable)
	}
}

// passDenied lets a second pass in which the processes with the PIDs ran, and reads without the
// right to look into some directories of processes, such as 10/fd.
func (w *watched) passDenied(dirs []string, pids ...int) ([]gpu.Usage, error) {
	w.Helper()
	ran := map[int]int64{}
	for _, pid := range pids {
		ran[pid] = 1
	}
	w.Run(time.Second, ran)
	require.NoError(w, w.Render())
	require.NoError(w, w.processes.Scan(w.table, cpu.Request{}))
	require.NoError(w, os.Chmod(w.Root(), 0o755))
	for _, dir := range dirs {
		path := filepath.Join(w.Root(), "proc", dir)
		require.NoError(w, os.Chmod(path, 0))
		defer func() { require.NoError(w, os.Chmod(path, 0o755)) }()
	}
	defer unprivileged.Reads(w)()
	return w.source.Read(w.Now(), w.table)
}

// other is a descriptor that is not a GPU's.
func other(fd int) hostsim.OpenFile {
	return hostsim.OpenFile{FD: fd, Target: "socket:[7]", Info: "pos:\t0\nflags:\t02\n"}
}

// The error is there only while something may be unknown.
func TestWhatMayNotBeReadIsNoErrorWhereNothingIsUnknown(t *testing.T) {
	dirs := []string{"10/fd", "10/fdinfo"}
	tests := map[string]struct {
		driver string
		files  []hostsim.OpenFile
		state  byte
		err    error
	}{
		"a process with descriptors":   {"amdgpu", []hostsim.OpenFile{other(0)}, 'S', errDenied},
		"one without":                  {"amdgpu", nil, 'S', nil},
		"a zombie":                     {"amdgpu", []hostsim.OpenFile{other(0)}, 'Z', nil},
		"a driver that counts nothing": {"nouveau", []hostsim.OpenFile{other(0)}, 'S', nil},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.addGPU(0, card, c.driver)
			w.add(9, 1, other(0))
			p := w.add(10, 1, other(0))
			p.State = c.state
			require.NoError(t, w.Render())
			p.Files = append([]hostsim.OpenFile{}, c.files...)
			for range 3 {
				_, err := w.passDenied(dirs, 10)
				require.ErrorIs(t, err, c.err)
			}
		})
	}
}
