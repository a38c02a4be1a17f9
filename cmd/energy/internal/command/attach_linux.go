// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Attach returns the group of a process that runs already and its descendants. It does not change
// them. Their CPU time counts from now on. The group starts no command.
func Attach(o Options, pid int) (*Group, error) {
	o.Root = cmp.Or(o.Root, "/")
	tree, err := newProcessTree(o.Root)
	if err != nil {
		return nil, err
	}
	t := &treeTimes{tree: tree, root: pid}
	if t.pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("process %d: %w", pid, err), tree.dir.Close())
	}
	if t.before, err = t.Used(); err == nil && len(t.members) == 0 {
		err = fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	g := &Group{options: o, tree: tree, counter: t}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Args returns the command line of the process of an attached group, or its name without one.
func (g *Group) Args() []string {
	root := g.counter.(*treeTimes).root
	p, err := g.tree.proc.Proc(root)
	if err == nil {
		if args, err := p.CmdLine(); err == nil && len(args) > 0 {
			return args
		}
		if name, err := p.Comm(); err == nil {
			return []string{name}
		}
	}
	return []string{fmt.Sprint(root)}
}

// AwaitEnd waits until the process of an attached group has ended, or ctx has. It reports whether
// the process has.
func (g *Group) AwaitEnd(ctx context.Context) bool {
	const again = 20 // ms
	poll := []unix.PollFd{{Fd: int32(g.counter.(*treeTimes).pidfd), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		if n, err := unix.Poll(poll, again); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return true
		}
	}
	return false
}

// treeTimes is the CPU time of a process and its descendants: the CPU clocks of those that run, and
// the times of children that they waited for, which are in ticks. Descendants whose parent ended
// remain in the tree.
type treeTimes struct {
	tree    *processTree
	root    int
	pidfd   int
	before  units.CPUTime // the time before Attach
	members map[int]member
	gone    units.CPUTime // the time of members that ended and that no member waited for
	lost    error         // why times were lost, nil if nothing shows that any were
}

// member is a process of the tree as it was read last.
type member struct {
	start  uint64
	parent int
	used   units.CPUTime // with that of the children that it waited for
}

func (*treeTimes) method() Method                     { return ProcessTree }
func (*treeTimes) path() string                       { return "" }
func (t *treeTimes) close() error                     { return os.NewSyscallError("close", unix.Close(t.pidfd)) }
func (*treeTimes) start(func(cgroup int) error) error { return errHasBegun }

// Processes implements cpu.Group. It yields the processes that the last Used found.
func (t *treeTimes) Processes(yield func(pid int32)) error {
	for pid := range t.members {
		yield(int32(pid))
	}
	return nil
}

// Used implements cpu.Group.
func (t *treeTimes) Used() (units.CPUTime, error) {
	if err := t.tree.refresh(); err != nil {
		return 0, err
	}
	old := t.members
	t.members = make(map[int]member, len(old))
	if old == nil {
		t.visit(t.root, nil)
	}
	for pid := range old {
		t.follow(pid, old)
	}
	used := t.gone
	for _, m := range t.members {
		used += m.used
	}
	for pid, m := range old {
		if now, ok := t.members[pid]; ok && now.start == m.start {
			continue
		}
		if parent, ok := t.members[m.parent]; !ok || parent.start != old[m.parent].start {
			t.gone += m.used
			used += m.used
			t.lose(pid)
		}
	}
	return units.Advance(t.before, used), nil
}

// lose records the end of a process that no member waited for.
func (t *treeTimes) lose(pid int) {
	if pid == t.root {
		t.lost = errors.New("the CPU time of the process between the last measurement and its end is not available")
	} else if t.lost == nil {
		t.lost = errors.New("a descendant ended that its parent did not wait for: what it used at its end is not available")
	}
}

// follow adds a process that was in the tree before, after its parent.
func (t *treeTimes) follow(pid int, old map[int]member) {
	m, ok := old[pid]
	if _, visited := t.members[pid]; !ok || visited {
		return
	}
	if parent, ok := old[m.parent]; ok && parent.start <= m.start && m.parent != pid {
		t.follow(m.parent, old)
	}
	t.visit(pid, &m)
}

// visit adds a process and those below it. is, if it is not nil, is the process as it was read last:
// another one may have its number.
//
// Each process is read before its children, so that what is waited for meanwhile is not counted twice.
func (t *treeTimes) visit(pid int, is *member) {
	if _, ok := t.members[pid]; ok {
		return
	}
	stat, err := t.tree.stat(pid)
	if err != nil || is != nil && stat.Starttime != is.start {
		return // it ended
	}
	t.members[pid] = member{
		stat.Starttime, stat.PPID, processTime(pid, &stat) + ticks(uint(max(stat.CUTime, 0))) + ticks(uint(max(stat.CSTime, 0))),
	}
	children := t.tree.childrenOf(pid)
	if len(children) > 0 && t.lost == nil && t.tree.ignoresSIGCHLD(pid) {
		t.lost = fmt.Errorf("%s ignores SIGCHLD: the times of its children that ended are lost", stat.Comm)
	}
	for _, child := range children {
		t.visit(child, nil)
	}
}
