// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Process is a command that was started.
type Process struct {
	group   *Group
	process *os.Process
}

var (
	errGroup    = errors.New("the cgroup cannot be used")
	errNoArgs   = errors.New("no command")
	errHasBegun = errors.New("processes of the group run already")
)

// Start starts a command in the group. If the kernel refuses to start it in the cgroup, the group's
// method becomes the next one. The error is ErrNotFound or ErrNotExecutable if the
// program is the cause.
func (g *Group) Start(c Command) (*Process, error) {
	if len(c.Args) == 0 {
		return nil, errNoArgs
	}
	path, err := Find(c.Args[0])
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		process, err := g.fork(path, &c)
		switch {
		case err == nil:
			g.started = true
			g.commands[process.Pid] = true
			return &Process{group: g, process: process}, nil
		case !errors.Is(err, errGroup):
			return nil, err
		case g.started:
			return nil, errors.Join(err, errHasBegun)
		}
		if err := errors.Join(err, g.counter.close()); g.countNext() != nil {
			return nil, err
		}
	}
}

// fork starts a program. The error is errGroup if it could be started elsewhere.
func (g *Group) fork(path string, c *Command) (process *os.Process, err error) {
	err = g.counter.start(func(cgroup int) (err error) {
		attr := &os.ProcAttr{Env: c.Env, Files: []*os.File{c.Stdin, c.Stdout, c.Stderr}, Sys: &syscall.SysProcAttr{}}
		if cgroup >= 0 {
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, cgroup
		}
		process, err = os.StartProcess(path, c.Args, attr)
		if errors.Is(err, syscall.ENOEXEC) { // a script without a first line that names its interpreter, as for execvp(3)
			process, err = os.StartProcess("/bin/sh", slices.Concat([]string{"sh", path}, c.Args[1:]), attr)
		}
		return err
	})
	if err == nil || errors.Is(err, errGroup) {
		return process, err
	}
	if len(g.untried) > 0 && g.counter.method() == CgroupV2 && refusesCgroup(err) && isExecutable(path) == nil {
		return nil, fmt.Errorf("%w: %w", errGroup, err)
	}
	return nil, explain(c.Args[0], err)
}

// refusesCgroup reports whether an error of fork and exec may come from clone3(2) with a cgroup.
func refusesCgroup(err error) bool {
	return slices.ContainsFunc([]error{
		unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EBUSY, unix.EOPNOTSUPP, unix.ENODEV, unix.ENOENT, unix.EINVAL,
	}, func(no error) bool { return errors.Is(err, no) })
}

// Find returns the path of a program as execvp(3) finds it. The error is ErrNotFound or
// ErrNotExecutable.
func Find(name string) (path string, err error) {
	path, err = exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	if name != "" && !strings.Contains(name, "/") {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if errors.Is(isExecutable(filepath.Join(dir, name)), unix.EACCES) {
				err = unix.EACCES
			}
		}
	}
	return "", explain(name, err)
}

// isExecutable returns why a program cannot be executed, nil if it can.
func isExecutable(path string) error {
	if err := unix.Access(path, unix.X_OK); err != nil {
		return err
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return unix.EACCES
	}
	return nil
}

// explain returns the error of a program that cannot be started.
func explain(name string, err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	because := ErrNotExecutable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		because = ErrNotFound
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		err = no
	}
	return fmt.Errorf("%s: %w: %w", name, because, err)
}

// AwaitEnd waits until the command has ended. Until Wait is called the command remains a process of the
// group with its final CPU time. Processes that it leaves behind are not waited for.
func (p *Process) AwaitEnd() error {
	for {
		err := unix.Waitid(unix.P_PID, p.process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// Wait waits as AwaitEnd does, and returns the exit status of the command as a shell reports it: 128 +
// the signal number if a signal ended the command. It may be called once.
func (p *Process) Wait() (status int, err error) {
	state, err := p.process.Wait()
	p.group.mu.Lock()
	delete(p.group.commands, p.process.Pid)
	p.group.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return state.ExitCode(), nil
}

// Signal sends the command a signal. A command that has ended gets no signal.
func (p *Process) Signal(s os.Signal) error {
	if err := p.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Leftover returns the processes of the group that still run, by their PIDs. Call it when the
// command has ended.
func (g *Group) Leftover() ([]Left, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reap()
	var left []Left
	err := g.counter.Processes(func(pid int32) {
		if stat, err := g.tree.stat(int(pid)); err == nil && stat.State != "Z" && stat.State != "X" {
			left = append(left, Left{PID: stat.PID, Name: stat.Comm, CPU: time.Duration(processTime(stat.PID, &stat))})
		}
	})
	slices.SortFunc(left, func(a, b Left) int { return a.PID - b.PID })
	return left, err
}

// reap waits for adopted orphans that ended, so that their times count and their numbers are free.
func (g *Group) reap() {
	if !g.started || !anyEnded() {
		return
	}
	for _, pid := range g.tree.childrenOf(os.Getpid()) {
		if !g.commands[pid] && !g.foreign[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // it may run yet
		}
	}
}

// anyEnded reports whether a child of this process has ended and was not waited for. It may report
// so after an error. It makes one raw system call. Listing all children would take one for each
// thread.
func anyEnded() bool {
	var info unix.Siginfo
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	return errno == 0 && info.Signo != 0 || errno != 0 && errno != unix.ECHILD
}
