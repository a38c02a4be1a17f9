// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tick is the unit of the CPU times below: 10 ms, as USER_HZ is 100.
const Tick = 10 * time.Millisecond

// Host is the state of a made-up host. Change it as you like, then Render it.
type Host struct {
	// Uptime is the time since boot, and Booted when that was by the wall clock.
	Uptime time.Duration
	Booted time.Time
	CPUs   int
	CPU    CPU
	// EachCPU are the lines of the CPUs that follow in /proc/stat, by number: of as many as are online, none if it is nil.
	EachCPU []CPU
	// Topology is where CPUs are, by number.
	Topology []Place
	// HiddenThreads are tasks that exist and no directory of /proc shows.
	HiddenThreads int
	Processes     map[int]*Process
	Zones         map[string]*Zone
	// Cgroups are the usage counters, by path, of the v2 hierarchy that is mounted at /sys/fs/cgroup.
	Cgroups map[string]time.Duration
	// Memory is what cgroups of that hierarchy are charged with, in bytes, by path. One that is not named tells none.
	Memory map[string]uint64
	// Clocks are the clock rates of the CPUs that cpufreq tells, in kHz, by number.
	Clocks map[int]int64
	// Suspended is how much of Uptime the machine slept, which its monotonic clock does not count.
	Suspended time.Duration
	// ClockStep is how far its wall clock was set ahead since it booted, or back.
	ClockStep time.Duration
	// Cached says that nobody else changes the files: what was written once is not looked at again.
	Cached bool

	root         string
	written      map[string]string
	shownCgroups map[string]bool
}

// CPU is a line of /proc/stat, in ticks.
type CPU struct{ User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Steal, Guest, GuestNice int64 }

// Place is where a CPU is.
type Place struct{ Package, Die int }

func (c CPU) String() string {
	return fmt.Sprintf("%d %d %d %d %d %d %d %d %d %d", c.User, c.Nice, c.System, c.Idle, c.IOWait, c.IRQ, c.SoftIRQ, c.Steal,
		c.Guest, c.GuestNice)
}

// Process is one directory of /proc. Times are in ticks.
type Process struct {
	Parent         int
	Comm           string
	State          byte // 'S' when 0
	Threads        int  // 1 when 0
	Kernel         bool
	Start          int64 // since boot
	User, System   int64
	CUser, CSystem int64
	Exe            string // the target of the link; there is none when empty
	Args           []string
	Cgroup         string // the whole file, without the last newline; "0::/" when empty
	Resident       int64  // pages
	LastCPU        int
	IgnoresSIGCHLD bool
}

// Zone is one powercap zone, in µJ.
type Zone struct {
	Name   string
	Energy uint64
	Max    uint64
	// Content replaces the energy counter's text if it is not empty.
	Content string
	// NoMax leaves max_energy_range_uj out.
	NoMax bool
}

// New returns a host with one CPU that booted 1,000 s ago, and an init process, rendered below root.
func New(root string) *Host {
	h := &Host{
		Uptime:    1000 * time.Second,
		Booted:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		CPUs:      1,
		Topology:  []Place{{}},
		Processes: map[int]*Process{1: {Comm: "init", Exe: "/sbin/init", Args: []string{"/sbin/init"}}},
		Zones:     map[string]*Zone{},
		Cgroups:   map[string]time.Duration{},
		Memory:    map[string]uint64{},
		Clocks:    map[int]int64{},
		root:      root,
		written:   map[string]string{},

		shownCgroups: map[string]bool{},
	}
	h.CPU.Idle = int64(h.Uptime / Tick)
	return h
}

// Root is where the host is rendered.
func (h *Host) Root() string { return h.root }

// Now is a reading of the host's clocks: the wall clock, and with it the monotonic clock, as time.Now has them.
func (h *Host) Now() time.Time {
	return reading(h.Booted.Add(h.Uptime+h.ClockStep), h.Uptime-h.Suspended)
}

// Run lets time pass. Each process uses as many ticks of user time as used says; the CPUs are idle for
// the rest.
func (h *Host) Run(d time.Duration, used map[int]int64) {
	h.Uptime += d
	idle := int64(d/Tick) * int64(h.CPUs)
	for pid, n := range used {
		h.Processes[pid].User += n
		h.CPU.User += n
		idle -= n
	}
	h.CPU.Idle += max(idle, 0)
}

// Render writes the trees.
func (h *Host) Render() error {
	r := renderer{root: h.root}
	if h.Cached {
		r.written = h.written
	}
	proc := func(name string) string { return filepath.Join("proc", name) }
	c := h.CPU
	var each strings.Builder
	for cpu, c := range h.EachCPU[:min(len(h.EachCPU), h.CPUs)] {
		fmt.Fprintf(&each, "cpu%d %v\n", cpu, c)
	}
	r.write(proc("stat"), fmt.Sprintf("cpu  %v\n%sbtime %d\n", c, each.String(), h.Booted.Unix()))
	r.write(proc("uptime"), fmt.Sprintf("%.2f %.2f\n", h.Uptime.Seconds(), float64(c.Idle)/100))
	threads := h.HiddenThreads
	for _, pid := range slices.Sorted(maps.Keys(h.Processes)) {
		p := h.Processes[pid]
		threads += max(p.Threads, 1)
		r.process(proc(strconv.Itoa(pid)), pid, p)
	}
	r.write(proc("loadavg"), fmt.Sprintf("0.00 0.01 0.05 1/%d 4321\n", threads))
	r.write(proc("1/mountinfo"), "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")
	r.prune("proc", func(name string) bool {
		pid, err := strconv.Atoi(name)
		return err == nil && h.Processes[pid] == nil
	})

	for id, z := range h.Zones {
		dir := filepath.Join("sys/class/powercap", id)
		r.write(filepath.Join(dir, "name"), z.Name+"\n")
		content := z.Content
		if content == "" {
			content = strconv.FormatUint(z.Energy, 10) + "\n"
		}
		r.write(filepath.Join(dir, "energy_uj"), content)
		if !z.NoMax {
			r.write(filepath.Join(dir, "max_energy_range_uj"), strconv.FormatUint(z.Max, 10)+"\n")
		}
	}
	r.prune("sys/class/powercap", func(name string) bool { return h.Zones[name] == nil })
	r.write("sys/devices/system/cpu/online", fmt.Sprintf("0-%d\n", max(h.CPUs, 1)-1))
	for cpu, place := range h.Topology {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		r.write(dir+"physical_package_id", strconv.Itoa(place.Package)+"\n")
		r.write(dir+"die_id", strconv.Itoa(place.Die)+"\n")
	}
	for path := range h.shownCgroups {
		if _, ok := h.Cgroups[path]; !ok {
			r.remove(filepath.Join("sys/fs/cgroup", path))
			delete(h.shownCgroups, path)
		}
	}
	for path, usage := range h.Cgroups {
		h.shownCgroups[path] = true
		r.write(filepath.Join("sys/fs/cgroup", path, "cpu.stat"),
			fmt.Sprintf("usage_usec %d\nuser_usec 0\nsystem_usec 0\n", usage.Microseconds()))
		if charged, ok := h.Memory[path]; ok {
			r.write(filepath.Join("sys/fs/cgroup", path, "memory.current"), strconv.FormatUint(charged, 10)+"\n")
		}
	}
	for cpu, rate := range h.Clocks {
		r.write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", cpu), strconv.FormatInt(rate, 10)+"\n")
	}
	return r.err
}

// renderer writes files below a root and keeps the first error.
type renderer struct {
	root    string
	written map[string]string // what is there, by name, where nobody else writes; else nil
	err     error
}

func (r *renderer) process(dir string, pid int, p *Process) {
	state, flags := p.State, 0x400000
	if state == 0 {
		state = 'S'
	}
	if p.Kernel {
		flags = 0x208040
	}
	r.write(filepath.Join(dir, "stat"), fmt.Sprintf("%d (%s) %c %d %d %d 0 -1 %d 0 0 0 0 %d %d %d %d 20 0 %d 0 %d 0 %d%s %d%s\n",
		pid, p.Comm, state, p.Parent, pid, pid, flags, p.User, p.System, p.CUser, p.CSystem, max(p.Threads, 1), p.Start,
		p.Resident, strings.Repeat(" 0", 14), p.LastCPU, strings.Repeat(" 0", 13)))
	if p.IgnoresSIGCHLD {
		r.write(filepath.Join(dir, "status"), "Name:\t"+p.Comm+"\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000011000\nSigCgt:\t0000000000000000\n")
	}
	cgroup := p.Cgroup
	if cgroup == "" {
		cgroup = "0::/"
	}
	r.write(filepath.Join(dir, "cgroup"), cgroup+"\n")
	args := strings.Join(p.Args, "\x00")
	if args != "" {
		args += "\x00"
	}
	r.write(filepath.Join(dir, "cmdline"), args)
	r.link(filepath.Join(dir, "exe"), p.Exe)
}

func (r *renderer) write(name, content string) {
	path := filepath.Join(r.root, name)
	if r.written != nil {
		if old, ok := r.written[name]; ok && old == content {
			return
		}
		r.written[name] = content
	} else if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return
	}
	err := os.WriteFile(path, []byte(content), 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
	}
	r.fail(err)
}

func (r *renderer) link(name, target string) {
	path := filepath.Join(r.root, name)
	if r.written != nil {
		if old, ok := r.written[name]; ok && old == target {
			return
		}
		r.written[name] = target
	} else if old, err := os.Readlink(path); err == nil && old == target {
		return
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fail(err)
	}
	if target != "" {
		r.fail(os.Symlink(target, path))
	}
}

// prune removes the entries of a directory that are no more.
func (r *renderer) prune(dir string, gone func(name string) bool) {
	entries, err := os.ReadDir(filepath.Join(r.root, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fail(err)
	}
	for _, e := range entries {
		if gone(e.Name()) {
			r.remove(filepath.Join(dir, e.Name()))
		}
	}
}

func (r *renderer) remove(dir string) {
	r.fail(os.RemoveAll(filepath.Join(r.root, dir)))
	maps.DeleteFunc(r.written, func(name, _ string) bool { return strings.HasPrefix(name, dir+"/") })
}

func (r *renderer) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
