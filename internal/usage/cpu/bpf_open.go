// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// minRoom is the minimum number of processes that the list has room for. If the room does not
// suffice, the list is loaded again.
const minRoom = 2048

// The functions that open the programs. Tests replace them to simulate failures.
var (
	openScan = func(o tasks.Options) (lister, error) {
		return orNil[lister](tasks.OpenScan(initialRoom(), o))
	}
	openStream = func(o tasks.Options) (lister, error) {
		return orNil[lister](tasks.OpenStream(o))
	}
	openEndings = func(o tasks.Options) (endings, error) {
		return orNil[endings](tasks.OpenEndings(tasks.EndingsBuffer, o))
	}
	openRan = func(with lister, events bool) (visitor, error) {
		rescan, _ := with.(*tasks.Scan)
		return orNil[visitor](tasks.OpenRan(ranRoom, rescan, events))
	}
	openCounter = func(e *tasks.Events) (visitor, error) {
		return orNil[visitor](tasks.OpenCounter(e))
	}
)

// initialRoom returns the initial number of processes that the list has room for: a quarter more
// than exist.
func initialRoom() int {
	own := newProcFiles("/")
	processes, _ := countProcesses(own.proc)
	_ = own.proc.Close() // it was only read from
	return max(minRoom, int(min(processes, 1<<22))*5/4)
}

// countProcesses returns the approximate number of processes, including zombies. /proc has a link
// for each process (fs/proc/root.c, proc_root_getattr), but not for its threads.
func countProcesses(dir *kernfs.Dir) (uint64, error) { return dir.Links() }

// OpenBPF loads the programs. It returns an error if the kernel or the permissions do not allow
// them, or if the processes below the root do not belong to this kernel. It does not look at
// o.Kind.
func OpenBPF(o Options) (*BPF, error) {
	if err := perfevent.CheckKernel(o.Root); err != nil {
		return nil, err
	}
	b := newBPF(o, nil, nil)
	b.programs.slicing = o.Slices || o.Topology != nil
	b.counting.open(o)
	if err := b.open(); err != nil {
		return nil, oneline.Join(err, b.Close())
	}
	return b, nil
}

func (b *BPF) open() error {
	o := tasks.Options{
		Slices: b.programs.slicing, Domains: b.ends.domains, Events: b.counting.events,
		Types: btf.NewCache(), // the types are read once
	}
	scanErr, err := b.openList(&o)
	if err != nil {
		return err
	}
	if b.ends.endings, err = openCounting(b, &o, openEndings); err != nil {
		return err
	}
	b.cgroups.listen(o.Types)
	b.hook.events = o.Events != nil
	b.hook.open = func() (visitor, error) { return openRan(b.list, b.hook.events) }
	if b.hook.blind = scanErr != nil && b.hook.events; b.hook.blind {
		b.hook.open = func() (visitor, error) { return openCounter(o.Events) }
	}
	if err := b.setDomains(); err != nil {
		return err
	}
	if err := b.sameProcesses(); err != nil {
		return err
	}
	return b.ends.endings.Watch(b.ends.drainBetween)
}

// openList opens the scan, or the stream if the kernel does not support the scan for the reason scanErr.
func (b *BPF) openList(o *tasks.Options) (scanErr, err error) {
	b.name = "bpf (task scan)"
	if b.list, scanErr = openCounting(b, o, openScan); scanErr == nil {
		return nil, nil
	}
	b.name = "bpf (task stream)"
	b.list, err = openCounting(b, o, openStream)
	if err != nil && o.Slices {
		b.programs.unsliced = fmt.Errorf("CPU time of each thread of a process: %w", err)
		o.Slices = false
		b.list, err = openCounting(b, o, openStream) // before Linux 5.13 the programs cannot record the CPU time of each thread
	}
	if err != nil {
		return scanErr, oneline.Join(scanErr, err)
	}
	return scanErr, nil
}

// openCounting opens a part of the source. If the part cannot count events, it is opened without
// events, and the other parts do not count events either.
func openCounting[T any](b *BPF, o *tasks.Options, open func(tasks.Options) (T, error)) (T, error) {
	part, err := open(*o)
	if err == nil || o.Events == nil {
		return part, err
	}
	without := *o
	without.Events = nil
	uncounted, other := open(without)
	if other != nil { // the events are not the reason
		return part, err
	}
	b.counting.refuse(err)
	*o = without
	return uncounted, nil
}

// bootNow returns the time since boot, on the clock of start times, or 0 if it cannot be read.
func bootNow() time.Duration {
	now, _ := ReadClock(unix.CLOCK_BOOTTIME)
	return time.Duration(now)
}

var errOtherKernel = errors.New("the processes below root_path belong to another kernel, PID namespace or time namespace")

// sameProcesses returns an error unless /proc below the root shows the PIDs of the initial PID
// namespace. The /proc of a container with its own PID namespace does not.
func (b *BPF) sameProcesses() error {
	l, err := b.list.List(true)
	if err != nil {
		return err
	}
	listed := l.Processes
	same := 0
	for i := range listed {
		var p proc.Sight
		text, err := b.proc.ReadOf(int32(listed[i].Pid), "stat", b.buf)
		if err != nil || ParseProcess(text, &p) != nil {
			continue
		}
		if p.Start != time.Duration(listed[i].Start).Truncate(time.Duration(Tick)) {
			return errOtherKernel
		}
		if same++; same == 8 {
			break
		}
	}
	if same == 0 {
		return errOtherKernel
	}
	return nil
}
