// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Scan lists all processes in one run of a program (Linux 6.7 and later: it needs open-coded task
// iterators). It needs CAP_BPF and CAP_PERFMON.
type Scan struct {
	loaded    scanProgram
	args      tasksScanArgs
	quick     bool      // the last run
	sliceRoom int       // the minimum room for slices of the next program, 0 if this one suffices
	scanned   time.Time // when processes were listed last, by the Scan or by a Ran
	options   Options
	// shared are the maps of the state of threads, by name. They outlive a program, and a Ran
	// shares them. own is set if the Scan created the map, and not Options.Events.
	shared map[string]*ebpf.Map
	own    *ebpf.Map
}

// scanProgram is the loaded program and its results in memory.
type scanProgram struct {
	*programs
	run       runAttr
	processes []Process
	changes   []uint64
	slices    []Slice // nil unless slices are recorded
}

// OpenScan loads the program with room for this many processes. If there are more processes, List
// makes more room.
func OpenScan(room int, o Options) (*Scan, error) {
	spec, err := scanSpec(o)
	if err != nil {
		return nil, err
	}
	s := &Scan{options: o, shared: o.Events.shared()}
	if o.Slices && o.Events == nil {
		if s.own, err = ebpf.NewMap(spec.Maps[tasksMapThreadRuns]); err != nil {
			return nil, fmt.Errorf("make the map of CPU times of threads: %w", withGrants(err))
		}
		s.shared = map[string]*ebpf.Map{tasksMapThreadRuns: s.own}
	}
	s.options.Types = nil
	if err := s.load(spec, room, o.Types); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func scanSpec(o Options) (*ebpf.CollectionSpec, error) {
	spec, err := only(tasksProgScan)
	if err != nil {
		return nil, err
	}
	return spec, setFeatures(spec, o)
}

// reload replaces the program by one with room for this many processes. After an error, the previous
// program remains.
func (s *Scan) reload(room int) error {
	spec, err := scanSpec(s.options)
	if err != nil {
		return err
	}
	return s.load(spec, room, nil)
}

// load replaces the program by the program of spec.
func (s *Scan) load(spec *ebpf.CollectionSpec, room int, types *btf.Cache) error {
	for _, name := range []string{tasksMapProcesses, tasksMapSeen, tasksMapChanges} {
		spec.Maps[name].MaxEntries = uint32(room)
	}
	spec.Maps[tasksMapThreads].MaxEntries = uint32(4 * room) // more threads are not read ahead
	if s.options.Slices {
		spec.Maps[tasksMapSlices].MaxEntries = uint32(max(slicesPerProcess*room, s.sliceRoom, 1))
	}
	p, err := load(spec, "task scan", ebpf.CollectionOptions{Cache: types, MapReplacements: share(spec, s.shared)})
	if err != nil {
		return err
	}
	next := scanProgram{
		programs:  p,
		run:       runOf(p.Programs[tasksProgScan], &s.args),
		processes: arrayOf[Process](p, tasksMapProcesses),
		changes:   arrayOf[uint64](p, tasksMapChanges),
	}
	if s.options.Slices {
		next.slices = arrayOf[Slice](p, tasksMapSlices)
	}
	if p.err != nil {
		return errors.Join(p.err, p.Close())
	}
	last := s.loaded
	s.loaded, s.sliceRoom = next, 0
	return last.Close()
}

// elapsed returns the time since the last scan in nanoseconds, 0 before the first scan.
func (s *Scan) elapsed() uint64 {
	if s.scanned.IsZero() {
		return 0
	}
	return uint64(time.Since(s.scanned))
}

// List returns all processes and what changed since the last call. Unless all is set, the
// description of a process that did not run may be as old as the time when it last ran. CPU times
// and cgroups are always current.
func (s *Scan) List(all bool) (Listing, error) {
	if s.sliceRoom > 0 { // the last call had too little
		if err := s.reload(len(s.loaded.processes)); err != nil {
			return Listing{}, err
		}
	}
	for {
		if err := s.run(all); err != nil {
			return Listing{}, fmt.Errorf("run the task scan: %w", err)
		}
		n := int(s.args.Processes)
		if n == 0 {
			return Listing{}, fmt.Errorf("run the task scan: %w", errNothing)
		}
		if n <= len(s.loaded.processes) {
			s.scanned = time.Now()
			return s.listing(), nil
		}
		if err := s.reload(2 * n); err != nil {
			return Listing{}, err
		}
	}
}

// listing returns the results of the last run. If there were too many slices, the next call of List
// makes room.
func (s *Scan) listing() Listing {
	p, slices := &s.loaded, int(s.args.Slices)
	if s.options.Slices && slices >= len(p.slices) {
		s.sliceRoom = 2 * slices
	}
	return Listing{
		Processes: p.processes[:s.args.Processes],
		Same:      int(s.args.Same),
		Changed:   p.changes[:s.args.Changed],
		Slices:    p.slices[:min(slices+1, len(p.slices))],
	}
}

// soon is the longest run that is hidden from Go's scheduler. The scheduler wakes a thread to watch
// every system call that it sees. A hidden call delays the garbage collector until it returns.
const soon = 500 * time.Microsecond

func (s *Scan) run(all bool) error {
	s.args = tasksScanArgs{Same: math.MaxUint32, Elapsed: s.elapsed()}
	if all {
		s.args.All = 1
	}
	call := unix.Syscall
	if s.quick {
		call = unix.RawSyscall
	}
	began := time.Now()
	if err := s.loaded.run.run(call); err != nil {
		return err
	}
	s.quick = time.Since(began) < soon
	return nil
}

// Shrink reloads the program with room for this many processes, if that is less than half of the
// present room. The next call of List then lists all processes as new.
func (s *Scan) Shrink(room int) error {
	if room > len(s.loaded.processes)/2 {
		return nil
	}
	s.sliceRoom = 0
	return s.reload(room)
}

// Close unloads the program.
func (s *Scan) Close() error {
	return errors.Join(s.loaded.Close(), s.own.Close())
}
