// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// pageSize is the unit of resident sizes, in bytes.
var pageSize = uint64(os.Getpagesize())

// pfKthread marks a kernel thread in the flags of a task (include/linux/sched.h, PF_KTHREAD).
const pfKthread = 0x00200000

var (
	errTruncated = errors.New("truncated")
	errReleased  = errors.New("the process has exited")
)

// ParseProcess reads /proc/<pid>/stat (proc_pid_stat(5)) into p. The name may hold anything,
// brackets and newlines too, so it ends at the last closing bracket.
func ParseProcess(b []byte, p *proc.Sight) error {
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return errTruncated
	}
	p.Comm = proc.Comm{}
	copy(p.Comm[:len(p.Comm)-1], b[open+1:shut])

	var flags, utime, stime, start uint64
	var cutime, cstime, parent, threads int64
	f := fields{rest: b[shut+1:]}
	state := f.next() // field 3
	parent = f.int()  // 4
	f.skip(4)         // 5 process group to 8 terminal's process group
	flags = f.uint()  // 9
	f.skip(4)         // 10 to 13: page faults
	utime = f.uint()  // 14
	stime = f.uint()  // 15
	cutime = f.int()  // 16
	cstime = f.int()  // 17
	f.skip(2)         // 18 priority, 19 nice
	threads = f.int() // 20
	f.skip(1)         // 21
	start = f.uint()  // 22
	switch {
	case f.err != nil:
		return f.err
	case len(f.rest) == 0: // the number may be cut short
		return errTruncated
	case start > math.MaxInt64/uint64(Tick):
		return kernfs.ErrRange
	case threads == 0: // read while it was being released: parent and times may be 0 as well
		return errReleased
	}
	p.Parent = clampInt32(parent)
	p.Threads = clampInt32(threads)
	if p.Flags = 0; flags&pfKthread != 0 {
		p.Flags |= proc.Kernel
	}
	// A first thread that has exited is also shown as a zombie while other threads run.
	if threads == 1 && len(state) == 1 && (state[0] == 'Z' || state[0] == 'X') {
		p.Flags |= proc.Zombie
	}
	p.Start = time.Duration(start) * time.Duration(Tick)
	p.CPU = ticks(utime) + ticks(stime)
	p.ChildCPU = ticks(uint64(max(cutime, 0))) + ticks(uint64(max(cstime, 0)))
	p.Resident, p.LastCPU = parsePlaces(f)
	return nil
}

// sigchld is SIGCHLD on every architecture that the collector is built for (signal(7)).
const sigchld = 17

// IgnoresSIGCHLD reports whether the process of a /proc/<pid>/status ignores SIGCHLD
// (proc_pid_status(5), SigIgn).
func IgnoresSIGCHLD(status []byte) bool {
	_, mask, ok := bytes.Cut(status, []byte("\nSigIgn:\t"))
	if !ok {
		return false
	}
	mask, _, _ = bytes.Cut(mask, []byte{'\n'})
	const digit = (sigchld - 1) / 4 // from the right, each of four signals
	if len(mask) <= digit {
		return false
	}
	n, err := strconv.ParseUint(string(mask[len(mask)-1-digit]), 16, 4)
	return err == nil && n>>((sigchld-1)%4)&1 == 1
}

// parsePlaces parses the fields after the start time. If they are malformed, the CPU of the process
// is -1. Its CPU time is valid all the same.
func parsePlaces(f fields) (resident uint64, cpu int32) {
	f.skip(1)            // 23 virtual size
	pages := f.int()     // 24
	f.skip(14)           // 25 to 38
	processor := f.int() // 39
	if f.err != nil || len(f.rest) == 0 || processor < 0 || pages < 0 || uint64(pages) > math.MaxInt64/pageSize {
		return 0, -1
	}
	return uint64(pages) * pageSize, clampInt32(processor)
}

// cpuTicks are the first eight columns of the "cpu" line of /proc/stat (proc_stat(5)); guest and
// guest_nice, which follow, are inside user and nice.
type cpuTicks [8]uint64

const (
	user = iota
	nice
	system
	idle
	iowait
	irq
	softirq
	steal
)

// measuresInterrupts reports whether the kernel measures how long interrupts take. Such a kernel
// leaves their time out of the times of the tasks that they interrupt (kernel/sched/core.c,
// update_rq_clock_task). It has time in the irq column soon after boot, because each timer tick is
// an interrupt.
//
// Other kernels (without CONFIG_IRQ_TIME_ACCOUNTING, or with an unstable clock) count a tick for
// the task or softirq that it interrupts. Handlers run with interrupts off, so the irq column stays
// 0, and tasks' times include the interrupts that came while they ran. The softirq column of such a
// kernel would count these twice.
func (c *cpuTicks) measuresInterrupts() bool { return c[irq] > 0 }

// parseNode reads the first line of /proc/stat. Kernels before 2.6.11 lack columns; four suffice.
func parseNode(b []byte) (cpuTicks, error) {
	line, _, whole := bytes.Cut(b, []byte{'\n'})
	rest, ok := bytes.CutPrefix(line, []byte("cpu "))
	if !ok || !whole {
		return cpuTicks{}, fmt.Errorf("no cpu line: %w", errTruncated)
	}
	return parseColumns(rest)
}

func parseColumns(b []byte) (c cpuTicks, err error) {
	f := fields{rest: b}
	for i := range c {
		if c[i] = f.uint(); f.err != nil {
			if errors.Is(f.err, errTruncated) && i > idle {
				break
			}
			return cpuTicks{}, f.err
		}
	}
	return c, nil
}

// parseCPU reads the line of one CPU of /proc/stat after its first three letters.
func parseCPU(line []byte) (cpu int, c cpuTicks, err error) {
	number, _, _ := bytes.Cut(line, []byte{' '})
	n, err := kernfs.ParseUint(number)
	if err != nil || n >= maxCPUs {
		return 0, c, cmp.Or(err, kernfs.ErrRange)
	}
	c, err = parseColumns(line[len(number):])
	return int(n), c, err
}

// maxCPUs bounds the numbers of CPUs; Linux is built for 8,192 at most.
const maxCPUs = 1 << 16

// ParseUptime reads the first number of /proc/uptime (proc_uptime(5)): seconds since boot with two
// decimals, time in suspend included, like the start times of processes.
func ParseUptime(b []byte) (time.Duration, error) {
	f := fields{rest: b}
	whole, decimals, ok := bytes.Cut(f.next(), []byte{'.'})
	s, err := kernfs.ParseUint(whole)
	if err != nil {
		return 0, err
	}
	c, err := kernfs.ParseUint(decimals)
	if err != nil || !ok || len(decimals) != 2 || s > math.MaxInt64/uint64(2*time.Second) {
		return 0, kernfs.ErrSyntax
	}
	return time.Duration(s)*time.Second + time.Duration(c)*10*time.Millisecond, nil
}

// parseTasks reads the last two fields of /proc/loadavg (proc_loadavg(5)). number is the number of
// tasks of the whole system, including hidden ones. newest is the PID or thread ID of the newest
// task in the PID namespace of the reader.
func parseTasks(b []byte) (number, newest uint64, err error) {
	f := fields{rest: b}
	f.skip(3)
	_, total, ok := bytes.Cut(f.next(), []byte{'/'})
	newest = f.uint()
	if f.err != nil || !ok || len(f.rest) == 0 { // the last field may be cut short
		return 0, 0, errTruncated
	}
	number, err = kernfs.ParseUint(total)
	return number, newest, err
}

// createdTasks is the line of /proc/stat with the number of tasks that were created since boot
// (proc_stat(5)).
var createdTasks = []byte("\nprocesses ")

// parseCreated reads the number of tasks that were created since boot, threads included, from
// /proc/stat.
func parseCreated(b []byte) (uint64, error) {
	at := bytes.LastIndex(b, createdTasks)
	if at < 0 {
		return 0, errTruncated
	}
	number, _, whole := bytes.Cut(b[at+len(createdTasks):], []byte{'\n'})
	if !whole {
		return 0, errTruncated
	}
	return kernfs.ParseUint(number)
}

// parsePID reads the name of a directory of /proc; ok is false unless it is the directory of a
// process.
func parsePID(name []byte) (pid int32, ok bool) {
	n, err := kernfs.ParseUint(name)
	if err != nil || name[0] == '0' || n > math.MaxInt32 {
		return 0, false
	}
	return int32(n), true
}

func ticks(n uint64) units.CPUTime {
	if n > math.MaxInt64/uint64(Tick) {
		return math.MaxInt64
	}
	return units.CPUTime(n) * Tick
}

func clampInt32(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// fields walks over the fields of a line that spaces separate. After the first error all fields are
// empty or 0.
type fields struct {
	rest []byte
	err  error
}

func (f *fields) next() []byte {
	b, from := f.rest, 0
	for from < len(b) && isSpace(b[from]) {
		from++
	}
	to := from
	for to < len(b) && !isSpace(b[to]) {
		to++
	}
	if to == from && f.err == nil {
		f.err = errTruncated
	}
	f.rest = b[to:]
	return b[from:to]
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' }

func (f *fields) skip(n int) {
	b, i := f.rest, 0
	for range n {
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		from := i
		for i < len(b) && !isSpace(b[i]) {
			i++
		}
		if i == from && f.err == nil {
			f.err = errTruncated
		}
	}
	f.rest = b[i:]
}

func (f *fields) uint() uint64 {
	b := f.next()
	if f.err != nil {
		return 0
	}
	n, err := kernfs.ParseUint(b)
	f.err = err
	return n
}

func (f *fields) int() int64 {
	b := f.next()
	if f.err != nil {
		return 0
	}
	digits, negative := bytes.CutPrefix(b, []byte{'-'})
	n, err := kernfs.ParseUint(digits)
	if err == nil && n > math.MaxInt64 {
		err = kernfs.ErrRange
	}
	f.err = err
	if negative {
		return -int64(n)
	}
	return int64(n)
}
