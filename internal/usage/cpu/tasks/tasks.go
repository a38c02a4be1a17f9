// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Process describes a process. Times are in nanoseconds, Start is since boot.
type Process = tasksProcess

// The bits of Process.Flags.
const (
	KernelThread = 1
	Zombie       = 2
)

// Slice is the CPU time of the threads of a process on one CPU, in nanoseconds. The slices of a
// process are a list: Next is the index of the next one, always a lower one, and 0 ends the list.
type Slice = tasksSlice

// Listing contains processes, and the changes since the previous call. It is valid until the next
// call.
type Listing struct {
	// Processes are in the order of creation.
	Processes []Process
	// Same is the number of processes, from the first, that were at the same index before.
	Same int
	// Changed contains the indices, ascending, of processes that are new, ran or changed.
	Changed []uint64
	// Slices are the CPU times of the threads of processes since the previous call, each counted on
	// the thread's last CPU. The slices of a process begin at the index Process.Slice. If that is 0
	// or not in Slices, all CPU time of the process counts on its CPU. Element 0 is not used.
	Slices []Slice
}

// Options enables features of the programs in addition to listing and catching processes. The zero
// Options disables them.
type Options struct {
	// Slices records the CPU time of each thread by the last CPU of the thread. This requires task
	// storage (Linux 5.11).
	Slices bool
	// Domains is the number of domains of CPUs that divide the CPU time of exited processes, 0 for no
	// division.
	Domains int
	// Events, if set, makes the programs report the hardware events of processes. An open Counter
	// counts them.
	Events *Events
	// Types, if set, shares the kernel's types between programs. Reading the types takes 25 ms.
	Types *btf.Cache
}

// Functions that call the kernel. Tests replace them to simulate failures.
var (
	newCollection = ebpf.NewCollectionWithOptions
	mapMemory     = unix.Mmap
)

var errNothing = errors.New("it listed no process")

// only returns the specification of one program, of the maps that it refers to, and of the
// variables.
func only(program string) (*ebpf.CollectionSpec, error) {
	// Before Linux 5.11 maps count against the limit of locked memory. If it cannot be raised,
	// loading fails.
	_ = rlimit.RemoveMemlock()
	spec, err := loadTasks()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != program })
	used := map[string]bool{}
	for _, i := range spec.Programs[program].Instructions {
		used[i.Reference()] = used[i.Reference()] || i.IsLoadFromMap()
	}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool {
		return !used[name] && !strings.HasPrefix(name, ".") // sections of variables
	})
	return spec, nil
}

// perCPU sizes an array that has an element for each CPU.
func perCPU(m *ebpf.MapSpec) error {
	cpus, err := ebpf.PossibleCPU()
	m.MaxEntries = uint32(cpus)
	return err
}

// programs is a loaded collection with its attached hooks and mapped memory.
type programs struct {
	*ebpf.Collection
	what   string
	closes []func() error // in the order of opening
	err    error          // of the first arrayOf that failed
}

// load loads a collection. The errors of programs call it what.
func load(spec *ebpf.CollectionSpec, what string, o ebpf.CollectionOptions) (*programs, error) {
	loaded, err := newCollection(spec, o)
	if err != nil {
		return nil, fmt.Errorf("load the %s: %w", what, withGrants(err))
	}
	return &programs{Collection: loaded, what: what}, nil
}

// attach attaches a program to its tracepoint, until p is closed.
func (p *programs) attach(program string) error {
	hook, err := link.AttachTracing(link.TracingOptions{Program: p.Programs[program]})
	if err != nil {
		return fmt.Errorf("attach the %s: %w", p.what, err)
	}
	p.closes = append(p.closes, hook.Close)
	return nil
}

// withGrants replaces the advice of the library for a missing permission, which is about the limit
// of locked memory. Since Linux 5.11 that limit does not apply.
func withGrants(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	return fmt.Errorf("%w: requires CAP_BPF and CAP_PERFMON, and a kernel that is not locked down", unix.EPERM)
}

// Close detaches hooks, unmaps memory, and unloads the programs. Further calls have no effect.
func (p *programs) Close() error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, f := range slices.Backward(p.closes) {
		errs = append(errs, f())
	}
	p.closes = nil
	p.Collection.Close()
	return errors.Join(errs...)
}

// arrayOf maps the elements of a BPF map into memory. They are valid until p is closed. If that
// fails, it sets p.err.
func arrayOf[T any](p *programs, name string) []T {
	if p.err != nil {
		return nil
	}
	m, page := p.Maps[name], os.Getpagesize()
	size := int(m.MaxEntries()) * int(m.ValueSize())
	memory, err := mapMemory(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		p.err = fmt.Errorf("map %s of the %s: %w", name, p.what, err)
		return nil
	}
	p.closes = append(p.closes, func() error { return unix.Munmap(memory) })
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), size/int(unsafe.Sizeof(*new(T))))
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
	flags, cpu     uint32
	_, _           uint32
}

// runOf returns what runs a program of the type syscall with a context, which must stay reachable.
func runOf[T any](p *ebpf.Program, context *T) runAttr {
	return runAttr{
		program:     uint32(p.FD()),
		context:     uint64(uintptr(unsafe.Pointer(context))),
		contextSize: uint32(unsafe.Sizeof(*context)),
	}
}

// run runs the program, by unix.Syscall or unix.RawSyscall.
func (a *runAttr) run(call func(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno)) error {
	if _, _, errno := call(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a)); errno != 0 {
		return errno
	}
	return nil
}

// optionalMaps are the maps of features that are not enabled by default. Older kernels lack some of
// their types.
var optionalMaps = []string{tasksMapThreadRuns, tasksMapExitedEvents, ranMapCycles, ranMapInstructions, ranMapMisses}

// setFeatures sets whether programs record slices and events. If they do not, the verifier removes
// the code that does, and arrays replace the maps of these features.
func setFeatures(spec *ebpf.CollectionSpec, o Options) error {
	for _, name := range optionalMaps {
		m, needed := spec.Maps[name], o.Events != nil || o.Slices && name == tasksMapThreadRuns
		if m != nil && !needed {
			*m = ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}
		}
	}
	if err := spec.Variables[tasksVarCounting].Set(uint32(o.Events.count())); err != nil || !o.Slices {
		return err
	}
	if m := spec.Maps[tasksMapSliceOn]; m != nil { // not in a stream
		if err := perCPU(m); err != nil {
			return err
		}
	}
	return spec.Variables[tasksVarSlicing].Set(uint32(1))
}

// share returns the maps that a program uses, and sets their sizes in its specification. An array in
// place of a map means that the program does not use the map.
func share(spec *ebpf.CollectionSpec, all map[string]*ebpf.Map) map[string]*ebpf.Map {
	used := map[string]*ebpf.Map{}
	for name, m := range all {
		if of := spec.Maps[name]; of != nil && of.Type == m.Type() {
			of.MaxEntries, used[name] = m.MaxEntries(), m
		}
	}
	return used
}

// slicesPerProcess is the initial room for slices, by the room for processes. Tests change it.
var slicesPerProcess = 4
