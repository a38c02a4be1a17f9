// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/ring"
)

// Process is one process as the programs list it: times in nanoseconds, Start since boot.
type Process = tasksProcess

// Slice is the CPU time of the threads of a process on one CPU. Slices of a process are a list:
// Next is the index of the next one, always a lower one, and 0 ends the list.
type Slice = tasksSlice

// Options enables features of the programs in addition to listing and catching processes. The zero
// Options enables none.
type Options struct {
	// Slices has what each thread used noted by the CPU that it was last on. It takes task storage
	// (Linux 5.11).
	Slices bool
	// Domains is the number of domains into which the time of processes that end is divided, 0 for
	// not at all.
	Domains int
	// Types, if set, is where programs share the kernel's types, which take 25 ms to read.
	Types *btf.Cache
}

// Ended describes an exited process.
type Ended struct {
	Start uint64
	// Run is its total CPU time.
	Run         uint64
	Cgroup      uint64
	Pid, Parent uint32
	// UID is its real user ID, and Comm its name.
	UID  uint32
	Comm [16]byte
	// Weights are the CPU times of its threads by domain, each counted in the thread's last domain,
	// nil if time is not divided. They are valid while the end is reported.
	Weights []uint64
}

// maxDomains is MAX_DOMAINS of the programs.
const maxDomains = len(tasksByDomain{}.Run)

// divide sets the number of domains into which the program divides what ended, 0 for not at all:
// then the verifier removes what only dividing takes.
func divide(spec *ebpf.CollectionSpec, domains int) error {
	if domains > maxDomains {
		return fmt.Errorf("%d domains are more than %d", domains, maxDomains)
	}
	if domains > 0 {
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		spec.Maps[tasksMapDomainOf].MaxEntries = uint32(cpus)
		spec.Maps[tasksMapFreedByDomain].MaxEntries = spec.Maps[tasksMapFreedThreads].MaxEntries
	}
	return spec.Variables[tasksVarDomains].Set(uint32(domains))
}

// slice makes the program note slices, or not: then the verifier removes what only that takes, and
// the type of map that older kernels lack is left out.
func slice(spec *ebpf.CollectionSpec, slices bool) error {
	if !slices {
		if m := spec.Maps[tasksMapThreadRuns]; m != nil {
			*m = ebpf.MapSpec{Name: m.Name, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}
		}
		return nil
	}
	if m := spec.Maps[tasksMapSliceOn]; m != nil {
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		m.MaxEntries = uint32(cpus)
	}
	return spec.Variables[tasksVarSlicing].Set(uint32(1))
}

// threadRuns is the shared state of programs that record slices: the CPU time of each thread at the
// last scan, and the time of that scan. The nil threadRuns is that of programs that do not.
type threadRuns struct {
	used    *ebpf.Map
	scanned time.Time
}

func newThreadRuns(spec *ebpf.CollectionSpec) (*threadRuns, error) {
	used, err := ebpf.NewMap(spec.Maps[tasksMapThreadRuns])
	if err != nil {
		return nil, fmt.Errorf("make the map of what threads used: %w", withGrants(err))
	}
	return &threadRuns{used: used}, nil
}

// replace returns the maps to load a program with.
func (r *threadRuns) replace() map[string]*ebpf.Map {
	if r == nil {
		return nil
	}
	return map[string]*ebpf.Map{tasksMapThreadRuns: r.used}
}

// begin returns the time since the last scan, in nanoseconds, 0 before the first one.
func (r *threadRuns) begin() uint64 {
	if r == nil || r.scanned.IsZero() {
		return 0
	}
	return uint64(time.Since(r.scanned))
}

// end ends a scan.
func (r *threadRuns) end() {
	if r != nil {
		r.scanned = time.Now()
	}
}

func (r *threadRuns) close() error {
	if r == nil {
		return nil
	}
	return r.used.Close()
}

// slicesIn returns the slices that a program left in the memory of a map, as far as there was room.
func slicesIn(m *ebpf.Map, memory []byte, count uint32) []Slice {
	return unsafe.Slice((*Slice)(unsafe.Pointer(unsafe.SliceData(memory))), min(count+1, m.MaxEntries()))
}

// setDomains fills the map that says which domain a CPU is in.
func setDomains(loaded *ebpf.Collection, of []int32) error {
	m := loaded.Maps[tasksMapDomainOf]
	for cpu, domain := range of {
		if uint32(cpu) >= m.MaxEntries() {
			break
		}
		if err := m.Put(uint32(cpu), uint32(domain)); err != nil {
			return fmt.Errorf("set the domain of CPU %d: %w", cpu, err)
		}
	}
	return nil
}

// The bits of Process.Flags.
const (
	KernelThread = 1
	Zombie       = 2
)

// only returns the collection with one program and the maps that it uses.
func only(program string) (*ebpf.CollectionSpec, error) {
	// Before Linux 5.11 maps count against the limit of locked memory. If it cannot be raised,
	// loading fails.
	_ = rlimit.RemoveMemlock()
	spec, err := loadTasks()
	if err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if name != program {
			delete(spec.Programs, name)
		}
	}
	return spec, nil
}

// keepMaps takes out all maps but these, and those of the variables.
func keepMaps(spec *ebpf.CollectionSpec, names ...string) {
	for _, name := range []string{tasksMapProcesses, tasksMapSeen, tasksMapThreads, tasksMapChanges, tasksMapEndings, tasksMapFreedThreads,
		tasksMapFreedKeys, tasksMapDomainOf, tasksMapThreadRuns, tasksMapSlices, tasksMapSliceOn, tasksMapFreedByDomain} {
		if !slices.Contains(names, name) {
			delete(spec.Maps, name)
		}
	}
}

// Scan lists all processes in one run of a program (Linux 6.7 and later: it needs open-coded task
// iterators). It needs CAP_BPF and CAP_PERFMON.
type Scan struct {
	spec      *ebpf.CollectionSpec
	loaded    *ebpf.Collection
	processes []byte
	changes   []byte
	run       runAttr
	result    tasksScanned
	quick     bool // the last call

	threads   *threadRuns // nil where no slices are noted
	slices    []byte
	sliceRoom int // how many slices there must be room for, at least
}

// runAttr is the part of union bpf_attr (linux/bpf.h) for BPF_PROG_TEST_RUN.
type runAttr struct {
	program        uint32
	_              uint32
	_, _           uint32
	_, _           uint64
	_, _           uint32
	contextSize, _ uint32
	context, _     uint64
	_, _, _, _     uint32
}

// test runs the program, by unix.Syscall or unix.RawSyscall.
func (a *runAttr) test(call func(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno)) error {
	if _, _, errno := call(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a)); errno != 0 {
		return errno
	}
	return nil
}

// Listing is all processes in the order in which they were created, and what changed since the call
// before. It is valid until the next call.
type Listing struct {
	Processes []Process
	// Same is how many of them, from the first, were at the same place before.
	Same int
	// Changed are the indices, ascending, of those that ran or were changed since, and of new ones.
	Changed []uint64
	// Slices are the CPU times of the threads of processes since the previous call, each counted on
	// the thread's last CPU. Those of a process begin at the index Process.Slice. Of a process
	// where that is 0, or not in Slices, all threads count for its CPU. Element 0 is not used.
	Slices []Slice
}

// withGrants says what to grant where a permission is missing. The library's own advice is about
// the limit of locked memory, which since Linux 5.11 has nothing to do with it.
func withGrants(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	return fmt.Errorf("%w: it takes CAP_BPF and CAP_PERFMON, and a kernel that is not locked down", unix.EPERM)
}

const (
	processSize = int(unsafe.Sizeof(Process{}))
	sliceSize   = int(unsafe.Sizeof(Slice{}))
)

// OpenScan loads the program with room for this many processes. There is more room when it is
// needed.
func OpenScan(room int, o Options) (*Scan, error) {
	spec, err := only(tasksProgScan)
	if err != nil {
		return nil, err
	}
	keepMaps(spec, tasksMapProcesses, tasksMapSeen, tasksMapThreads, tasksMapChanges, tasksMapThreadRuns, tasksMapSlices, tasksMapSliceOn)
	if err := slice(spec, o.Slices); err != nil {
		return nil, err
	}
	s := &Scan{spec: spec}
	if o.Slices {
		if s.threads, err = newThreadRuns(spec); err != nil {
			return nil, err
		}
	}
	if err := s.load(room, o.Types); err != nil {
		return nil, errors.Join(err, s.threads.close())
	}
	return s, nil
}

// What the kernel is asked for, so that a test can refuse it.
var (
	newCollection = ebpf.NewCollectionWithOptions
	mapMemory     = unix.Mmap
)

// slicesPerProcess is how many slices there is room for at first, by the room for processes. It is
// a variable for a test.
var slicesPerProcess = 4

var errNothing = errors.New("it listed no process")

func (s *Scan) load(room int, types *btf.Cache) error {
	spec := s.spec.Copy()
	page := os.Getpagesize()
	size := (room*processSize + page - 1) / page * page
	room = size / processSize
	for _, name := range []string{tasksMapProcesses, tasksMapSeen, tasksMapChanges} {
		spec.Maps[name].MaxEntries = uint32(room)
	}
	spec.Maps[tasksMapThreads].MaxEntries = uint32(4 * room) // more threads are not read ahead
	sliceRoom := 1
	if s.threads != nil {
		sliceRoom = max(slicesPerProcess*room, s.sliceRoom, 1)
	}
	spec.Maps[tasksMapSlices].MaxEntries = uint32(sliceRoom)
	loaded, err := newCollection(spec, ebpf.CollectionOptions{Cache: types, MapReplacements: s.threads.replace()})
	if err != nil {
		return fmt.Errorf("load the task scan: %w", withGrants(err))
	}
	next := &Scan{loaded: loaded}
	mapped := func(name, what string, size int) (memory []byte) {
		if err == nil {
			if memory, err = mapMemory(loaded.Maps[name].FD(), 0, (size+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED); err != nil {
				memory, err = nil, fmt.Errorf("map the task scan's %s: %w", what, err)
			}
		}
		return memory
	}
	next.processes = mapped(tasksMapProcesses, "results", size)
	next.changes = mapped(tasksMapChanges, "changes", room*8)
	if s.threads != nil {
		next.slices = mapped(tasksMapSlices, "slices", sliceRoom*sliceSize)
	}
	if err == nil {
		err = s.unload()
	}
	if err != nil {
		return errors.Join(err, next.unload())
	}
	s.loaded, s.processes, s.changes, s.slices, s.sliceRoom = loaded, next.processes, next.changes, next.slices, 0
	s.run = runAttr{
		program:     uint32(loaded.Programs[tasksProgScan].FD()),
		context:     uint64(uintptr(unsafe.Pointer(&s.result))),
		contextSize: uint32(unsafe.Sizeof(s.result)),
	}
	return nil
}

// List returns all processes and what changed since the last call. Unless all is set, the
// description of a process that did not run may be as old as the time when it last ran. CPU times
// and cgroups are always current.
func (s *Scan) List(all bool) (Listing, error) {
	if s.sliceRoom > 0 { // the last call had too little
		if err := s.load(len(s.processes)/processSize, nil); err != nil {
			return Listing{}, err
		}
	}
	for {
		s.result = tasksScanned{Same: math.MaxUint32}
		s.result.Elapsed = s.threads.begin()
		if all {
			s.result.All = 1
		}
		if err := s.runOnce(); err != nil {
			return Listing{}, fmt.Errorf("run the task scan: %w", err)
		}
		n := int(s.result.Processes)
		if room := len(s.processes) / processSize; n > room {
			if err := s.load(2*n, nil); err != nil {
				return Listing{}, err
			}
			continue
		}
		if n == 0 {
			return Listing{}, fmt.Errorf("run the task scan: %w", errNothing)
		}
		s.threads.end()
		return Listing{
			Processes: unsafe.Slice((*Process)(unsafe.Pointer(unsafe.SliceData(s.processes))), n),
			Same:      int(s.result.Same),
			Changed:   unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(s.changes))), s.result.Changed),
			Slices:    s.listSlices(),
		}, nil
	}
}

// listSlices returns the slices of the last call. Where there was too little room for them the next
// call has more.
func (s *Scan) listSlices() []Slice {
	count := s.result.Slices
	if s.threads == nil {
		return nil
	}
	m := s.loaded.Maps[tasksMapSlices]
	if count >= m.MaxEntries() {
		s.sliceRoom = 2 * int(count)
	}
	return slicesIn(m, s.slices, count)
}

// soon is the longest call that is hidden from Go's scheduler. The scheduler wakes a thread to
// watch every call that it sees. A hidden call delays the garbage collector until it returns.
const soon = 500 * time.Microsecond

func (s *Scan) runOnce() error {
	call := unix.Syscall
	if s.quick {
		call = unix.RawSyscall
	}
	began := time.Now()
	if err := s.run.test(call); err != nil {
		return err
	}
	s.quick = time.Since(began) < soon
	return nil
}

// Shrink loads the program anew with room for this many processes, if that is less than half of the
// room that there is. The next call lists all processes as new.
func (s *Scan) Shrink(room int) error {
	if room > len(s.processes)/processSize/2 {
		return nil
	}
	s.sliceRoom = 0
	return s.load(room, nil)
}

// Close unloads the program.
func (s *Scan) Close() error {
	threads := s.threads
	s.threads = nil
	return errors.Join(s.unload(), threads.close())
}

func (s *Scan) unload() error {
	if s.loaded == nil {
		return nil
	}
	s.loaded.Close()
	s.loaded = nil
	var err error
	for _, memory := range [][]byte{s.processes, s.changes, s.slices} {
		if memory != nil {
			err = errors.Join(err, unix.Munmap(memory))
		}
	}
	return err
}

// Stream lists all processes through a task iterator that is read like a file (Linux 5.8 and
// later). It needs CAP_BPF and CAP_PERFMON.
type Stream struct {
	loaded *ebpf.Collection
	iter   *link.Iter
	buf    []byte
	out    []Process
	early  []Process // threads that the kernel lists before their process

	slices []Slice // nil where none are noted
}

// OpenStream loads the program. Slices take Linux 5.13.
func OpenStream(o Options) (*Stream, error) {
	spec, err := only(tasksProgStream)
	if err != nil {
		return nil, err
	}
	keepMaps(spec, tasksMapThreadRuns)
	if err := slice(spec, o.Slices); err != nil {
		return nil, err
	}
	loaded, err := newCollection(spec, ebpf.CollectionOptions{Cache: o.Types})
	if err != nil {
		return nil, fmt.Errorf("load the task stream: %w", withGrants(err))
	}
	iter, err := link.AttachIter(link.IterOptions{Program: loaded.Programs[tasksProgStream]})
	if err != nil {
		loaded.Close()
		return nil, fmt.Errorf("attach the task stream: %w", err)
	}
	s := &Stream{loaded: loaded, iter: iter, buf: make([]byte, 1024*processSize)}
	if o.Slices {
		s.slices = make([]Slice, 1)
	}
	return s, nil
}

// Shrink gives back the memory of the last listing, which is not valid any more.
func (s *Stream) Shrink(int) error {
	s.out, s.early = nil, nil
	if s.slices != nil {
		s.slices = make([]Slice, 1)
	}
	return nil
}

// List returns all processes, as if all had changed since the last call. Their descriptions are
// always current.
func (s *Stream) List(bool) (Listing, error) {
	r, err := s.iter.Open()
	if err != nil {
		return Listing{}, fmt.Errorf("open the task stream: %w", err)
	}
	defer func() { _ = r.Close() }() // it was only read from
	s.out, s.early, s.slices = s.out[:0], s.early[:0], s.slices[:min(1, len(s.slices))]
	kept := 0
	for {
		n, err := r.Read(s.buf[kept:])
		n += kept
		whole := n / processSize
		tasks := unsafe.Slice((*Process)(unsafe.Pointer(unsafe.SliceData(s.buf))), whole)
		for i := range tasks {
			s.add(&tasks[i])
		}
		kept = copy(s.buf, s.buf[whole*processSize:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Listing{}, fmt.Errorf("read the task stream: %w", err)
		}
	}
	return s.sum()
}

// add takes one task of the stream, which the kernel lists by number: a process mostly comes before
// its threads, but numbers are used again.
func (s *Stream) add(t *Process) {
	if t.Threads > 0 {
		s.out = append(s.out, *t)
		row := &s.out[len(s.out)-1]
		if row.Slice = 0; t.Threads > 1 {
			s.addSlice(row, t)
		}
		return
	}
	if row := s.row(t.Pid); row != nil {
		row.Run += t.Run
		s.addSlice(row, t)
		return
	}
	s.early = append(s.early, *t)
}

// addSlice adds what a thread used to its process's slices. The kernel counts it in whole
// microseconds here.
func (s *Stream) addSlice(row, thread *Process) {
	if s.slices == nil || thread.Slice == 0 {
		return
	}
	s.slices = append(s.slices, Slice{Run: uint64(thread.Slice) * 1000, Cpu: thread.Cpu, Next: row.Slice})
	row.Slice = uint32(len(s.slices) - 1)
}

func (s *Stream) row(pid uint32) *Process {
	if last := len(s.out) - 1; last >= 0 && s.out[last].Pid == pid {
		return &s.out[last]
	}
	i, ok := slices.BinarySearchFunc(s.out, pid, func(p Process, pid uint32) int { return cmp.Compare(p.Pid, pid) })
	if !ok {
		return nil
	}
	return &s.out[i]
}

// sum completes the processes' times, and orders them by age.
func (s *Stream) sum() (Listing, error) {
	for i := range s.early {
		t := &s.early[i]
		row := s.row(t.Pid)
		if row == nil {
			continue // its process has ended meanwhile
		}
		row.Run += t.Run
		s.addSlice(row, t)
		// A thread that ended between the two readings is in the later one of its process's dead
		// threads.
		row.Dead = min(row.Dead, t.Dead)
	}
	for i := range s.out {
		p := &s.out[i]
		p.Run, p.Dead = p.Run+p.Dead, 0
	}
	if len(s.out) == 0 {
		return Listing{}, fmt.Errorf("read the task stream: %w", errNothing)
	}
	slices.SortFunc(s.out, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Pid, b.Pid)) })
	return Listing{Processes: s.out, Slices: s.slices}, nil
}

// Close unloads the program.
func (s *Stream) Close() error {
	err := s.iter.Close()
	s.loaded.Close()
	return err
}

// Endings catches every process that ends, with its final CPU time. It needs CAP_BPF and
// CAP_PERFMON.
type Endings struct {
	loaded *ebpf.Collection
	hook   link.Link
	ring   *ring.Reader
	alarm  *ring.Alarm // nil until Watch
	lost   Lost        // since the hook was attached

	domains int
	ended   Ended               // the last one that was reported
	take    func(record []byte) // parse
	yield   func(*Ended)        // of the call of Drain
}

// Lost counts exited processes that Endings missed or that lack CPU time.
type Lost struct {
	// Count and Run are the number and the CPU time of processes that did not fit into the buffer.
	Count, Run uint64
	// Incomplete is the number of processes that lack CPU time of threads that exited before the
	// process, up to a scheduler tick of each thread. Either the times of these threads were evicted,
	// or the kernel did not call the hook.
	Incomplete uint64
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler, without which a variable is read by
// reflection.
func (l *Lost) UnmarshalBinary(b []byte) error {
	l.Count, l.Run = binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
	l.Incomplete = binary.NativeEndian.Uint64(b[16:])
	return nil
}

// EndingsBuffer is the size of a buffer for 104,857 process exits of 40 bytes each. When half of it
// is full, Watch reports it.
const EndingsBuffer = 4 << 20

// roomForThreads returns the size of the map of exited threads. It has room for the threads of at
// least 16,384 processes. The kernel gives each CPU up to 128 unused elements in advance, and evicts
// elements if fewer are left (kernel/bpf/bpf_lru_list.c, LOCAL_FREE_TARGET).
func roomForThreads() (uint32, error) {
	const processes, inAdvance = 1 << 14, 128
	cpus, err := ebpf.PossibleCPU()
	return uint32(processes + inAdvance*(cpus+1)), err
}

// OpenEndings loads the hook with a buffer of this many bytes, a power of two of whole pages.
func OpenEndings(buffer int, o Options) (*Endings, error) {
	spec, err := only(tasksProgOnFree)
	if err != nil {
		return nil, err
	}
	keepMaps(spec, tasksMapEndings, tasksMapFreedThreads, tasksMapFreedKeys, tasksMapDomainOf, tasksMapFreedByDomain)
	if spec.Maps[tasksMapFreedThreads].MaxEntries, err = roomForThreads(); err != nil {
		return nil, err
	}
	if err := divide(spec, o.Domains); err != nil {
		return nil, err
	}
	spec.Maps[tasksMapEndings].MaxEntries = uint32(buffer)
	if err := spec.Variables[tasksVarEndingsSize].Set(uint32(buffer)); err != nil {
		return nil, err
	}
	loaded, err := newCollection(spec, ebpf.CollectionOptions{Cache: o.Types})
	if err != nil {
		return nil, fmt.Errorf("load the hook on process ends: %w", withGrants(err))
	}
	e := &Endings{loaded: loaded, domains: o.Domains}
	e.take = e.parse
	m := loaded.Maps[tasksMapEndings]
	if e.ring, err = ring.NewReader(m.FD(), m.MaxEntries()); err != nil {
		loaded.Close()
		return nil, fmt.Errorf("read the hook on process ends: %w", err)
	}
	if e.hook, err = link.AttachTracing(link.TracingOptions{Program: loaded.Programs[tasksProgOnFree]}); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the hook on process ends: %w", err), e.Close())
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if err := loaded.Variables[tasksVarAttached].Set(uint64(now.Nano())); err != nil {
		return nil, errors.Join(fmt.Errorf("start the hook on process ends: %w", err), e.Close())
	}
	return e, nil
}

// Watch calls halfFull from its own goroutine whenever the buffer becomes half full, until Close.
// It may be called once.
func (e *Endings) Watch(halfFull func()) (err error) {
	e.alarm, err = ring.NewAlarm(e.loaded.Maps[tasksMapEndings].FD(), halfFull)
	return err
}

// Drain calls yield for each process that exited since the last call. It returns the losses since
// the last call.
func (e *Endings) Drain(yield func(*Ended)) (Lost, error) {
	e.yield = yield
	if err := e.ring.Drain(e.take); err != nil {
		return Lost{}, fmt.Errorf("read process exits: %w", err)
	}
	var now Lost
	if err := e.loaded.Variables[tasksVarLost].Get(&now); err != nil {
		return Lost{}, fmt.Errorf("read the counters of lost process exits: %w", err)
	}
	last := e.lost
	e.lost = now
	return Lost{Count: now.Count - last.Count, Run: now.Run - last.Run, Incomplete: now.Incomplete - last.Incomplete}, nil
}

const endedSize = int(unsafe.Sizeof(tasksEnded{}))

// parse reports the end in a record.
func (e *Endings) parse(record []byte) {
	if len(record) < endedSize+8*e.domains {
		return
	}
	r := (*tasksEnded)(unsafe.Pointer(unsafe.SliceData(record)))
	e.ended = Ended{Start: r.Start, Run: r.Run, Cgroup: r.Cgroup, Pid: r.Pid, Parent: r.Parent, UID: r.Uid, Comm: r.Comm}
	if e.domains > 0 {
		e.ended.Weights = unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(r), endedSize)), e.domains)
	}
	e.yield(&e.ended)
}

// SetDomains sets the domain of each CPU, by its number.
func (e *Endings) SetDomains(of []int32) error { return setDomains(e.loaded, of) }

// Close detaches and unloads the hook.
func (e *Endings) Close() error {
	var errs []error
	if e.alarm != nil {
		errs = append(errs, e.alarm.Close())
	}
	if e.hook != nil {
		errs = append(errs, e.hook.Close())
	}
	errs = append(errs, e.ring.Close())
	e.loaded.Close()
	return errors.Join(errs...)
}
