//go:build linux && (amd64 || arm64)

package cputime

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/cputime/tasks"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// BPF reads CPU times with BPF programs: in nanoseconds, with the cgroup of each process and with the exact
// last slice of each that ends. The node's own times are those of /proc/stat.
//
// A process that is on a CPU during the pass shows what it had used at the scheduler's last tick; the rest
// is in the next pass.
type BPF struct {
	nodeReader
	name    string
	list    lister
	endings endings
	bootNow func() time.Duration

	ended   map[identity]ending // not yet matched to a row
	missing map[identity]time.Duration
	groups  map[uint64]int32 // scratch of giveUnseen: a row of each cgroup
}

// lister lists all processes in the order in which they were created.
type lister interface {
	Read() ([]tasks.Process, error)
	Close() error
}

// endings tells which processes ended.
type endings interface {
	Drain(yield func(*tasks.Ended)) (lostCount, lostRun uint64, err error)
	Close() error
}

type identity struct {
	pid   int32
	start time.Duration
}

type ending struct {
	run    units.CPUTime
	cgroup uint64
	parent int32
}

// maxAwait is how long a process that is gone is waited for: the kernel tells of its end when it frees it,
// an RCU grace period after it was taken off the list.
const maxAwait = 60 * time.Second

// initialRoom is for how many processes the list has room at first.
const initialRoom = 16384

// OpenBPF loads the programs. It fails where the kernel or its permissions do not allow them, and where the
// processes below root are not this kernel's own.
func OpenBPF(root string) (*BPF, error) {
	b := newBPF(root, nil, nil)
	if err := b.isThisKernel(); err != nil {
		return nil, err
	}
	scan, scanErr := tasks.OpenScan(initialRoom)
	if scanErr == nil {
		b.name, b.list = "bpf (task scan)", scan
	} else {
		stream, err := tasks.OpenStream()
		if err != nil {
			return nil, errors.Join(scanErr, err)
		}
		b.name, b.list = "bpf (task stream)", stream
	}
	hook, err := tasks.OpenEndings(tasks.EndingsBuffer)
	if err == nil {
		b.endings = hook
		err = b.sameProcesses()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func newBPF(root string, list lister, ends endings) *BPF {
	return &BPF{
		nodeReader: newNodeReader(root),
		list:       list,
		endings:    ends,
		bootNow:    bootNow,
		ended:      map[identity]ending{},
		missing:    map[identity]time.Duration{},
		groups:     map[uint64]int32{},
	}
}

// bootNow is the clock that start times are taken from.
func bootNow() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

var errOtherKernel = errors.New("the processes below root_path are not those of this kernel and PID namespace")

// isThisKernel says whether /proc below the root is this kernel's: a recorded tree is not.
func (b *BPF) isThisKernel() error {
	const bootID = "sys/kernel/random/boot_id"
	id, err := b.read(bootID)
	if err != nil {
		return err
	}
	id = bytes.Clone(id)
	own := newNodeReader("/")
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

// sameProcesses says whether /proc below the root numbers processes as the kernel does: that of a container
// with a PID namespace of its own does not.
func (b *BPF) sameProcesses() error {
	listed, err := b.list.Read()
	if err != nil {
		return err
	}
	same := 0
	for i := range listed {
		var p Process
		text, err := b.proc.ReadOf(int32(listed[i].Pid), "stat", b.buf)
		if err != nil || parseProcess(text, &p) != nil {
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

// Name implements Source.
func (b *BPF) Name() string { return b.name }

// Exact implements Source.
func (*BPF) Exact() bool { return true }

// Close implements Source.
func (b *BPF) Close() error {
	errs := []error{b.proc.Close()}
	if b.list != nil {
		errs = append(errs, b.list.Close())
	}
	if b.endings != nil {
		errs = append(errs, b.endings.Close())
	}
	return errors.Join(errs...)
}

// ReadProcesses implements Source.
func (b *BPF) ReadProcesses(t *Table) error {
	now := b.bootNow()
	// The list comes before the endings: a process that ends in between is in both, and kept for the next
	// pass; the other way round it could be in neither.
	listed, err := b.list.Read()
	if err != nil {
		return err
	}
	_, lost, err := b.endings.Drain(func(e *tasks.Ended) {
		b.ended[identity{int32(e.Pid), time.Duration(e.Start)}] = ending{units.CPUTime(e.Run), e.Cgroup, int32(e.Parent)}
	})
	if err != nil {
		return err
	}
	t.begin(now)
	t.Processes = slices.Grow(t.Processes, len(listed))[:len(listed)]
	var threads uint64
	for i := range listed {
		fill(&t.Processes[i], &listed[i])
		threads += uint64(listed[i].Threads)
	}
	t.Run += t.match(byAge, func(p *Process) (units.CPUTime, bool) { return b.final(p, now) })
	t.Run += b.giveUnseen(t) + units.CPUTime(lost)
	t.Untraced = units.CPUTime(lost)
	t.Hidden = hides(b.tasks(), threads)
	t.passes++
	return nil
}

func fill(p *Process, t *tasks.Process) {
	*p = Process{
		PID:     int32(t.Pid),
		Parent:  int32(t.Parent),
		Threads: int32(t.Threads),
		Kernel:  t.Flags&tasks.KernelThread != 0,
		Zombie:  t.Flags&tasks.Zombie != 0,
		Start:   time.Duration(t.Start),
		CPU:     units.CPUTime(t.Run),
		Comm:    t.Comm,
		Cgroup:  t.Cgroup,
	}
}

// final returns what a process that is gone used in all, as soon as that is known.
func (b *BPF) final(p *Process, now time.Duration) (units.CPUTime, bool) {
	id := identity{p.PID, p.Start}
	if e, ok := b.ended[id]; ok {
		delete(b.ended, id)
		delete(b.missing, id)
		return e.run, true
	}
	since, ok := b.missing[id]
	if !ok {
		b.missing[id] = now
		return 0, false
	}
	if now-since < maxAwait {
		return 0, false
	}
	delete(b.missing, id) // the buffer had no room for it: its time is in what was lost
	return p.CPU, true
}

// giveUnseen hands what ended without ever being in a pass to a row of the same cgroup, or else to its
// parent's, or to nobody.
func (b *BPF) giveUnseen(t *Table) (unseen units.CPUTime) {
	clear(b.groups)
	for id, e := range b.ended {
		switch {
		case t.row(id) >= 0: // it ended during the pass, which shows it
			continue
		case t.passes == 0, id.start < t.Now-maxAwait-(t.Now-t.beforeNow):
			delete(b.ended, id) // before the baseline, or given up
			continue
		}
		b.groups[e.cgroup] = -1
	}
	if len(b.groups) == 0 {
		return 0
	}
	for i := range t.Processes {
		p := &t.Processes[i]
		if row, ok := b.groups[p.Cgroup]; ok && row < 0 && !p.Zombie {
			b.groups[p.Cgroup] = int32(i)
		}
	}
	for id, e := range b.ended {
		if t.row(id) >= 0 {
			continue
		}
		delete(b.ended, id)
		unseen += e.run
		row := b.groups[e.cgroup]
		if e.cgroup == rootCgroup { // where v1 is in use everything is there
			row = int32(t.rowOf(e.parent))
		}
		if row >= 0 {
			t.Processes[row].Unseen += e.run
		} else {
			t.Unseen += e.run
		}
	}
	return unseen
}

// rootCgroup is the id of the root of the v2 hierarchy (kernfs numbers its root 1).
const rootCgroup = 1

// row returns the row of a process in a table that is ordered by age, -1 if it has none.
func (t *Table) row(id identity) int {
	i, ok := slices.BinarySearchFunc(t.Processes, id, func(p Process, id identity) int {
		return byAge(&p, &Process{PID: id.pid, Start: id.start})
	})
	if !ok {
		return -1
	}
	return i
}

// rowOf returns the row of a PID, -1 if it has none.
func (t *Table) rowOf(pid int32) int {
	return slices.IndexFunc(t.Processes, func(p Process) bool { return p.PID == pid })
}
