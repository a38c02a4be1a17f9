// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/cray"
	"github.com/energyreceiver/energyreceiver/internal/power/hwmon"
	"github.com/energyreceiver/energyreceiver/internal/power/ipmi"
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
	"github.com/energyreceiver/energyreceiver/internal/power/perf"
	"github.com/energyreceiver/energyreceiver/internal/power/powercap"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

var errNoCPUs = errors.New("the CPUs of this machine are not known")

// release is the part of a kernel's release that does not name its builder.
var release = regexp.MustCompile(`^\d+(\.\d+)*`)

// readMachine describes the machine below root. allowed are the CPUs that may be used, nil for all.
func readMachine(root string, allowed []int) (Machine, error) {
	known, err := machine.Read(root, os.Getenv)
	if err != nil && known.Threads == 0 {
		return Machine{}, err
	}
	version, _ := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	m := Machine{
		CPU: known.CPU, Arch: known.Arch, Kernel: release.FindString(string(version)), Virtual: known.Virtual,
		Sockets: known.Sockets, Cores: known.Cores, Threads: known.Threads, MemoryGiB: float64(known.Memory) / (1 << 30),
	}
	dirs, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu[0-9]*"))
	for _, dir := range dirs {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "cpu"))
		socket, ok := readInt(filepath.Join(dir, "topology/physical_package_id"))
		if err != nil || !ok || allowed != nil && !slices.Contains(allowed, number) { // offline ones have no topology
			continue
		}
		core, _ := readInt(filepath.Join(dir, "topology/core_id"))
		m.CPUs = append(m.CPUs, CPU{Number: number, Socket: max(socket, 0), Core: core, Capacity: capacity(root, dir, number)})
	}
	m.Sockets = max(m.Sockets, m.sockets())
	slices.SortFunc(m.CPUs, func(a, b CPU) int { return a.Number - b.Number })
	if len(m.CPUs) == 0 {
		return m, errNoCPUs
	}
	return m, nil
}

// sockets returns the number of sockets of the CPUs.
func (m *Machine) sockets() int {
	found := map[int]bool{}
	for _, c := range m.CPUs {
		found[c.Socket] = true
	}
	return len(found)
}

const fullCapacity = 1024

// capacity returns the capacity of a CPU. Intel's efficient cores, of which only the kind is known,
// get half of the largest.
func capacity(root, dir string, number int) int {
	if c, ok := readInt(filepath.Join(dir, "cpu_capacity")); ok {
		return c
	}
	efficient, _ := os.ReadFile(filepath.Join(root, "sys/devices/cpu_atom/cpus"))
	found := fullCapacity
	_ = kernfs.ParseList(efficient, func(n int) { // the list is empty if all cores are of one kind
		if n == number {
			found = fullCapacity / 2
		}
	})
	return found
}

func readInt(path string) (int, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}

// localMeters returns the local meters, which are read whether or not the receiver uses them. Meters
// with settings of their own are the receiver's.
func localMeters(cfg *energyreceiver.Config) []ownMeter {
	root, every := cfg.RootPath, cfg.Meters.IPMI.PollInterval
	meters := []ownMeter{
		{name: "perf", meter: perf.New(root, nil)},
		{name: "cray", meter: cray.New(root, nil)},
		{name: "ipmi", meter: power.NewPoller(ipmi.New(root, every), power.PollOptions{Name: "ipmi", Every: every})},
	}
	if cfg.Meters.Powercap.Path == "" {
		meters = append(meters, ownMeter{name: "powercap", meter: powercap.New(root, nil)})
	}
	if len(cfg.Meters.Hwmon.Sensors) == 0 {
		meters = append(meters, ownMeter{name: "hwmon", meter: hwmon.New(hwmon.Options{Root: root})})
	}
	return meters
}

func joules(e units.Energy) float64 { return float64(e) / float64(units.Joule) }

// socketOf returns the socket that a zone measures, -1 if it is of no single socket.
func socketOf(z *power.Zone) int {
	rest, ok := strings.CutPrefix(string(z.Domain), "package-")
	number, _, _ := strings.Cut(rest, "-")
	if socket, err := strconv.Atoi(number); ok && err == nil {
		return socket
	}
	return -1
}

// publicID returns the ID of a zone without a name that the user chose, or a serial number: such
// zones are numbered.
func publicID(meter string, z *power.Zone, known []*Zone) string {
	if slices.Contains([]string{"powercap", "perf", "cray", "hwmon", "ipmi"}, meter) {
		return z.ID
	}
	n := 1
	for _, k := range known {
		if k.Meter == meter {
			n++
		}
	}
	return fmt.Sprintf("%s %d", z.Kind, n)
}

// thermometers are files with temperatures in m°C.
type thermometers []string

// maxThermometers is how many temperature sensors are read.
const maxThermometers = 16

// processorSensors are the hwmon drivers of processors' temperatures. Others, such as those of
// disks, may be slow to read.
var processorSensors = []string{"coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz", "soc_thermal"}

func findThermometers(root string) (found thermometers) {
	found, _ = filepath.Glob(filepath.Join(root, "sys/class/thermal/thermal_zone*/temp"))
	chips, _ := filepath.Glob(filepath.Join(root, "sys/class/hwmon/hwmon*"))
	for _, chip := range chips {
		name, _ := os.ReadFile(filepath.Join(chip, "name"))
		if slices.Contains(processorSensors, strings.TrimSpace(string(name))) {
			inputs, _ := filepath.Glob(filepath.Join(chip, "temp*_input"))
			found = append(found, inputs...)
		}
	}
	return found[:min(len(found), maxThermometers)]
}

// read appends the temperatures of a time to their series.
func (t thermometers) read(series [][]Point, at float64) [][]Point {
	for i, path := range t {
		if i == len(series) {
			series = append(series, nil)
		}
		if milli, ok := readInt(path); ok {
			series[i] = append(series[i], Point{at, float64(milli) / 1000})
		}
	}
	return series
}

// readCPUs records the busy time of each CPU, and returns their sum.
func (r *recorder) readCPUs() (sum units.CPUTime) {
	stat, err := r.proc.Stat()
	if err != nil {
		return 0
	}
	at := r.seconds(time.Now())
	for number, c := range stat.CPU {
		busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ
		for int(number) >= len(r.o.Busy) {
			r.o.Busy = append(r.o.Busy, nil)
		}
		r.o.Busy[number] = append(r.o.Busy[number], Point{at, busy})
		sum += units.CPUTime(busy * 1e9)
	}
	return sum
}

// timeSource is a CPU time source that is read in addition to the receiver's.
type timeSource struct {
	name   string
	source cpu.Source
	err    error // why there is none
	table  *scan.Table
}

// openTimes opens BPF and procfs.
func openTimes(root string) []timeSource {
	sources := []timeSource{{name: "procfs", source: cpu.NewProcfs(root), table: new(scan.Table)}}
	bpf, err := cpu.OpenBPF(cpu.Options{Root: root})
	if err != nil {
		return append(sources, timeSource{name: "bpf", source: noSource{}, err: err})
	}
	return append(sources, timeSource{name: "bpf", source: bpf, table: new(scan.Table)})
}

// noSource stands in for a source that cannot be opened.
type noSource struct{ cpu.Source }

func (noSource) Close() error { return nil }

// timesOf returns the name of the better source, and why BPF is not used.
func timesOf(sources []timeSource) (name, noBPF string) {
	for _, s := range sources {
		if s.err != nil {
			noBPF = firstLine(s.err)
		} else {
			name = s.name
		}
	}
	return name, noBPF
}

// cpuTimes returns the CPU times of processes in seconds by a source, -1 for a process that it lacks.
func cpuTimes(sources []timeSource, name string, pids []int) []float64 {
	times := slices.Repeat([]float64{-1}, len(pids))
	for _, s := range sources {
		if s.name != name || s.err != nil || s.source.ReadProcesses(s.table) != nil {
			continue
		}
		for i, pid := range pids {
			for j := range s.table.Processes {
				if p := &s.table.Processes[j]; int(p.PID) == pid {
					times[i] = float64(p.CPU) / 1e9
				}
			}
		}
	}
	return times
}
