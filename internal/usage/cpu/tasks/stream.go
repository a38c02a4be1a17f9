// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Stream lists all processes through a task iterator that is read like a file (Linux 5.8 and
// later). It needs CAP_BPF and CAP_PERFMON.
type Stream struct {
	loaded *programs
	iter   *link.Iter
	buf    []byte
	out    []Process
	early  []Process // threads that the kernel lists before their process
	slices []Slice   // nil unless slices are recorded
}

const processSize = int(unsafe.Sizeof(Process{}))

// OpenStream loads the program. Slices require Linux 5.13.
func OpenStream(o Options) (*Stream, error) {
	spec, err := only(tasksProgStream)
	if err != nil {
		return nil, err
	}
	if err := setFeatures(spec, o); err != nil {
		return nil, err
	}
	p, err := load(spec, "task stream", ebpf.CollectionOptions{Cache: o.Types, MapReplacements: share(spec, o.Events.shared())})
	if err != nil {
		return nil, err
	}
	iter, err := link.AttachIter(link.IterOptions{Program: p.Programs[tasksProgStream]})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach the task stream: %w", err), p.Close())
	}
	p.closes = append(p.closes, iter.Close)
	s := &Stream{loaded: p, iter: iter, buf: make([]byte, 1024*processSize)}
	if o.Slices {
		s.slices = make([]Slice, 1)
	}
	return s, nil
}

// Shrink frees the memory of the last Listing, which is not valid any more.
func (s *Stream) Shrink(int) error {
	s.out, s.early, s.slices = nil, nil, slices.Clone(s.slices[:min(1, len(s.slices))])
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
			return s.sum()
		}
		if err != nil {
			return Listing{}, fmt.Errorf("read the task stream: %w", err)
		}
	}
}

// add adds a task of the stream. The kernel lists tasks by ID. A process mostly comes before its
// threads, but IDs are reused.
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
		s.addThread(row, t)
		return
	}
	s.early = append(s.early, *t)
}

// addThread adds a thread to its process.
func (s *Stream) addThread(row, thread *Process) {
	row.Run += thread.Run
	for i := range row.Events {
		row.Events[i] += thread.Events[i]
	}
	s.addSlice(row, thread)
}

// addSlice adds the CPU time of a thread to the slices of its process. Here, the kernel reports it
// in whole microseconds.
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

// sum completes the CPU times of the processes, and orders the processes by age.
func (s *Stream) sum() (Listing, error) {
	for i := range s.early {
		t := &s.early[i]
		row := s.row(t.Pid)
		if row == nil {
			continue // its process has exited meanwhile
		}
		s.addThread(row, t)
		// If a thread exited between the two records, only the later value of Dead contains its time.
		row.Dead = min(row.Dead, t.Dead)
	}
	for i := range s.out {
		p := &s.out[i]
		p.Run, p.Dead = p.Run+p.Dead, 0
	}
	if len(s.out) == 0 {
		return Listing{}, fmt.Errorf("read the task stream: %w", errNothing)
	}
	slices.SortFunc(s.out, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Pid, b.Pid))
	})
	return Listing{Processes: s.out, Slices: s.slices}, nil
}

// Close unloads the program.
func (s *Stream) Close() error { return s.loaded.Close() }
