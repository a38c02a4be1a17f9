// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pty is a terminal with energy top in it.
type pty struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	before unix.Termios // before the program was started
	cmd    *exec.Cmd
	ended  chan error

	mu      sync.Mutex
	written bytes.Buffer
	changed chan struct{}
}

// What enters and leaves the alternate screen (xterm's private mode 1049), and what clears a screen.
const (
	enterScreen = "\x1b[?1049h"
	leaveScreen = "\x1b[?1049l"
	clearAll    = "\x1b[2J"
)

// onTerminal starts energy on a terminal of so many columns and rows.
func onTerminal(t *testing.T, columns, rows uint16, args ...string) *pty {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no pseudo terminals: ", err)
	}
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	p := &pty{t: t, master: os.NewFile(uintptr(fd), "ptmx"), slave: slave, ended: make(chan error, 1), changed: make(chan struct{}, 1)}
	p.resize(columns, rows)
	p.before = p.termios()
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), standIn+"=energy", "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, p.cmd.Start())
	go p.read()
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.master.Close()
		_ = p.slave.Close()
	})
	return p
}

func (p *pty) read() {
	buf := make([]byte, 4096)
	for {
		n, err := p.master.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.written.Write(buf[:n])
		p.mu.Unlock()
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// output returns what the program has written.
func (p *pty) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written.String()
}

// until waits until the program has written a text, after the first from bytes, and returns how much it has written.
func (p *pty) until(from int, text string) int {
	p.t.Helper()
	late := time.After(30 * time.Second)
	for {
		if written := p.output(); strings.Contains(written[from:], text) {
			return len(written)
		}
		select {
		case <-p.changed:
		case err := <-p.ended:
			p.t.Fatalf("it ended (%v) without %q:\n%q", err, text, p.output()[from:])
		case <-late:
			p.t.Fatalf("no %q in\n%q", text, p.output()[from:])
		}
	}
}

func (p *pty) press(keys string) {
	p.t.Helper()
	_, err := io.WriteString(p.master, keys)
	require.NoError(p.t, err)
}

func (p *pty) resize(columns, rows uint16) {
	p.t.Helper()
	require.NoError(p.t, unix.IoctlSetWinsize(int(p.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
}

func (p *pty) termios() unix.Termios {
	p.t.Helper()
	state, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	require.NoError(p.t, err)
	return *state
}

// restored waits for the end of the program, and returns its exit status and what it wrote after it had left the alternate screen.
func (p *pty) restored() (exit int, after string) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("it does not end:\n%q", p.output())
	}
	p.until(0, leaveScreen)
	written := p.output()
	assert.Equal(p.t, 1, strings.Count(written, enterScreen))
	assert.Equal(p.t, 1, strings.Count(written, leaveScreen))
	assert.Greater(p.t, strings.LastIndex(written, "\x1b[?25h"), strings.LastIndex(written, "\x1b[?25l"), "the cursor is shown")
	assert.Equal(p.t, p.before, p.termios(), "the terminal's settings are as before")
	_, after, _ = strings.Cut(written, leaveScreen)
	return p.cmd.ProcessState.ExitCode(), after
}

// aCollector serves figures at an address until the test ends.
func aCollector(t *testing.T, address, file string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

func measuredFile(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("testdata/measured.prom")
	require.NoError(t, err)
	return file
}

func TestTheTerminalIsAsBeforeAfterwards(t *testing.T) {
	address := freeAddress(t)
	aCollector(t, address, measuredFile(t))
	for name, end := range map[string]func(p *pty){
		"q":       func(p *pty) { p.press("q") },
		"Ctrl-C":  func(p *pty) { p.press("\x03") },
		"SIGTERM": func(p *pty) { require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM)) },
		"SIGHUP":  func(p *pty) { require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := onTerminal(t, 80, 24, "top", "-endpoint", "http://"+address+"/metrics")
			p.until(0, "java")
			assert.Less(t, strings.Index(p.output(), enterScreen), strings.Index(p.output(), "java"))
			end(p)
			exit, after := p.restored()
			assert.Zero(t, exit)
			assert.NotContains(t, after, "java")
		})
	}
}

func TestAnErrorIsToldOnTheTerminalThatIsThereAfterwards(t *testing.T) {
	p := onTerminal(t, 80, 24, "top", "-endpoint", "http://"+freeAddress(t)+"/metrics", "-wait", "0s")
	exit, after := p.restored()
	assert.Equal(t, 1, exit)
	assert.Contains(t, after, "nothing listens on 127.")
}

func TestNothingListeningIsToldAtOnceAndARowIsThereSoon(t *testing.T) {
	address := freeAddress(t)
	p := onTerminal(t, 80, 24, "top", "-endpoint", "http://"+address+"/metrics")
	began := p.until(0, "Nothing to show from")
	started := time.Now()
	aCollector(t, address, measuredFile(t))
	p.until(began, "java")
	assert.Less(t, time.Since(started), time.Second)
	p.press("q")
	p.restored()
}

func TestNoScreenIsClearedBetweenFigures(t *testing.T) {
	address := freeAddress(t)
	aCollector(t, address, measuredFile(t))
	p := onTerminal(t, 80, 24, "top", "-endpoint", "http://"+address+"/metrics", "-interval", "20ms")
	shown := p.until(0, "java")
	p.press("n")
	shown = p.until(shown, "name")
	p.press("/java\r")
	shown = p.until(shown, "matches")
	assert.Equal(t, 1, strings.Count(p.output()[:shown], clearAll), "only when it was entered")
	assert.NotContains(t, p.output(), "\x1b[2J?name", "a name must not steer the terminal")
	p.resize(132, 43)
	p.until(shown, "CONTAINER")
	p.press("q")
	p.restored()
}

func TestColorsAreNotShownWhereTheyAreNotWanted(t *testing.T) {
	address := freeAddress(t)
	aCollector(t, address, measuredFile(t))
	for setting, colored := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", setting)
		p := onTerminal(t, 80, 24, "top", "-endpoint", "http://"+address+"/metrics")
		p.until(0, "java")
		assert.Equal(t, colored, strings.Contains(p.output(), "\x1b[32m"), setting)
		p.press("q")
		p.restored()
	}
}

func TestTablesOnATerminalArePlainWhereTheyAreAskedFor(t *testing.T) {
	address := freeAddress(t)
	aCollector(t, address, measuredFile(t))
	for _, flags := range [][]string{{"-once"}, {"-n", "3", "-for", "1ms"}} {
		p := onTerminal(t, 80, 24, append([]string{"top", "-endpoint", "http://" + address + "/metrics"}, flags...)...)
		p.until(0, "unattributed 0.200000 J")
		assert.NotContains(t, p.output(), "\x1b")
	}
}
