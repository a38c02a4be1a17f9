//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Process is one process as the programs list it: times in nanoseconds, Start since boot. It is 64 bytes.
type Process = tasksProcess

// Ended is what is left of a process that ended: Run is all that it used.
type Ended = tasksEnded

// The bits of Process.Flags.
const (
	KernelThread = 1
	Zombie       = 2
)

// only returns the collection with one program and the maps that it uses.
func only(program string) (*ebpf.CollectionSpec, error) {
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

// Scan lists all processes in one run of a program (Linux 6.7 and later: it needs open-coded task
// iterators). It needs CAP_BPF and CAP_PERFMON.
type Scan struct {
	spec   *ebpf.CollectionSpec
	loaded *ebpf.Collection
	run    *ebpf.Program
	memory []byte
}

const processSize = int(unsafe.Sizeof(Process{}))

// OpenScan loads the program with room for this many processes. There is more room when it is needed.
func OpenScan(room int) (*Scan, error) {
	spec, err := only(tasksProgScan)
	if err != nil {
		return nil, err
	}
	delete(spec.Maps, tasksMapEndings)
	s := &Scan{spec: spec}
	return s, s.load(room)
}

func (s *Scan) load(room int) error {
	spec := s.spec.Copy()
	page := os.Getpagesize()
	size := (room*processSize + page - 1) / page * page
	spec.Maps[tasksMapProcesses].MaxEntries = uint32(size / processSize)
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load the task scan: %w", err)
	}
	memory, err := unix.Mmap(loaded.Maps[tasksMapProcesses].FD(), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		loaded.Close()
		return fmt.Errorf("map the task scan's results: %w", err)
	}
	if err := s.Close(); err != nil {
		loaded.Close()
		return errors.Join(err, unix.Munmap(memory))
	}
	s.loaded, s.run, s.memory = loaded, loaded.Programs[tasksProgScan], memory
	return nil
}

// Read returns all processes, in the order in which they were created. The slice is valid until the next
// call.
func (s *Scan) Read() ([]Process, error) {
	for {
		n, err := s.run.Run(&ebpf.RunOptions{})
		if err != nil {
			return nil, fmt.Errorf("run the task scan: %w", err)
		}
		if room := len(s.memory) / processSize; int(n) > room {
			if err := s.load(2 * int(n)); err != nil {
				return nil, err
			}
			continue
		}
		return unsafe.Slice((*Process)(unsafe.Pointer(unsafe.SliceData(s.memory))), n), nil
	}
}

// Close unloads the program.
func (s *Scan) Close() error {
	if s.loaded == nil {
		return nil
	}
	s.loaded.Close()
	s.loaded = nil
	return unix.Munmap(s.memory)
}

// Stream lists all processes through a task iterator that is read like a file (Linux 5.8 and later). It
// needs CAP_BPF and CAP_PERFMON.
type Stream struct {
	loaded *ebpf.Collection
	iter   *link.Iter
	buf    []byte
	out    []Process
}

// OpenStream loads the program.
func OpenStream() (*Stream, error) {
	spec, err := only(tasksProgStream)
	if err != nil {
		return nil, err
	}
	delete(spec.Maps, tasksMapEndings)
	delete(spec.Maps, tasksMapProcesses)
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the task stream: %w", err)
	}
	iter, err := link.AttachIter(link.IterOptions{Program: loaded.Programs[tasksProgStream]})
	if err != nil {
		loaded.Close()
		return nil, fmt.Errorf("attach the task stream: %w", err)
	}
	return &Stream{loaded: loaded, iter: iter, buf: make([]byte, 1024*processSize)}, nil
}

// Read returns all processes, in the order in which they were created. The slice is valid until the next
// call.
func (s *Stream) Read() ([]Process, error) {
	r, err := s.iter.Open()
	if err != nil {
		return nil, fmt.Errorf("open the task stream: %w", err)
	}
	defer r.Close()
	s.out = s.out[:0]
	kept := 0
	for {
		n, err := r.Read(s.buf[kept:])
		n += kept
		whole := n / processSize
		for _, t := range unsafe.Slice((*Process)(unsafe.Pointer(unsafe.SliceData(s.buf))), whole) {
			last := len(s.out) - 1
			switch {
			case t.Threads > 0: // a leader; its other threads follow
				s.out = append(s.out, t)
			case last >= 0 && s.out[last].Pid == t.Pid:
				s.out[last].Run += t.Run
			}
		}
		kept = copy(s.buf, s.buf[whole*processSize:n])
		if errors.Is(err, io.EOF) {
			return s.out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the task stream: %w", err)
		}
	}
}

// Close unloads the program.
func (s *Stream) Close() error {
	err := s.iter.Close()
	s.loaded.Close()
	return err
}

// Endings catches every process that ends, with its final CPU time. It needs CAP_BPF and CAP_PERFMON.
type Endings struct {
	loaded *ebpf.Collection
	hook   link.Link
	ring   *ringbuf.Reader
	record ringbuf.Record
	lost   lost
}

type lost struct{ Count, Run uint64 }

// EndingsBuffer is a buffer for some 87,000 endings between two reads.
const EndingsBuffer = 4 << 20

// OpenEndings loads the hook with a buffer of this many bytes, a power of two of whole pages.
func OpenEndings(buffer int) (*Endings, error) {
	spec, err := only(tasksProgOnFree)
	if err != nil {
		return nil, err
	}
	delete(spec.Maps, tasksMapProcesses)
	spec.Maps[tasksMapEndings].MaxEntries = uint32(buffer)
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the hook on process ends: %w", err)
	}
	e := &Endings{loaded: loaded}
	if e.ring, err = ringbuf.NewReader(loaded.Maps[tasksMapEndings]); err != nil {
		loaded.Close()
		return nil, fmt.Errorf("read the hook on process ends: %w", err)
	}
	e.ring.SetDeadline(time.Unix(1, 0)) // long past: reading never waits
	if e.hook, err = link.AttachTracing(link.TracingOptions{Program: loaded.Programs[tasksProgOnFree]}); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the hook on process ends: %w", err), e.Close())
	}
	return e, nil
}

// Drain calls yield for each process that ended since the last call, and returns how many more there were
// for which the buffer had no room, and their CPU time.
func (e *Endings) Drain(yield func(*Ended)) (count, run uint64, err error) {
	for e.ring.AvailableBytes() > 0 {
		err := e.ring.ReadInto(&e.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read the ends of processes: %w", err)
		}
		if len(e.record.RawSample) >= int(unsafe.Sizeof(Ended{})) {
			yield((*Ended)(unsafe.Pointer(unsafe.SliceData(e.record.RawSample))))
		}
	}
	var now lost
	if err := e.loaded.Variables[tasksVarLost].Get(&now); err != nil {
		return 0, 0, fmt.Errorf("read what was lost: %w", err)
	}
	count, run = now.Count-e.lost.Count, now.Run-e.lost.Run
	e.lost = now
	return count, run, nil
}

// Close detaches and unloads the hook.
func (e *Endings) Close() error {
	var errs []error
	if e.hook != nil {
		errs = append(errs, e.hook.Close())
	}
	errs = append(errs, e.ring.Close())
	e.loaded.Close()
	return errors.Join(errs...)
}
