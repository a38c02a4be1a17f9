// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Tick is the unit of the CPU times below: 10 ms, as USER_HZ is 100.
const Tick = 10 * time.Millisecond

// Host is the state of a simulated host. Change its fields, then call Render.
type Host struct {
	// Uptime is the time since boot. Booted is the wall-clock time of boot.
	Uptime time.Duration
	Booted time.Time
	CPUs   int
	CPU    CPU
	// EachCPU holds the per-CPU lines of /proc/stat, by CPU number. If it is empty, /proc/stat has
	// only the total.
	EachCPU []CPU
	// Topology holds the position of each CPU, by number.
	Topology []Place
	// HiddenThreads is the number of tasks without a directory in /proc.
	HiddenThreads int
	// LastPID is the ID of the newest task, Created the number of tasks created since boot, and
	// MaxPID the value of kernel.pid_max. If Created or MaxPID is 0, the host does not show it.
	LastPID   int
	Created   uint64
	MaxPID    int
	Processes map[int]*Process
	Zones     map[string]*Zone
	// Cgroups is the CPU time counter of each cgroup, by path in the v2 hierarchy at
	// /sys/fs/cgroup.
	Cgroups map[string]time.Duration
	// Memory is memory.current in bytes, by cgroup path. Other cgroups have no such file.
	Memory map[string]uint64
	// NodeMemory is the part of Memory on each NUMA node, in bytes. Cgroups without an entry have
	// no memory.numa_stat.
	NodeMemory map[string][]uint64
	// Clocks is the clock rate of CPUs in kHz, by number. The tree does not show it.
	Clocks map[int]int64
	// Files holds the contents of other files by path below the root, Links the targets of links.
	Files, Links map[string]string
	// Suspended is the time that the machine slept, part of Uptime. The monotonic clock omits it.
	Suspended time.Duration
	// ClockStep is the sum of all changes of the wall clock since boot, negative if it was set
	// back.
	ClockStep time.Duration
	// Cached makes Render skip files with unchanged content. No one else may change the files.
	Cached bool

	root         string
	written      map[string]string
	shownCgroups map[string]bool
	// shownCPUs and shownTopology are the values of the last render.
	shownCPUs     int
	shownTopology []Place
	shownFiles    map[int]bool // by process id
	// processes and usage are the last output of Render, if Cached.
	processes map[int]Process
	usage     map[string]cgroupUsage
}

type cgroupUsage struct {
	used    time.Duration
	charged uint64
}

// CPU is a CPU line of /proc/stat, in ticks.
type CPU struct{ User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Steal, Guest, GuestNice int64 }

// Place is the position of a CPU in the machine. Each package is a NUMA node.
type Place struct {
	Package, Die int
	// Siblings are the CPUs of the same core in ascending order, including the CPU itself. Nil
	// means that the CPU has the core to itself.
	Siblings []int
}

func (c CPU) String() string {
	return fmt.Sprintf("%d %d %d %d %d %d %d %d %d %d", c.User, c.Nice, c.System, c.Idle, c.IOWait, c.IRQ, c.SoftIRQ, c.Steal,
		c.Guest, c.GuestNice)
}

// Process is one directory of /proc. Times are in ticks.
type Process struct {
	Parent         int
	Comm           string
	State          byte // 'S' if 0
	Threads        int  // 1 if 0
	Kernel         bool
	Start          int64 // since boot
	UID            int
	User, System   int64
	Fraction       time.Duration // CPU time in the CPU clock beyond User and System
	CUser, CSystem int64
	Exe            string // target of the link; no link if empty
	Args           []string
	Cgroup         string // the whole file without the last newline; "0::/" if empty
	Resident       int64  // pages
	LastCPU        int
	IgnoresSIGCHLD bool
	// Files are the open files. If it is nil, the directories fd and fdinfo are left out.
	Files []OpenFile
}

// OpenFile is a descriptor of a process: its number, the target of its link in fd and the text of
// its file in fdinfo.
type OpenFile struct {
	FD           int
	Target, Info string
}

// Zone is one powercap zone, in µJ.
type Zone struct {
	Name   string
	Energy uint64
	Max    uint64
	// Counted is the energy that a Machine has added to the counter, without wraps and resets.
	Counted uint64
	// Shown replaces Energy in the file if it is not nil.
	Shown *uint64
	// Content replaces the text of the energy counter if it is not empty.
	Content string
	// NoMax omits max_energy_range_uj.
	NoMax bool
}

// New returns a host with one CPU and an init process, which booted 1,000 s ago. It is rendered
// below root.
func New(root string) *Host {
	h := &Host{
		Uptime:     1000 * time.Second,
		Booted:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		CPUs:       1,
		Topology:   []Place{{}},
		LastPID:    4321,
		Processes:  map[int]*Process{1: {Comm: "init", Exe: "/sbin/init", Args: []string{"/sbin/init"}}},
		Zones:      map[string]*Zone{},
		Cgroups:    map[string]time.Duration{},
		Memory:     map[string]uint64{},
		NodeMemory: map[string][]uint64{},
		Clocks:     map[int]int64{},
		Files:      map[string]string{},
		Links:      map[string]string{},
		root:       root,
		written:    map[string]string{},

		shownCgroups: map[string]bool{},
		shownFiles:   map[int]bool{},
		processes:    map[int]Process{},
		usage:        map[string]cgroupUsage{},
	}
	h.CPU.Idle = int64(h.Uptime / Tick)
	return h
}

// Root returns the directory that the host is rendered in.
func (h *Host) Root() string { return h.root }

// Now returns the host's wall clock and monotonic clock as time.Now would.
func (h *Host) Now() time.Time {
	return reading(h.Booted.Add(h.Uptime+h.ClockStep), h.Uptime-h.Suspended)
}

// Run lets time pass. used holds the ticks of user time that each process uses; the CPUs are idle
// for the rest.
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

// CPUClock returns the CPU clock of a process (clock_getcpuclockid(3)). The error is EINVAL if the
// process does not exist.
func (h *Host) CPUClock(pid int32) (time.Duration, error) {
	p := h.Processes[int(pid)]
	if p == nil {
		return 0, syscall.EINVAL
	}
	return time.Duration(p.User+p.System)*Tick + p.Fraction, nil
}

// Render writes the trees.
func (h *Host) Render() error {
	r := h.renderer()
	proc := func(name string) string { return filepath.Join("proc", name) }
	c := h.CPU
	var each strings.Builder
	for cpu, c := range h.EachCPU[:min(len(h.EachCPU), h.CPUs)] {
		fmt.Fprintf(&each, "cpu%d %v\n", cpu, c)
	}
	created := ""
	if h.Created > 0 {
		created = fmt.Sprintf("processes %d\n", h.Created)
	}
	r.write(proc("stat"), fmt.Sprintf("cpu  %v\n%sbtime %d\n%s", c, each.String(), h.Booted.Unix(), created))
	if h.MaxPID > 0 {
		r.write(proc("sys/kernel/pid_max"), fmt.Sprintf("%d\n", h.MaxPID))
	}
	r.write(proc("uptime"), fmt.Sprintf("%.2f %.2f\n", h.Uptime.Truncate(Tick).Seconds(), float64(c.Idle)/100))
	threads := h.HiddenThreads
	for _, pid := range slices.Sorted(maps.Keys(h.Processes)) {
		p := h.Processes[pid]
		threads += max(p.Threads, 1)
		if last, ok := h.processes[pid]; !h.Cached || !ok || !last.same(p) {
			h.processes[pid] = *p
			r.process(proc(strconv.Itoa(pid)), pid, p)
		}
		if p.Files != nil || h.shownFiles[pid] {
			h.shownFiles[pid] = true
			r.files(proc(strconv.Itoa(pid)), p.Files)
		}
	}
	r.write(proc("loadavg"), fmt.Sprintf("0.00 0.01 0.05 1/%d %d\n", threads, h.LastPID))
	r.write(proc("1/mountinfo"), "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")
	h.pruneProcesses(r)

	for id, z := range h.Zones {
		dir := filepath.Join("sys/class/powercap", id)
		r.write(filepath.Join(dir, "name"), z.Name+"\n")
		content := z.Content
		switch {
		case content != "":
		case z.Shown != nil:
			content = strconv.FormatUint(*z.Shown, 10) + "\n"
		default:
			content = strconv.FormatUint(z.Energy, 10) + "\n"
		}
		r.write(filepath.Join(dir, "energy_uj"), content)
		if !z.NoMax {
			r.write(filepath.Join(dir, "max_energy_range_uj"), strconv.FormatUint(z.Max, 10)+"\n")
		}
	}
	r.prune("sys/class/powercap", func(name string) bool { return h.Zones[name] == nil })
	r.write("sys/devices/system/cpu/online", fmt.Sprintf("0-%d\n", max(h.CPUs, 1)-1))
	h.renderTopology(r)
	for _, path := range h.goneCgroups() {
		r.remove(filepath.Join("sys/fs/cgroup", path))
		delete(h.shownCgroups, path)
		delete(h.usage, path)
	}
	for path, usage := range h.Cgroups {
		h.shownCgroups[path] = true
		last, ok := h.usage[path]
		now := cgroupUsage{usage, h.Memory[path]}
		if h.Cached && ok && last == now && h.NodeMemory[path] == nil {
			continue
		}
		h.usage[path] = now
		r.write(filepath.Join("sys/fs/cgroup", path, "cpu.stat"),
			fmt.Sprintf("usage_usec %d\nuser_usec 0\nsystem_usec 0\n", usage.Microseconds()))
		if charged, ok := h.Memory[path]; ok {
			r.write(filepath.Join("sys/fs/cgroup", path, "memory.current"), strconv.FormatUint(charged, 10)+"\n")
			if nodes := h.NodeMemory[path]; nodes != nil {
				r.write(filepath.Join("sys/fs/cgroup", path, "memory.numa_stat"), numaStat(nodes))
			}
		}
	}
	h.renderFiles(r)
	return r.err
}

// pruneProcesses removes the directories of processes that no longer exist.
func (h *Host) pruneProcesses(r *renderer) {
	gone := !h.Cached
	for pid := range h.processes {
		if h.Processes[pid] == nil {
			gone = true
			delete(h.processes, pid)
		}
	}
	if gone {
		r.prune("proc", func(name string) bool {
			pid, err := strconv.Atoi(name)
			return err == nil && h.Processes[pid] == nil
		})
	}
}

// same reports whether o renders as p does, apart from its descriptors.
func (p *Process) same(o *Process) bool {
	return p.Parent == o.Parent && p.Comm == o.Comm && p.State == o.State && p.Threads == o.Threads && p.Kernel == o.Kernel &&
		p.Start == o.Start && p.User == o.User && p.System == o.System && p.CUser == o.CUser && p.CSystem == o.CSystem &&
		p.Exe == o.Exe && p.Cgroup == o.Cgroup && p.Resident == o.Resident && p.LastCPU == o.LastCPU &&
		p.UID == o.UID && p.IgnoresSIGCHLD == o.IgnoresSIGCHLD && slices.Equal(p.Args, o.Args)
}

func (h *Host) renderer() *renderer {
	r := &renderer{root: h.root}
	if h.Cached {
		r.written = h.written
	}
	return r
}

func (h *Host) renderFiles(r *renderer) {
	for name, content := range h.Files {
		r.write(name, content)
	}
	for name, target := range h.Links {
		r.link(name, target)
	}
}

// renderer writes files below a root and keeps the first error.
type renderer struct {
	root    string
	written map[string]string // content by name; nil if not Cached
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
	switch user := fmt.Sprintf("Name:\t%s\nUid:\t%d\t%[2]d\t%[2]d\t%[2]d\n", p.Comm, p.UID); {
	case p.UID != 0 && !p.IgnoresSIGCHLD:
		r.write(filepath.Join(dir, "status"), user)
	case p.IgnoresSIGCHLD:
		r.write(filepath.Join(dir, "status"), user+"SigBlk:\t0000000000000000\nSigIgn:\t0000000000011000\nSigCgt:\t0000000000000000\n")
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

// files writes a process's descriptors, and removes the closed ones.
func (r *renderer) files(dir string, files []OpenFile) {
	for _, f := range files {
		number := strconv.Itoa(f.FD)
		r.link(filepath.Join(dir, "fd", number), f.Target)
		r.write(filepath.Join(dir, "fdinfo", number), f.Info)
	}
	for _, folder := range [...]string{"fd", "fdinfo"} {
		r.prune(filepath.Join(dir, folder), func(name string) bool {
			return !slices.ContainsFunc(files, func(f OpenFile) bool { return strconv.Itoa(f.FD) == name })
		})
	}
}

func (r *renderer) write(name, content string) {
	path := filepath.Join(r.root, name)
	before := math.MaxInt
	if r.written != nil {
		old, ok := r.written[name]
		if ok && old == content {
			return
		}
		if ok {
			before = len(old)
		}
		r.written[name] = content
	} else if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return
	}
	err := overwrite(path, content, before)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = overwrite(path, content, before)
		}
	}
	r.fail(err)
}

// overwrite replaces the content of a file whose old content had the length before. A reader never
// sees an empty file, but if the new content is shorter, it can see the end of the old one until
// the file is truncated. The file is not replaced by renaming, because readers keep descriptors
// open, as they do with the kernel's files.
func overwrite(path, content string, before int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if before > len(content) {
		err = errors.Join(err, f.Truncate(int64(len(content))))
	}
	return errors.Join(err, f.Close())
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
	if target == "" {
		return
	}
	err := os.Symlink(target, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.Symlink(target, path)
		}
	}
	r.fail(err)
}

// goneCgroups returns the rendered cgroups that no longer exist, children first: the kernel removes
// them in this order.
func (h *Host) goneCgroups() (gone []string) {
	for path := range h.shownCgroups {
		if _, ok := h.Cgroups[path]; !ok {
			gone = append(gone, path)
		}
	}
	slices.Sort(gone)
	slices.Reverse(gone)
	return gone
}

// prune removes the entries of a directory that no longer exist.
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

// remove removes a file, or a directory with its contents. The texts of descriptors, processes and
// cgroups become empty first: a reader with an open file sees that the object is gone, as with the
// kernel's files.
func (r *renderer) remove(dir string) {
	texts, _ := filepath.Glob(filepath.Join(r.root, dir, "fdinfo/*")) // the pattern is well-formed
	for _, name := range []string{"cpu.stat", "memory.current", "memory.numa_stat", "stat"} {
		counters, _ := filepath.Glob(filepath.Join(r.root, dir, name))
		texts = append(texts, counters...)
	}
	if filepath.Base(filepath.Dir(dir)) == "fdinfo" {
		texts = append(texts, filepath.Join(r.root, dir))
	}
	for _, text := range texts {
		r.fail(os.Truncate(text, 0))
	}
	r.fail(os.RemoveAll(filepath.Join(r.root, dir)))
	maps.DeleteFunc(r.written, func(name, _ string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

func (r *renderer) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}
