// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Ran lists the processes that ran. A hook at each context switch marks them. It needs Linux 6.7,
// for open-coded task iterators, CAP_BPF and CAP_PERFMON.
type Ran struct {
	*Counter // counts hardware events by the same hook; nil without events

	loaded    *programs
	processes []Process
	slices    []Slice // nil unless slices are recorded
	with      *Scan
	args      ranVisitArgs
	scan      runAttr
	running   runAttr
}

// OpenRan loads the programs with room for this many processes that ran, and attaches the hook.
// Visit lists the processes that run from then on. If the given Scan records slices, or events and
// events is set, these programs do so too. The slices of both are since the last call of either. The
// Scan may be nil.
func OpenRan(room int, with *Scan, events bool) (*Ran, error) {
	if with == nil {
		with = &Scan{}
	}
	o := with.options
	if !events {
		o.Events = nil
	}
	return openRan(room, with, o, true)
}

// OpenCounter returns a Ran without processes: it only counts events. Other than OpenRan, it does
// not need Linux 6.7.
func OpenCounter(e *Events) (*Ran, error) {
	o := Options{Events: e}
	return openRan(1, &Scan{options: o, shared: e.shared()}, o, false)
}

// ranSpec returns the specification of the programs. lists reports whether they list processes.
func ranSpec(o Options, lists bool) (*ebpf.CollectionSpec, error) {
	spec, err := loadRan()
	if err != nil {
		return nil, err
	}
	if o.Events == nil {
		for _, name := range []string{ranProgFlush, ranProgOnNew, ranProgCreate} {
			delete(spec.Programs, name)
		}
	} else if err := perCPU(spec.Maps[ranMapCpuEvents]); err != nil {
		return nil, err
	}
	if !lists {
		delete(spec.Programs, ranProgScanRan)
		delete(spec.Programs, ranProgMarkRunning)
		if err := spec.Variables[ranVarMarking].Set(uint32(0)); err != nil {
			return nil, err
		}
	}
	return spec, setFeatures(spec, o)
}

func openRan(room int, with *Scan, o Options, lists bool) (*Ran, error) {
	spec, err := ranSpec(o, lists)
	if err != nil {
		return nil, err
	}
	spec.Maps[ranMapRanProcesses].MaxEntries = uint32(room)
	if o.Slices {
		spec.Maps[ranMapSlices].MaxEntries = uint32(slicesPerProcess * room) // more are not recorded
	}
	p, err := load(spec, "hook on context switches", ebpf.CollectionOptions{MapReplacements: share(spec, with.shared)})
	if err != nil {
		return nil, err
	}
	r := &Ran{loaded: p, with: with, processes: arrayOf[Process](p, ranMapRanProcesses)}
	if o.Slices {
		r.slices = arrayOf[Slice](p, ranMapSlices)
	}
	if err := r.open(o.Events, lists); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Ran) open(e *Events, lists bool) (err error) {
	if r.loaded.err != nil {
		return r.loaded.err
	}
	if err := r.loaded.attach(ranProgOnSwitch); err != nil {
		return err
	}
	if e != nil {
		if err := r.loaded.attach(ranProgOnNew); err != nil {
			return err
		}
		if r.Counter, err = openCounter(r.loaded, e.hardware); err != nil {
			return err
		}
	}
	if !lists {
		return nil
	}
	r.scan = runOf(r.loaded.Programs[ranProgScanRan], &r.args)
	r.running = runOf[struct{}](r.loaded.Programs[ranProgMarkRunning], nil)
	return r.markRunning()
}

// markRunning marks the processes that are on a CPU or wait for one.
func (r *Ran) markRunning() error {
	if err := r.running.run(unix.Syscall); err != nil {
		return fmt.Errorf("mark the processes that run: %w", err)
	}
	return nil
}

// Visit returns the processes that ran since the last call or since OpenRan, about in the order of
// their PIDs, with their slices, and the number of these processes. If there are more than most, or
// more than there is room for, the Listing is empty: then list all. The Listing is valid until the
// next call.
//
// A process that runs during the call may be missing until the next call, which then returns all its
// CPU time. Exited processes are not returned.
func (r *Ran) Visit(most int) (ran Listing, count int, err error) {
	room := len(r.processes)
	r.args = ranVisitArgs{Most: uint32(min(most, room)), Elapsed: r.with.elapsed()}
	if err := r.scan.run(unix.RawSyscall); err != nil {
		return Listing{}, 0, fmt.Errorf("visit the processes that ran: %w", err)
	}
	marked, found := int(r.args.Marked), int(r.args.Found)
	if marked > most || marked > room || found > room {
		// The program took all marks, also of processes that stay on their CPU.
		return Listing{}, max(marked, found), r.markRunning()
	}
	r.with.scanned = time.Now()
	return Listing{
		Processes: r.processes[:found],
		Slices:    r.slices[:min(int(r.args.Slices)+1, len(r.slices))],
	}, found, nil
}

// Close detaches the hook and unloads the programs.
func (r *Ran) Close() error { return r.loaded.Close() }
