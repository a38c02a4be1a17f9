// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/ring"
)

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
	// nil if time is not divided. They are valid during the call that reports the process.
	Weights []uint64
	// Events are the hardware events of its threads, 0 if they are not counted.
	Events [perfevent.HardwareEvents]uint64
}

// Lost counts exited processes that Endings missed or that lack CPU time.
type Lost struct {
	// Count and Run are the number and the CPU time of processes that did not fit into the buffer.
	Count, Run uint64
	// Incomplete is the number of processes that lack CPU time of threads that exited before the
	// process, up to a scheduler tick of each thread. Either the times of these threads were evicted,
	// or the kernel did not call the hook.
	Incomplete uint64
	// Events are the hardware events of processes that did not fit into the buffer, and of threads
	// after the exit record of their process.
	Events [perfevent.HardwareEvents]uint64
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. Without it, a variable is read by
// reflection.
func (l *Lost) UnmarshalBinary(b []byte) error {
	l.Count, l.Run = binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
	l.Incomplete = binary.NativeEndian.Uint64(b[16:])
	for i := range l.Events {
		l.Events[i] = binary.NativeEndian.Uint64(b[24+8*i:])
	}
	return nil
}

// Endings catches every process that exits, with its final CPU time. It needs CAP_BPF and
// CAP_PERFMON.
type Endings struct {
	loaded  *programs
	ring    *ring.Reader
	counted *ebpf.Variable // the source of lost
	lost    Lost           // since the hook was attached
	domains int
	events  int // number of values in a record

	ended Ended               // the argument of yield
	take  func(record []byte) // parse
	yield func(*Ended)        // of the call of Drain
}

// EndingsBuffer is the size of a buffer for 65,536 process exits without domains: 56 bytes each, and
// a header of 8. Watch reports when half of it is full.
const EndingsBuffer = 4 << 20

const (
	maxDomains = len(tasksByDomain{}.Run) // MAX_DOMAINS of the programs
	endedSize  = int(unsafe.Sizeof(tasksEnded{}))
)

// OpenEndings loads the hook with a buffer of this many bytes, a power of two of whole pages.
func OpenEndings(buffer int, o Options) (*Endings, error) {
	spec, err := endingsSpec(buffer, o)
	if err != nil {
		return nil, err
	}
	p, err := load(spec, "hook on process exits", ebpf.CollectionOptions{Cache: o.Types, MapReplacements: share(spec, o.Events.shared())})
	if err != nil {
		return nil, err
	}
	e := &Endings{loaded: p, counted: p.Variables[tasksVarLost], domains: o.Domains}
	if o.Events != nil {
		e.events = perfevent.HardwareEvents
	}
	e.take = e.parse
	if err := e.attach(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func endingsSpec(buffer int, o Options) (*ebpf.CollectionSpec, error) {
	domains := o.Domains
	if domains > maxDomains {
		return nil, fmt.Errorf("%d domains are more than %d", domains, maxDomains)
	}
	spec, err := only(tasksProgOnFree)
	if err != nil {
		return nil, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	threads := roomForThreads(cpus)
	spec.Maps[tasksMapFreedThreads].MaxEntries = threads
	if domains > 0 { // else the verifier removes the code that divides
		spec.Maps[tasksMapFreedByDomain].MaxEntries = threads
		if err := perCPU(spec.Maps[tasksMapDomainOf]); err != nil {
			return nil, err
		}
	}
	spec.Maps[tasksMapEndings].MaxEntries = uint32(buffer)
	return spec, errors.Join(
		setFeatures(spec, Options{Events: o.Events}),
		spec.Variables[tasksVarDomains].Set(uint32(domains)),
		spec.Variables[tasksVarEndingsSize].Set(uint32(buffer)),
	)
}

// roomForThreads returns the size of the map of exited threads for a number of CPUs. It has room for
// the threads of at least 16,384 processes. The kernel gives each CPU up to 128 unused elements in
// advance, and evicts elements if fewer are left (kernel/bpf/bpf_lru_list.c, LOCAL_FREE_TARGET).
func roomForThreads(cpus int) uint32 {
	const processes, inAdvance = 1 << 14, 128
	return uint32(processes + inAdvance*(cpus+1))
}

func (e *Endings) attach() (err error) {
	m := e.loaded.Maps[tasksMapEndings]
	if e.ring, err = ring.NewReader(m.FD(), m.MaxEntries()); err != nil {
		return fmt.Errorf("read the hook on process exits: %w", err)
	}
	e.loaded.closes = append(e.loaded.closes, e.ring.Close)
	if err := e.loaded.attach(tasksProgOnFree); err != nil {
		return err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return err
	}
	if err := e.loaded.Variables[tasksVarAttached].Set(uint64(now.Nano())); err != nil {
		return fmt.Errorf("start the hook on process exits: %w", err)
	}
	return nil
}

// Watch calls halfFull from its own goroutine whenever the buffer becomes half full, until Close.
// It may be called once.
func (e *Endings) Watch(halfFull func()) error {
	alarm, err := ring.NewAlarm(e.loaded.Maps[tasksMapEndings].FD(), halfFull)
	if err == nil {
		e.loaded.closes = append(e.loaded.closes, alarm.Close)
	}
	return err
}

// Drain calls yield for each process that exited since the last call. It returns the losses since
// the last call.
func (e *Endings) Drain(yield func(*Ended)) (Lost, error) {
	e.yield = yield
	if err := e.ring.Drain(e.take); err != nil {
		return Lost{}, fmt.Errorf("read process exits: %w", err)
	}
	last, now := e.lost, &e.lost
	if err := e.counted.Get(now); err != nil {
		return Lost{}, fmt.Errorf("read the counters of lost process exits: %w", err)
	}
	lost := Lost{Count: now.Count - last.Count, Run: now.Run - last.Run, Incomplete: now.Incomplete - last.Incomplete}
	for i := range lost.Events {
		lost.Events[i] = now.Events[i] - last.Events[i]
	}
	return lost, nil
}

// parse reports the process in a record.
func (e *Endings) parse(record []byte) {
	if len(record) < endedSize+8*(e.domains+e.events) {
		return
	}
	r := (*tasksEnded)(unsafe.Pointer(unsafe.SliceData(record)))
	e.ended = Ended{Start: r.Start, Run: r.Run, Cgroup: r.Cgroup, Pid: r.Pid, Parent: r.Parent, UID: r.Uid, Comm: r.Comm}
	rest := unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(r), endedSize)), e.domains+e.events)
	if e.domains > 0 {
		e.ended.Weights = rest[:e.domains]
	}
	copy(e.ended.Events[:], rest[e.domains:])
	e.yield(&e.ended)
}

// SetDomains sets the domain of each CPU, by the number of the CPU.
func (e *Endings) SetDomains(of []int32) error {
	m := e.loaded.Maps[tasksMapDomainOf]
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

// Close detaches and unloads the hook.
func (e *Endings) Close() error { return e.loaded.Close() }
