// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Attach returns the group of a process that runs already and its descendants. It does not change
// them. Their CPU time counts from now on, without this process. The group starts no command.
func Attach(root string, pid int) (*Group, error) {
	if pid == os.Getpid() {
		return nil, fmt.Errorf("process %d: it cannot measure itself", pid)
	}
	tree, err := newProcessTree(root)
	if err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	t, err := newTreeTimes(tree, pid, map[int]bool{os.Getpid(): true})
	if err == nil && len(t.members) == 0 {
		err = fmt.Errorf("process %d: %w", pid, unix.ESRCH) // it has ended
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(pidfd))
	}
	return &Group{root: root, tree: tree, counter: t, pid: pid, pidfd: pidfd}, nil
}

// Args returns the command line of the process of an attached group, or its name without one.
func (g *Group) Args() []string {
	if p, err := g.tree.proc.Proc(g.pid); err == nil {
		if args, err := p.CmdLine(); err == nil && len(args) > 0 {
			return args
		}
		if name, err := p.Comm(); err == nil {
			return []string{name}
		}
	}
	return []string{fmt.Sprint(g.pid)}
}

// AwaitEnd waits until the process of an attached group has ended, or ctx has. It reports whether
// the process has.
func (g *Group) AwaitEnd(ctx context.Context) bool {
	const again = 20 // ms
	poll := []unix.PollFd{{Fd: int32(g.pidfd), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		if n, err := unix.Poll(poll, again); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return true
		}
	}
	return false
}
