// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// benchGPUs and benchGPUUsers are how many GPUs, and processes that use one of them, BenchmarkGPUs has.
const benchGPUs, benchGPUUsers = 16, 200

// BenchmarkGPUs measures the receiver with a collection every second, beside a crowd of processes
// of which one in a hundred is active: without GPUs, and with 16 GPUs that 200 of the processes
// use, read by fdinfo and by a library. The CPU time is that of the whole process, with that of the
// goroutines that poll. ns/op has no meaning here.
func BenchmarkGPUs(b *testing.B) {
	for _, n := range crowds(b) {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			keepCrowd(b)(crowd.Start(b.TempDir(), n, n/100))
			cards := newBenchCards(b)
			for _, kind := range []cpu.SourceKind{cpu.KindProcfs, cpu.KindBPF} {
				without := 0.0
				for _, variant := range []string{"none", "fdinfo", "library"} {
					b.Run(string(kind)+"/"+variant, func(b *testing.B) {
						used := cards.measure(b, kind, variant)
						if variant == "none" {
							without = used
						} else {
							b.ReportMetric(used/without, "ratio")
						}
					})
				}
			}
		})
	}
}

// measure returns the CPU time of a second with a collection, in µs.
func (c *benchCards) measure(b *testing.B, kind cpu.SourceKind, variant string) (used float64) {
	s := startScraper(b, realConfig(kind, 0, func(cfg *Config) {
		cfg.RootPath, cfg.Meters.Use = c.roots[variant], drivers.Local()
		if variant == "library" {
			cfg.Meters.GPU.Extensions = []component.ID{libraryID}
		}
	}), libraryHost{library: &benchLibrary{cards: c}})
	m := windows.NewMetronome(time.Second)
	defer m.Stop()
	settling := 3 // the first polls, and the first look at all processes
	if variant == "fdinfo" {
		settling = 65 // until the descriptors of old processes are counted as rarely as possible
	}
	for passes := 0; passes < settling || variant != "none" && usersOf(s) < len(c.users); passes++ {
		require.Less(b, passes, 120)
		m.Next()
		c.run(b)
		collect(b, s)
	}
	before, excluded := cpuTime(b), time.Duration(0)
	for b.Loop() {
		m.Next()
		began := cpuTime(b) // in all variants, as it also leaves cold caches and garbage
		c.run(b)
		excluded += cpuTime(b) - began
		collect(b, s)
	}
	used = float64((cpuTime(b) - before - excluded).Microseconds()) / float64(b.N)
	b.ReportMetric(used, "cpu-µs/op")
	active := s.attributor.Ledger.Kinds[slices.Index(s.attributor.Kinds, power.Class{Zone: power.GPU, Method: power.Measured})].Active
	require.Equal(b, variant != "none", active > 0)
	return used
}

// usersOf returns how many processes are known to use a GPU, each of which uses one.
func usersOf(s *energyScraper) (n int) {
	for i := range s.meters.GPUs.Usage {
		n += len(s.meters.GPUs.Usage[i].Users)
	}
	return n
}

// benchCards are simulated cards in roots with this machine's processes, some of which have them open.
type benchCards struct {
	machine  *hostsim.Machine
	roots    map[string]string
	users    []int // PIDs
	contexts []*hostsim.Context
	pkg      uint64 // energy of the CPU package, in µJ
}

func newBenchCards(b *testing.B) *benchCards {
	c := &benchCards{roots: map[string]string{}}
	c.roots["none"], c.roots["fdinfo"], c.roots["library"] = treeDir(b), treeDir(b), treeDir(b)
	c.machine = hostsim.NewMachine(c.roots["fdinfo"], &hostsim.Socket{CPUs: 1})
	curve, err := model.Linear(30, 300)
	require.NoError(b, err)
	for i := range benchGPUs {
		c.machine.AddGPU(&hostsim.GPU{
			Address: fmt.Sprintf("0000:%02x:00.0", 0x10+i), Driver: "xe", Idle: 30, Curve: curve,
			Engines: []hostsim.Engine{{Name: "rcs", Weight: 1}, {Name: "ccs", Weight: 1}, {Name: "bcs"}, {Name: "vcs"}, {Name: "vecs"}},
		})
	}
	c.findUsers(b)
	for i := range c.users {
		context := c.machine.Init().OpenGPU(c.machine.GPUs[i%benchGPUs])
		context.Demand[1] = float64(i%7) / 100
		c.contexts = append(c.contexts, context)
	}
	require.NoError(b, c.machine.RenderSensors())
	for _, root := range c.roots {
		c.linkProcesses(b, root)
		c.addPackage(b, root)
	}
	c.run(b)
	return c
}

// findUsers takes processes of the crowd that sleep: those that began last.
func (c *benchCards) findUsers(b *testing.B) {
	proc, err := procfs.NewFS("/proc")
	require.NoError(b, err)
	all, err := proc.AllProcs()
	require.NoError(b, err)
	for _, p := range slices.Backward(all) {
		if comm, err := p.Comm(); err == nil && comm == "crowd" && len(c.users) < benchGPUUsers {
			c.users = append(c.users, p.PID)
		}
	}
}

// linkProcesses fills a root's proc with links to the processes of this machine. Those that use a
// card have files of their own for their descriptors.
func (c *benchCards) linkProcesses(b *testing.B, root string) {
	dir := filepath.Join(root, "proc")
	require.NoError(b, os.MkdirAll(dir, 0o700))
	require.NoError(b, os.MkdirAll(filepath.Join(root, "sys"), 0o700))
	link := func(from, to string) {
		entries, err := os.ReadDir(from)
		require.NoError(b, err)
		for _, e := range entries {
			switch name := e.Name(); name {
			case "fd", "fdinfo":
			case "self":
				require.NoError(b, os.Symlink(strconv.Itoa(os.Getpid()), filepath.Join(to, name)))
			default:
				require.NoError(b, os.Symlink(filepath.Join(from, name), filepath.Join(to, name)))
			}
		}
	}
	link("/proc", dir)
	for _, name := range []string{"fs", "devices/system"} {
		path := filepath.Join(root, "sys", name)
		require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(b, os.Symlink(filepath.Join("/sys", name), path))
	}
	for i, pid := range c.users {
		own := filepath.Join(dir, strconv.Itoa(pid))
		require.NoError(b, os.Remove(own))
		require.NoError(b, os.MkdirAll(filepath.Join(own, "fd"), 0o700))
		require.NoError(b, os.MkdirAll(filepath.Join(own, "fdinfo"), 0o700))
		link(filepath.Join("/proc", strconv.Itoa(pid)), own)
		for fd, target := range []string{"/dev/null", "/dev/null", "/dev/null", fmt.Sprintf("/dev/dri/renderD%d", 128+i%benchGPUs)} {
			require.NoError(b, os.Symlink(target, filepath.Join(own, "fd", strconv.Itoa(fd))))
			require.NoError(b, os.WriteFile(filepath.Join(own, "fdinfo", strconv.Itoa(fd)), []byte("pos:\t0\nflags:\t02\nmnt_id:\t24\n"), 0o600))
		}
	}
}

// addPackage gives a root a CPU package with an energy counter, so that processes have metrics without GPUs, too.
func (c *benchCards) addPackage(b *testing.B, root string) {
	zone := filepath.Join(root, "sys/class/powercap/intel-rapl:0")
	require.NoError(b, os.MkdirAll(zone, 0o700))
	require.NoError(b, os.WriteFile(filepath.Join(zone, "name"), []byte("package-0\n"), 0o600))
	require.NoError(b, os.WriteFile(filepath.Join(zone, "max_energy_range_uj"), []byte("262143328850\n"), 0o600))
}

// run lets a second pass, and writes what the drivers show.
func (c *benchCards) run(b *testing.B) {
	c.pkg += 50_000_000
	for _, root := range c.roots {
		name := filepath.Join(root, "sys/class/powercap/intel-rapl:0/energy_uj")
		require.NoError(b, os.WriteFile(name, fmt.Appendln(nil, c.pkg), 0o600))
	}
	c.machine.Step(time.Second)
	require.NoError(b, c.machine.RenderSensors())
	for i, pid := range c.users { // overwritten in place, because new pages would cost time that the kernel's texts do not
		file, err := os.OpenFile(filepath.Join(c.roots["fdinfo"], "proc", strconv.Itoa(pid), "fdinfo/3"), os.O_WRONLY, 0)
		require.NoError(b, err)
		n, err := file.WriteString(c.contexts[i].Info())
		require.NoError(b, errors.Join(err, file.Truncate(int64(n)), file.Close()))
	}
}

// benchLibrary reports the same cards and users in every poll. The cost of a poll is that of
// building the answer.
type benchLibrary struct {
	component.StartFunc
	component.ShutdownFunc
	cards   *benchCards
	began   time.Time
	last    time.Time
	devices []gpulibrary.Device
}

func (l *benchLibrary) Open() gpulibrary.Reader {
	l.began = time.Now()
	for i, g := range l.cards.machine.GPUs {
		d := gpulibrary.Device{ID: fmt.Sprintf("GPU-%d", i), Name: "card", Vendor: "NVIDIA", PCIAddress: g.Address, MaxWatts: 1000}
		for k := i; k < len(l.cards.users); k += benchGPUs {
			d.Users = append(d.Users, gpulibrary.User{PIDs: []int32{int32(l.cards.users[k])}})
		}
		l.devices = append(l.devices, d)
	}
	return l
}

func (l *benchLibrary) Poll(context.Context) ([]gpulibrary.Device, error) {
	now := time.Now()
	var elapsed time.Duration
	if !l.last.IsZero() {
		elapsed = now.Sub(l.last)
	}
	l.last = now
	for i := range l.devices {
		d := &l.devices[i]
		d.At, d.Energy = now, uint64(now.Sub(l.began).Microseconds())*100
		d.Elapsed, d.Busy = elapsed, elapsed/2
		for k := range d.Users {
			d.Users[k].Used, d.Users[k].Last = elapsed*time.Duration(k%7)/100, now
		}
	}
	return l.devices, nil
}

func (l *benchLibrary) Close() error { return nil }

// libraryHost has the extension, if there is one.
type libraryHost struct {
	simHost
	library component.Component
}

var libraryID = component.MustNewID("nvml")

func (h libraryHost) GetExtensions() map[component.ID]component.Component {
	if h.library == nil {
		return nil
	}
	return map[component.ID]component.Component{libraryID: h.library}
}
