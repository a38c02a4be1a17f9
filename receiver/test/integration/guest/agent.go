// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Agent performs the calls of the test outside the machine. Its methods are called by net/rpc, in
// JSON, over a serial port, one at a time.
type Agent struct {
	processes map[string]*process
	counts    map[Lines]*lineCount
}

// lineCount is the number of matching lines of a file up to an offset.
type lineCount struct {
	offset int64
	lines  int
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // once it has ended
}

// FileSystem is a file system to mount (mount(2)). The directory Target is created.
type FileSystem struct {
	Kind, Source, Target, Options string
	Flags                         uintptr
}

// Program is a program to start.
type Program struct {
	Name string // of the log: /tmp/<Name>.log
	Args []string
	// UID is the user. A user other than root gets only these capabilities.
	UID          uint32
	Capabilities []uintptr
	// Group is the cgroup, below the hierarchy's root. It is created.
	Group string
}

// File is a text to write into a file that all users may read.
type File struct{ Path, Text string }

// Mode holds the permissions to set for a file.
type Mode struct {
	Path string
	Mode os.FileMode
}

// Lines selects lines of a file.
type Lines struct{ Path, With string }

// None is an answer without content.
type None struct{}

// serve answers calls from the port until the other side ends the machine. It first prints the line
// "ready", after any earlier output of the port.
func serve(port string) error {
	file, err := openRaw(port)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(file, "\nready\n"); err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.Register(&Agent{processes: map[string]*process{}, counts: map[Lines]*lineCount{}}); err != nil {
		return err
	}
	server.ServeCodec(jsonrpc.NewServerCodec(file))
	return errors.New("the port was closed")
}

// Load loads modules in order, each a path and parameters after a space. It skips modules that are
// already loaded.
func (*Agent) Load(modules []string, _ *None) error {
	for _, m := range modules {
		path, params, _ := strings.Cut(m, " ")
		if err := insertModule(path, params); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("insert %s: %w", path, err)
		}
	}
	return nil
}

func insertModule(path, params string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return unix.FinitModule(int(file.Fd()), params, 0)
}

// Mount mounts a file system.
func (*Agent) Mount(f FileSystem, _ *None) error {
	if err := os.MkdirAll(f.Target, 0o755); err != nil { //nolint:gosec // like other mount points
		return err
	}
	if err := unix.Mount(f.Source, f.Target, f.Kind, f.Flags, f.Options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", f.Source, f.Target, err)
	}
	return nil
}

// Start starts a program. Its output goes to its log.
func (a *Agent) Start(p Program, _ *None) error {
	log, err := os.Create(logOf(p.Name))
	if err != nil {
		return err
	}
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.UID, Gid: p.UID}, AmbientCaps: p.Capabilities}
	if p.Group != "" {
		dir := "/sys/fs/cgroup" + p.Group
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // like the kernel
			return err
		}
		group, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer func() { _ = group.Close() }()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	started := &process{cmd: cmd, ended: make(chan struct{})}
	a.processes[p.Name] = started
	go func() {
		started.err = errors.Join(cmd.Wait(), log.Close())
		close(started.ended)
	}()
	return nil
}

// Runs fails if a program has ended.
func (a *Agent) Runs(name string, _ *None) error {
	p := a.processes[name]
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %w", name, p.err)
	default:
		return nil
	}
}

// Stop terminates a program and waits for it. It fails if the program fails.
func (a *Agent) Stop(name string, _ *None) error {
	p := a.processes[name]
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return a.Wait(name, nil)
}

// Wait waits until a program has ended. It fails if the program fails.
func (a *Agent) Wait(name string, _ *None) error {
	p := a.processes[name]
	if <-p.ended; p.err != nil {
		return fmt.Errorf("%s ended: %w", name, p.err)
	}
	return nil
}

// Find returns the paths that match a pattern, sorted. No match is not an error.
func (*Agent) Find(pattern string, paths *[]string) error {
	found, err := filepath.Glob(pattern)
	slices.Sort(found)
	*paths = append([]string{}, found...) // JSON's null would be no answer
	return err
}

// Count counts the lines of a file that contain a text. A missing file has 0 lines. Count reads
// only the part of the file since the last call.
func (a *Agent) Count(of Lines, count *int) error {
	counted := a.counts[of]
	if counted == nil {
		counted = &lineCount{}
		a.counts[of] = counted
	}
	*count = counted.lines
	file, err := os.Open(of.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(counted.offset, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may be incomplete
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(of.With)) {
			counted.lines++
		}
	}
	counted.offset += int64(len(text))
	*count = counted.lines
	return nil
}

// Read returns the content of a file, compressed by gzip.
func (*Agent) Read(path string, zipped *[]byte) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var to bytes.Buffer
	w := gzip.NewWriter(&to)
	if _, err := w.Write(text); err != nil {
		return err
	}
	err = w.Close()
	*zipped = to.Bytes()
	return err
}

// Write writes a file.
func (*Agent) Write(f File, _ *None) error {
	return os.WriteFile(f.Path, []byte(f.Text), 0o644) //nolint:gosec // read by other users
}

// Chmod sets the permissions of a file.
func (*Agent) Chmod(m Mode, _ *None) error { return os.Chmod(m.Path, m.Mode) }

// Now returns the machine's clock, in nanoseconds of Unix time.
func (*Agent) Now(_ None, now *int64) error { //nolint:unparam // net/rpc requires it
	*now = time.Now().UnixNano()
	return nil
}

// PowerOff ends the machine.
func (*Agent) PowerOff(_ None, _ *None) error {
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func logOf(name string) string { return filepath.Join("/tmp", name+".log") }

// openRaw opens a serial port that passes all bytes unchanged.
func openRaw(path string) (*os.File, error) {
	port, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	fd := int(port.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return port, unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
