// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// minRoom is the fewest processes that the list has room for. A list without enough room is loaded
// anew.
const minRoom = 2048

// What the programs are opened with, so that a test can refuse them.
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
	openRan = func(with lister) (visitor, error) {
		rescan, _ := with.(*tasks.Scan)
		return orNil[visitor](tasks.OpenRan(ranRoom, rescan))
	}
)

// initialRoom is how many processes the list has room for at first: a quarter more than there are.
func initialRoom() int {
	own := newProcFiles("/")
	processes, _ := countProcesses(own.proc)
	_ = own.proc.Close() // it was only read from
	return max(minRoom, int(min(processes, 1<<22))*5/4)
}

// countProcesses returns about how many processes there are, zombies included. /proc has a link for
// each process (fs/proc/root.c, proc_root_getattr), but not for its threads.
func countProcesses(dir *kernfs.Dir) (uint64, error) { return dir.Links() }

// OpenBPF loads the programs. It fails where the kernel or its permissions do not allow them, and
// where the processes below the root are not this kernel's own. It does not look at o.Kind.
func OpenBPF(o Options) (*BPF, error) {
	b := newBPF(o, nil, nil)
	b.programs.slicing = o.Slices || o.Topology != nil
	if err := b.open(); err != nil {
		return nil, oneline.Join(err, b.Close())
	}
	return b, nil
}

func (b *BPF) open() error {
	if err := b.isThisKernel(); err != nil {
		return err
	}
	b.name = "bpf (task scan)"
	o := tasks.Options{Slices: b.programs.slicing, Domains: b.ends.domains, Types: btf.NewCache()} // which is read once
	list, scanErr := openScan(o)
	if scanErr != nil {
		b.name = "bpf (task stream)"
		var err error
		if list, err = openStream(o); err != nil && o.Slices {
			b.programs.unsliced = fmt.Errorf("what each thread of a process used: %w", err)
			o.Slices = false
			list, err = openStream(o) // before Linux 5.13 programs cannot note what each thread used
		}
		if err != nil {
			return oneline.Join(scanErr, err)
		}
	}
	b.list = list
	hook, err := openEndings(o)
	if err != nil {
		return err
	}
	b.ends.endings = hook
	b.cgroups.listen(o.Types)
	b.hook.open = func() (visitor, error) { return openRan(list) }
	if err := b.setDomains(); err != nil {
		return err
	}
	if err := b.sameProcesses(); err != nil {
		return err
	}
	return b.ends.endings.Watch(b.ends.drainBetween)
}

// bootNow is the clock that start times are taken from. It is a raw system call, as that of a quick
// scan.
func bootNow() time.Duration {
	var t unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}

var errOtherKernel = errors.New("the processes below root_path are not those of this kernel, PID namespace and time namespace")

// isThisKernel returns an error unless /proc below the root is this kernel's. A recorded tree is
// not.
func (b *BPF) isThisKernel() error {
	const bootID = "sys/kernel/random/boot_id"
	id, err := b.read(bootID)
	if err != nil {
		return err
	}
	id = bytes.Clone(id)
	own := newProcFiles("/")
	ownID, err := own.read(bootID)
	err = errors.Join(err, own.proc.Close())
	if err != nil {
		return err
	}
	if !bytes.Equal(id, ownID) {
		return errOtherKernel
	}
	return nil
}

// sameProcesses returns an error unless /proc below the root numbers processes as the kernel does:
// that of a container with a PID namespace of its own does not.
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
