// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// guest is a virtual machine whose first process executes calls of the test: see guest/agent.go.
// The end of the test ends the machine.
type guest struct {
	dir   string // directory of its output, which is kept
	calls *rpc.Client
	ended <-chan struct{} // nil if another program runs QEMU

	socket   string // that QEMU connects the agent's serial port to
	listener *net.UnixListener
}

// guestOptions describe a virtual machine of two CPUs and 1 GiB.
type guestOptions struct {
	name   string // of its directory in build/integration
	kernel kernel
	// files are the programs and modules of the machine, by their names there, in addition to its
	// first process.
	files map[string]string
	// modules are the kernel's drivers to load. Their dependencies are loaded as well.
	modules []string
	// arguments are more arguments of the kernel, qemu more arguments of QEMU.
	arguments string
	qemu      []string
	// inherit are files that QEMU opens as /dev/fd/3 and so on.
	inherit []*os.File
}

// command returns QEMU's command for the machine. On a busy host the kernel measures the rate of an
// emulated TSC wrongly, so the machine uses another clock.
func (o *guestOptions) command(t *testing.T) *exec.Cmd {
	t.Helper()
	arguments := "console=ttyS0 tsc=unstable guest.agent=/dev/ttyS1"
	of := []string{"-machine", "q35", "-cpu", "Skylake-Server", "-serial", "chardev:console", "-serial", "chardev:agent"}
	if o.kernel.architecture == "arm64" {
		arguments = "console=ttyAMA0 guest.agent=/dev/ttyS0"
		of = []string{"-machine", "virt", "-cpu", "cortex-a72", "-serial", "chardev:console", "-device", "pci-serial,chardev=agent"}
	}
	cmd := exec.Command(o.kernel.qemu(t), "-accel", "tcg,thread=multi", "-smp", "2", "-m", "1G",
		"-nodefaults", "-display", "none", "-no-reboot", "-kernel", o.kernel.image(), "-append", arguments+" quiet panic=-1 "+o.arguments)
	cmd.Args, cmd.ExtraFiles = slices.Concat(cmd.Args, of, o.qemu), o.inherit
	return cmd
}

// startGuest starts a machine and returns after its first process has loaded the modules.
func startGuest(t *testing.T, o *guestOptions) *guest {
	t.Helper()
	cmd, g := o.command(t), newGuest(t, o.name)
	initramfs := filepath.Join(filepath.Dir(g.socket), "initramfs")
	files := map[string]string{"init": buildFor(t, o.kernel.architecture, "guest")}
	maps.Copy(files, o.files)
	modules := o.kernel.addModules(t, files, o.modules...)
	writeInitramfs(t, initramfs, files)
	cmd.Args = append(cmd.Args, "-initrd", initramfs,
		"-chardev", "file,id=console,path="+g.console(), "-chardev", "socket,id=agent,path="+g.socket)
	g.ended = startDaemon(t, cmd, filepath.Join(g.dir, "qemu.log"))
	g.connects(t)
	g.loads(t, modules...)
	return g
}

// newGuest returns a machine that is not started yet. Its serial port for the agent must connect to
// the socket.
func newGuest(t *testing.T, name string) *guest {
	t.Helper()
	g := &guest{dir: filepath.Join(cache(t), name)}
	require.NoError(t, os.RemoveAll(g.dir))
	require.NoError(t, os.MkdirAll(g.dir, 0o755))
	temporary, err := os.MkdirTemp("", "guest-") // short: the length of a socket's path is limited
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(temporary)) })
	g.socket = filepath.Join(temporary, "agent")
	g.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: g.socket, Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.listener.Close() })
	return g
}

// console is the file of the machine's console output.
func (g *guest) console() string { return filepath.Join(g.dir, "console.log") }

// connects waits until the machine's first process answers.
func (g *guest) connects(t *testing.T) {
	t.Helper()
	require.NoErrorf(t, g.comesUp(t, patience), "the guest comes up, its output and QEMU's are in %s", g.dir)
}

// comesUp waits for a time until the machine's first process answers. It returns an error after
// that time.
func (g *guest) comesUp(t *testing.T, within time.Duration) error {
	t.Helper()
	started := time.Now()
	if err := g.listener.SetDeadline(started.Add(within)); err != nil {
		return err
	}
	conn, err := g.listener.Accept()
	if err != nil {
		return err
	}
	if err := conn.SetReadDeadline(started.Add(within)); err != nil {
		return err
	}
	from := bufio.NewReader(conn)
	for line := ""; line != "ready\n"; {
		if line, err = from.ReadString('\n'); err != nil {
			return err
		}
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	g.calls = jsonrpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{from, conn})
	t.Logf("%s is up after %.1f s", filepath.Base(g.dir), time.Since(started).Seconds())
	return nil
}

// call calls a method of the agent.
func (g *guest) call(t *testing.T, method string, argument, answer any) {
	t.Helper()
	require.NoError(t, g.try(t, method, argument, answer))
}

// try calls a method of the agent that may fail.
func (g *guest) try(t *testing.T, method string, argument, answer any) error {
	t.Helper()
	call := g.calls.Go("Agent."+method, argument, answer, nil)
	select {
	case <-call.Done:
		return call.Error
	case <-g.ended:
		t.Fatalf("the guest ended, see %s", g.dir)
	case <-time.After(patience):
		t.Fatalf("%s: no answer within %v, see %s", method, patience, g.dir)
	}
	return nil
}

// runs reports whether the guest is running.
func (g *guest) runs() bool {
	select {
	case <-g.ended:
		return false
	default:
		return true
	}
}

// loads loads modules from files of the guest, in order, each with its parameters after a space.
func (g *guest) loads(t *testing.T, modules ...string) {
	t.Helper()
	g.call(t, "Load", modules, &struct{}{})
}

// mounts mounts a file system.
func (g *guest) mounts(t *testing.T, kind, source, target string, flags uintptr, options string) {
	t.Helper()
	g.call(t, "Mount", struct {
		Kind, Source, Target, Options string
		Flags                         uintptr
	}{kind, source, target, options, flags}, &struct{}{})
}

// user is a user of a guest with capabilities. The zero user is root.
type user struct {
	id           uint32
	capabilities []uintptr
}

// starts starts a program as root in a cgroup, or in the root cgroup if group is empty.
func (g *guest) starts(t *testing.T, name, group string, args ...string) {
	t.Helper()
	g.startsAs(t, user{}, name, group, args...)
}

// startsAs starts a program as a user.
func (g *guest) startsAs(t *testing.T, as user, name, group string, args ...string) {
	t.Helper()
	g.call(t, "Start", struct {
		Name, Group  string
		Args         []string
		UID          uint32
		Capabilities []uintptr
	}{name, group, args, as.id, as.capabilities}, &struct{}{})
}

// now returns the guest's time.
func (g *guest) now(t *testing.T) time.Time {
	t.Helper()
	var now int64
	g.call(t, "Now", struct{}{}, &now)
	return time.Unix(0, now)
}

func (g *guest) writes(t *testing.T, path, text string) {
	t.Helper()
	g.call(t, "Write", struct{ Path, Text string }{path, text}, &struct{}{})
}

func (g *guest) finds(t *testing.T, pattern string) (paths []string) {
	t.Helper()
	g.call(t, "Find", pattern, &paths)
	return paths
}

// counts counts the lines of a file with a text.
func (g *guest) counts(t *testing.T, path, with string) (n int) {
	t.Helper()
	g.call(t, "Count", struct{ Path, With string }{path, with}, &n)
	return n
}

// reads returns the content of a file.
func (g *guest) reads(t *testing.T, path string) (string, error) {
	t.Helper()
	var zipped []byte
	if err := g.try(t, "Read", path, &zipped); err != nil {
		return "", err
	}
	unzip, err := gzip.NewReader(bytes.NewReader(zipped))
	require.NoError(t, err)
	text, err := io.ReadAll(unzip)
	require.NoError(t, err)
	return string(text), nil
}

// keeps copies a file of the guest's /tmp into the guest's directory and returns the path there.
func (g *guest) keeps(t *testing.T, name string) string {
	t.Helper()
	text, err := g.reads(t, "/tmp/"+name)
	require.NoError(t, err)
	path := filepath.Join(g.dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// powersOff ends the guest.
func (g *guest) powersOff(t *testing.T) {
	t.Helper()
	g.calls.Go("Agent.PowerOff", struct{}{}, &struct{}{}, nil)
	select {
	case <-g.ended:
	case <-time.After(patience):
		t.Fatalf("the guest does not end, see %s", g.dir)
	}
}
