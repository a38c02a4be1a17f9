// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Ran lists the processes that ran. A hook at each context switch marks them. It needs Linux 6.7,
// for open-coded task iterators, CAP_BPF and CAP_PERFMON.
type Ran struct {
	loaded    *ebpf.Collection
	hook      link.Link
	processes []byte
	slices    []byte
	threads   *threadRuns // nil where no slices are noted
	visits    ranVisits
	scan      runAttr
	running   runAttr
}

// OpenRan loads the programs with room for this many processes that ran, and attaches the hook.
// What runs from then on is listed. If the given Scan notes slices, these programs do so too, each
// since the last call of one or the other. It may be nil.
func OpenRan(room int, with *Scan) (*Ran, error) {
	_ = rlimit.RemoveMemlock() // as for the other programs
	spec, err := loadRan()
	if err != nil {
		return nil, err
	}
	r := &Ran{}
	if with != nil {
		r.threads = with.threads
	}
	if err := slice(spec, r.threads != nil); err != nil {
		return nil, err
	}
	page := os.Getpagesize()
	size := (room*processSize + page - 1) / page * page
	spec.Maps[ranMapRanProcesses].MaxEntries = uint32(size / processSize)
	slices := 0
	if r.threads != nil {
		slices = (slicesPerProcess*room*sliceSize + page - 1) / page * page // more of them are not noted
		spec.Maps[ranMapSlices].MaxEntries = uint32(slices / sliceSize)
	}
	if r.loaded, err = newCollection(spec, ebpf.CollectionOptions{MapReplacements: r.threads.replace()}); err != nil {
		return nil, fmt.Errorf("load the hook on context switches: %w", withGrants(err))
	}
	if err := r.open(size, slices); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Ran) open(processes, slices int) (err error) {
	if r.processes, err = mapMemory(r.loaded.Maps[ranMapRanProcesses].FD(), 0, processes, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		r.processes = nil
		return fmt.Errorf("map the processes that ran: %w", err)
	}
	if slices > 0 {
		if r.slices, err = mapMemory(r.loaded.Maps[ranMapSlices].FD(), 0, slices, unix.PROT_READ, unix.MAP_SHARED); err != nil {
			r.slices = nil
			return fmt.Errorf("map the slices of processes that ran: %w", err)
		}
	}
	r.scan = runAttr{
		program:     uint32(r.loaded.Programs[ranProgScanRan].FD()),
		context:     uint64(uintptr(unsafe.Pointer(&r.visits))),
		contextSize: uint32(unsafe.Sizeof(r.visits)),
	}
	r.running = runAttr{program: uint32(r.loaded.Programs[ranProgMarkRunning].FD())}
	if r.hook, err = link.AttachTracing(link.TracingOptions{Program: r.loaded.Programs[ranProgOnSwitch]}); err != nil {
		return fmt.Errorf("attach the hook on context switches: %w", err)
	}
	return r.markRunning()
}

// markRunning marks the processes that are on a CPU or wait for one.
func (r *Ran) markRunning() error {
	if err := r.running.test(unix.Syscall); err != nil {
		return fmt.Errorf("mark the processes that run: %w", err)
	}
	return nil
}

// Visit returns the processes that ran since the last call or since OpenRan, about in the order of
// their numbers, with their slices, and how many these are. If they are more than most, or than
// there is room for, it returns none of them: then list all. The Listing is valid until the next
// call.
//
// A process that runs in the moment of the call may be listed as late as in the next one with all
// that it used until then. One that ended is not listed.
func (r *Ran) Visit(most int) (ran Listing, count int, err error) {
	room := len(r.processes) / processSize
	r.visits = ranVisits{Most: uint32(min(most, room))}
	r.visits.Elapsed = r.threads.begin()
	if err := r.scan.test(unix.RawSyscall); err != nil {
		return Listing{}, 0, fmt.Errorf("visit the processes that ran: %w", err)
	}
	marked, found := int(r.visits.Marked), int(r.visits.Found)
	if marked > most || marked > room || found > room {
		return Listing{}, max(marked, found), r.markRunning() // the marks were taken, also of those that stay on their CPU
	}
	r.threads.end()
	ran.Processes = unsafe.Slice((*Process)(unsafe.Pointer(unsafe.SliceData(r.processes))), found)
	if r.threads != nil {
		ran.Slices = slicesIn(r.loaded.Maps[ranMapSlices], r.slices, r.visits.Slices)
	}
	return ran, found, nil
}

// Close detaches the hook and unloads the programs.
func (r *Ran) Close() error {
	var errs []error
	if r.hook != nil {
		errs = append(errs, r.hook.Close())
	}
	r.loaded.Close()
	for _, memory := range [][]byte{r.processes, r.slices} {
		if memory != nil {
			errs = append(errs, unix.Munmap(memory))
		}
	}
	return errors.Join(errs...)
}
