// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// openPerfEvent is a variable so that a test can stand in for the kernel.
var openPerfEvent = unix.PerfEventOpen

// openCounter opens a counter of the kernel.
func openCounter(attr *unix.PerfEventAttr, pid, cpu, group, flags int) (int, error) {
	for {
		fd, err := openPerfEvent(attr, pid, cpu, group, flags|unix.PERF_FLAG_FD_CLOEXEC)
		if err == nil {
			descriptors.Add(1)
		}
		if !errors.Is(err, unix.EINTR) {
			return fd, withGrants(err)
		}
	}
}

// withGrants says what to grant where a permission is missing (perf_event_open(2)).
func withGrants(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: it takes CAP_PERFMON", err)
	}
	return err
}

var errOtherKernel = errors.New("the files below root_path are not those of this kernel")

// isThisKernel says whether /proc below root is this kernel's: a recorded tree is not.
func isThisKernel(root string) error {
	const bootID = "proc/sys/kernel/random/boot_id"
	own, err := os.ReadFile("/" + bootID)
	if err != nil {
		return err
	}
	there, err := os.ReadFile(filepath.Join(root, bootID))
	if err != nil || !bytes.Equal(own, there) {
		return errOtherKernel
	}
	return nil
}

// ratios is the rate of each CPU by its counters of cycles: APERF, at the rate that it has, and MPERF, at a rate that
// never changes, both only while it does not sleep.
type ratios struct {
	pmu          uint32
	aperf, mperf uint64
	cpus         map[int32]*ratio
}

type ratio struct {
	fds  [2]int // of MPERF, which leads the group, and APERF
	last [2]uint64
	rate uint64
}

// openRatios finds the counters, where /sys/bus/event_source/devices points to (arch/x86/events/msr.c). It fails where the first CPU's cannot be read.
func openRatios(root string) (rates, error) {
	if err := isThisKernel(root); err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "sys/devices/msr")
	pmu, err := readNumber(filepath.Join(dir, "type"), "")
	if err != nil {
		return nil, err
	}
	r := &ratios{pmu: uint32(pmu), cpus: map[int32]*ratio{}}
	if r.aperf, err = readNumber(filepath.Join(dir, "events/aperf"), "event="); err != nil {
		return nil, err
	}
	if r.mperf, err = readNumber(filepath.Join(dir, "events/mperf"), "event="); err != nil {
		return nil, err
	}
	if _, err := r.read(0); err != nil {
		return nil, err
	}
	return r, nil
}

// readNumber reads a decimal or 0x number that follows a prefix.
func readNumber(path, prefix string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, ok := parseConfig(text, prefix)
	if !ok {
		return 0, fmt.Errorf("%s: %q is not understood", path, text)
	}
	return n, nil
}

// parseConfig reads what a PMU says of an event, of one term (Documentation/ABI/testing/sysfs-bus-event_source-devices-events).
func parseConfig(text []byte, prefix string) (uint64, bool) {
	digits, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte(prefix))
	n, err := strconv.ParseUint(string(digits), 0, 32)
	return n, ok && err == nil
}

func (*ratios) name() string { return "clock rate by APERF and MPERF" }

func (r *ratios) read(cpu int32) (uint64, error) {
	c, ok := r.cpus[cpu]
	if !ok {
		opened, err := r.open(cpu)
		if err != nil {
			return 0, err
		}
		c = opened
		r.cpus[cpu] = c
	}
	var now [2]uint64
	err := readGroup(c.fds[0], &now)
	if err != nil {
		delete(r.cpus, cpu)
		return 0, errors.Join(err, c.close())
	}
	c.advance(now)
	return c.rate, nil
}

// advance finds the rate since the readings before. A CPU that slept meanwhile has the rate that it had.
func (c *ratio) advance(now [2]uint64) {
	mperf, aperf := units.Advance(c.last[0], now[0]), units.Advance(c.last[1], now[1])
	if c.last != ([2]uint64{}) && mperf > 0 {
		c.rate = units.MulDiv(aperf, one, mperf)
	}
	c.last = now
}

func (r *ratios) open(cpu int32) (*ratio, error) {
	attr := unix.PerfEventAttr{Type: r.pmu, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Read_format: unix.PERF_FORMAT_GROUP}
	c := &ratio{}
	err := reserve(len(c.fds))
	if err != nil {
		return nil, err
	}
	attr.Config = r.mperf
	if c.fds[0], err = openCounter(&attr, -1, int(cpu), -1, 0); err != nil {
		return nil, fmt.Errorf("open MPERF: %w", err)
	}
	attr.Config = r.aperf
	if c.fds[1], err = openCounter(&attr, -1, int(cpu), c.fds[0], 0); err != nil {
		return nil, fmt.Errorf("open APERF: %w", errors.Join(err, closeCounter(c.fds[0])))
	}
	return c, nil
}

// readGroup reads the values of a group of two counters (PERF_FORMAT_GROUP: their number, then each).
func readGroup(fd int, values *[2]uint64) error {
	var buf [24]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return err
	}
	if n != len(buf) || binary.NativeEndian.Uint64(buf[:]) != 2 {
		return errShort
	}
	values[0], values[1] = binary.NativeEndian.Uint64(buf[8:]), binary.NativeEndian.Uint64(buf[16:])
	return nil
}

var errShort = errors.New("a counter's reading is too short")

func (c *ratio) close() error { return errors.Join(closeCounter(c.fds[1]), closeCounter(c.fds[0])) }

func (r *ratios) close() error {
	var errs []error
	for _, c := range r.cpus {
		errs = append(errs, c.close())
	}
	clear(r.cpus)
	return errors.Join(errs...)
}

// readAgain reads a file from its start, for half of what os.File takes for that.
func readAgain(f *os.File, buf []byte) (int, error) {
	for {
		n, err := unix.Pread(int(f.Fd()), buf, 0)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// perf is the counters of this kernel.
type perf struct {
	root    string
	tree    *cgroup.Tree
	kind    uint32
	config  uint64
	cpus    []bool     // which are to be counted, by number
	extra   []extended // where CPUs are of several kinds
	online  []byte     // the file
	unknown bool       // which CPUs these are
	buf     []byte
}

// extended is what the config of a hardware event has beside it on some CPUs: where these are of two kinds, each has a PMU
// of its own, whose number is in the upper half (perf_event_open(2), PERF_TYPE_HARDWARE).
type extended struct {
	cpus   []bool
	config uint64
}

var configs = map[Event]uint64{
	Cycles:       unix.PERF_COUNT_HW_CPU_CYCLES,
	Instructions: unix.PERF_COUNT_HW_INSTRUCTIONS,
	CacheMisses:  unix.PERF_COUNT_HW_CACHE_MISSES,
}

// openPerf fails where the event cannot be counted for all that runs.
func openPerf(tree *cgroup.Tree, e Event) (counts, error) {
	if err := isThisKernel(tree.Root()); err != nil {
		return nil, err
	}
	p, err := newPerf(tree, unix.PERF_TYPE_HARDWARE, configs[e])
	if err != nil {
		return nil, err
	}
	all, err := p.open(nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the machine does not count %s", e)
	}
	if err != nil {
		return nil, fmt.Errorf("count %s: %w", e, err)
	}
	return p, all.close()
}

func newPerf(tree *cgroup.Tree, kind uint32, config uint64) (*perf, error) {
	p := &perf{root: tree.Root(), tree: tree, kind: kind, config: config, buf: make([]byte, 4096)}
	p.readOnline()
	return p, p.look()
}

// look finds which CPUs there are, and of which kinds. Those that are offline have no counters.
func (p *perf) look() error {
	list, what := p.online, "online"
	if len(list) == 0 {
		var err error
		if list, err = os.ReadFile(filepath.Join(p.root, "sys/devices/system/cpu/present")); err != nil {
			return err
		}
		what = "present"
	}
	cpus, ok := parseCPUs(list)
	if !ok {
		return fmt.Errorf("%s CPUs: %q is not understood", what, list)
	}
	var extra []extended
	if p.kind == unix.PERF_TYPE_HARDWARE {
		var err error
		if extra, err = findExtended(p.root); err != nil {
			return err
		}
	}
	p.cpus, p.extra = cpus, extra
	return nil
}

// findExtended finds the PMUs of the kinds of CPUs, where there is more than one (arch/x86/events/intel/core.c).
func findExtended(root string) (all []extended, err error) {
	for _, pmu := range []string{"cpu_core", "cpu_atom", "cpu_lowpower"} {
		dir := filepath.Join(root, "sys/devices", pmu)
		kind, err := readNumber(filepath.Join(dir, "type"), "")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list, err := os.ReadFile(filepath.Join(dir, "cpus"))
		if err != nil {
			return nil, err
		}
		cpus, ok := parseCPUs(list)
		if !ok && len(bytes.TrimSpace(list)) > 0 { // else all of them are offline
			return nil, fmt.Errorf("CPUs of %s: %q is not understood", pmu, list)
		}
		all = append(all, extended{cpus, kind << 32})
	}
	return all, nil
}

// configOf is the event's config on a CPU.
func (p *perf) configOf(cpu int) uint64 {
	for _, e := range p.extra {
		if cpu < len(e.cpus) && e.cpus[cpu] {
			return p.config | e.config
		}
	}
	return p.config
}

func (p *perf) moved() bool {
	changed := p.readOnline()
	if !changed && !p.unknown {
		return false
	}
	p.unknown = p.look() != nil // then those that were there are tried
	return changed || !p.unknown
}

// readOnline reads which CPUs are online, and says whether these are others than before.
func (p *perf) readOnline() bool {
	online, err := os.Open(filepath.Join(p.root, "sys/devices/system/cpu/online"))
	if err != nil {
		return false // without hotplug
	}
	defer func() { _ = online.Close() }() // it was only read from
	n, err := online.Read(p.buf)
	if err != nil || bytes.Equal(p.buf[:n], p.online) {
		return false
	}
	p.online = append(p.online[:0], p.buf[:n]...)
	return true
}

// descriptors are how many counters hold, of all meters of the process.
var descriptors atomic.Int64

// mostDescriptors is how many they may hold: half of what the process may, so that it can go on opening files.
var mostDescriptors = func() (int64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return int64(min(limit.Cur/2, math.MaxInt64)), err
}

// reserve says whether so many more counters may be opened.
func reserve(counters int) error {
	most, err := mostDescriptors()
	if err == nil && descriptors.Load()+int64(counters) > most {
		err = fmt.Errorf("counters would take more than %d descriptors, half of what the process may have (LimitNOFILE, ulimit -n)", most)
	}
	return err
}

// closeCounter closes one that openCounter opened.
func closeCounter(fd int) error {
	descriptors.Add(-1)
	return unix.Close(fd)
}

// parseCPUs reads a list of CPUs, "0-63", "0" or "0-3,8-11" (Documentation/admin-guide/cputopology.rst).
func parseCPUs(text []byte) (cpus []bool, ok bool) {
	for part := range bytes.SplitSeq(bytes.TrimSpace(text), []byte{','}) {
		first, last, isRange := bytes.Cut(part, []byte{'-'})
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(string(first), 10, 32)
		to, errTo := strconv.ParseUint(string(last), 10, 32)
		if err != nil || errTo != nil || from > to || to >= maxCPUs || int(from) < len(cpus) {
			return nil, false
		}
		cpus = append(cpus, make([]bool, int(from)-len(cpus))...)
		for range to - from + 1 {
			cpus = append(cpus, true)
		}
	}
	return cpus, true
}

func (p *perf) identity(n *cgroup.Node) (uint64, bool) {
	dir, ok := p.tree.PerfEventDir(n)
	if !ok {
		return 0, false
	}
	var s unix.Stat_t
	err := unix.Stat(dir, &s)
	return s.Ino, err == nil
}

func (p *perf) open(n *cgroup.Node) (count, error) {
	attr := unix.PerfEventAttr{
		Type: p.kind, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	pid, flags := -1, 0
	if n != nil {
		path, ok := p.tree.PerfEventDir(n)
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: n.Path(), Err: fs.ErrNotExist}
		}
		dir, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = dir.Close() }() // the counters hold it
		pid, flags = int(dir.Fd()), unix.PERF_FLAG_PID_CGROUP
	}
	count := 0
	for _, there := range p.cpus {
		if there {
			count++
		}
	}
	if err := reserve(count); err != nil {
		return nil, err
	}
	var c perfCount
	for cpu, there := range p.cpus {
		if !there {
			continue
		}
		attr.Config = p.configOf(cpu)
		fd, err := openCounter(&attr, pid, cpu, -1, flags)
		switch {
		case err == nil:
			c = append(c, perfCPU{fd: fd, always: n == nil})
		case errors.Is(err, unix.ENODEV): // it is offline
		default:
			return nil, errors.Join(err, c.close())
		}
	}
	if len(c) == 0 {
		return nil, unix.ENODEV
	}
	return c, nil
}

// perfCount is a counter on each CPU that was online when it was opened.
type perfCount []perfCPU

type perfCPU struct {
	fd     int
	always bool      // it is to count at any time, not only while a cgroup's processes run
	last   [3]uint64 // value, and how long it was to count and did, in ns
	sum    uint64
}

func (c perfCount) read() (sum uint64, err error) {
	for i := range c {
		cpu := &c[i]
		var buf [24]byte
		n, err := unix.Read(cpu.fd, buf[:])
		if err != nil {
			return 0, err
		}
		if n != len(buf) {
			return 0, errShort
		}
		now := [3]uint64{
			binary.NativeEndian.Uint64(buf[:]), binary.NativeEndian.Uint64(buf[8:]), binary.NativeEndian.Uint64(buf[16:]),
		}
		if cpu.always && now[1] == cpu.last[1] && now[1] > 0 {
			return 0, errStopped
		}
		cpu.advance(now)
		sum += cpu.sum
	}
	return sum, nil
}

// advance adds what was counted since the reading before: as much more as it was to count for longer than it did, where
// others had the hardware meanwhile (perf_event_open(2), multiplexing). Where they had it all the time the next reading
// tells.
func (c *perfCPU) advance(now [3]uint64) {
	value, enabled, running := units.Advance(c.last[0], now[0]), units.Advance(c.last[1], now[1]), units.Advance(c.last[2], now[2])
	if running == 0 && enabled > 0 {
		return
	}
	if running < enabled {
		value = units.MulDiv(value, enabled, running)
	}
	c.sum += value
	c.last = now
}

func (c perfCount) close() error {
	var errs []error
	for i := range c {
		errs = append(errs, closeCounter(c[i].fd))
	}
	return errors.Join(errs...)
}
