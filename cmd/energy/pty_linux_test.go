// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
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
	read    chan struct{} // closed when all was read
	reading sync.Mutex    // nothing is read while it is held
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
	return startOn(t, columns, rows, "energy", args...)
}

// topOn starts energy top on a terminal, and waits until it shows the figures of a collector.
func topOn(t *testing.T, columns, rows uint16, args ...string) *pty {
	t.Helper()
	endpoint := serveTexts(t, read(t, "testdata/measured.prom"))
	p := onTerminal(t, columns, rows, append([]string{"top", "--endpoint", endpoint}, args...)...)
	p.until("java")
	return p
}

// startOn starts this test in a role on a terminal.
func startOn(t *testing.T, columns, rows uint16, role string, args ...string) *pty {
	t.Helper()
	return startCommandOn(t, columns, rows, role, exec.Command(os.Args[0], args...))
}

// startCommandOn starts a command on a terminal. This test has a role where the command starts it.
func startCommandOn(t *testing.T, columns, rows uint16, role string, cmd *exec.Cmd) *pty {
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
	p := &pty{t: t, master: os.NewFile(uintptr(fd), "ptmx"), slave: slave, ended: make(chan error, 1), changed: make(chan struct{}, 1), read: make(chan struct{})}
	p.resize(columns, rows)
	p.before = p.termios()
	p.cmd = cmd
	p.cmd.Env = append(os.Environ(), standIn+"="+role, "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, p.cmd.Start())
	go p.readAll()
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.master.Close()
		_ = p.slave.Close()
	})
	return p
}

func (p *pty) readAll() {
	buf := make([]byte, 4096)
	for {
		p.reading.Lock()
		n, err := p.master.Read(buf)
		p.reading.Unlock()
		if err != nil {
			close(p.read)
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

// drain returns all that a program wrote that has ended.
func (p *pty) drain() string {
	p.t.Helper()
	require.NoError(p.t, p.slave.Close())
	<-p.read
	return p.output()
}

// until waits until a text is on the screen.
func (p *pty) until(text string) {
	p.t.Helper()
	late := time.After(30 * time.Second)
	for {
		shown := screenOf(p.output())
		if strings.Contains(shown, text) {
			return
		}
		select {
		case <-p.changed:
		case <-late:
			p.t.Fatalf("no %q in\n%s", text, shown)
		}
	}
}

// times waits until a text was written n times.
func (p *pty) times(text string, n int) {
	p.t.Helper()
	late := time.After(30 * time.Second)
	for strings.Count(p.output(), text) < n {
		select {
		case <-p.changed:
		case <-late:
			p.t.Fatalf("not %d times %q in\n%q", n, text, p.output())
		}
	}
}

// sequence is one control sequence of a terminal, or one character (ECMA-48, section 5.4; "ESC ( B"
// selects ASCII).
var sequence = regexp.MustCompile(`(?s)^\x1b\[([0-9;?>]*)([@-~])|^\x1b[(=>].?|^.`)

// screenOf returns what a terminal of any size shows of an output: the cursor moves by CUP and
// control characters alone.
func screenOf(output string) string {
	var rows [200][400]string
	x, y := 0, 0
	for output != "" {
		m := sequence.FindStringSubmatch(output)
		output = output[len(m[0]):]
		switch text := m[0]; {
		case m[2] == "J":
			rows = [200][400]string{}
		case m[2] == "H":
			x, y = 0, 0
			if _, err := fmt.Sscanf(m[1], "%d;%d", &y, &x); err == nil {
				x, y = x-1, y-1
			}
		case text[0] == '\x1b':
		case text == "\r":
			x = 0
		case text == "\n":
			y++
		case text == "\b":
			x--
		default:
			rows[y][x] = text
			x += figure.Width(text)
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for _, cell := range row {
			line += cmp.Or(cell, " ")
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
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

// ends are the ways to end energy top on a terminal.
var ends = map[string]func(p *pty){
	"q":       func(p *pty) { p.press("q") },
	"Ctrl-C":  func(p *pty) { p.press("\x03") },
	"SIGTERM": func(p *pty) { assert.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM)) },
	"SIGHUP":  func(p *pty) { assert.NoError(p.t, p.cmd.Process.Signal(syscall.SIGHUP)) },
}

// awaitEnd waits for the end of the program.
func (p *pty) awaitEnd() {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.t.Log("ended: ", err)
	case <-time.After(soon):
		p.t.Fatalf("it does not end:\n%q", p.output())
	}
	assert.Equal(p.t, p.before, p.termios(), "the terminal's settings are as before")
}

// restored waits for the end of the program, and returns its exit status and what it wrote after it
// had left the alternate screen.
func (p *pty) restored() (exit int, after string) {
	p.t.Helper()
	p.awaitEnd()
	written := p.drain()
	assert.Equal(p.t, 1, strings.Count(written, enterScreen))
	assert.Equal(p.t, 1, strings.Count(written, leaveScreen))
	assert.Greater(p.t, strings.LastIndex(written, "\x1b[?25h"), strings.LastIndex(written, "\x1b[?25l"), "the cursor is shown")
	_, after, _ = strings.Cut(written, leaveScreen)
	return p.cmd.ProcessState.ExitCode(), after
}

func TestTheTerminalIsAsBeforeAfterwards(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			p := topOn(t, 80, 24)
			end(p)
			exit, after := p.restored()
			assert.Zero(t, exit)
			assert.NotContains(t, after, "java")
		})
	}
}

func TestKeysWorkAfterItWasStopped(t *testing.T) {
	endpoint := serveTexts(t, read(t, "testdata/measured.prom"))
	shell := startCommandOn(t, 80, 24, "energy", exec.Command("sh", "-i"))
	shell.press(os.Args[0] + " top --endpoint " + endpoint + "\n")
	shell.until("java")
	tries := 20 // a key was lost in some of them
	if testing.Short() {
		tries = 3
	}
	for try := range tries {
		shell.press("\x1a")
		shell.times("Stopped", try+1)
		shell.press("fg\n")
		shell.times(enterScreen, try+2)
		shell.press("?")
		shell.until("Any key goes back")
		shell.press("?")
		shell.until("by power")
	}
	shell.press("q")
	shell.times(leaveScreen, tries+1)
	shell.press("exit\n")
	require.NoError(t, <-shell.ended)
}

// A stopped program that has the terminal to itself could not be continued.
func TestItIsNotStoppedWhereNothingContinuesIt(t *testing.T) {
	p := topOn(t, 80, 24)
	p.press("\x1a")
	p.times(enterScreen, 2)
	p.press("n")
	p.until("by name")
	p.press("q")
	require.NoError(t, <-p.ended)
}

func TestAnErrorIsToldOnTheTerminalThatIsThereAfterwards(t *testing.T) {
	p := onTerminal(t, 80, 24, "top", "--endpoint", "http://"+freeAddress(t)+"/metrics", "--wait", "0s")
	exit, after := p.restored()
	assert.Equal(t, 1, exit)
	assert.Contains(t, after, "no process listens on 127.")
}

func TestAPanicIsToldOnTheTerminalThatIsThereAfterwards(t *testing.T) {
	p := startOn(t, 80, 24, "panics")
	exit, after := p.restored()
	assert.Equal(t, 2, exit)
	assert.Contains(t, after, "panic: ")
	assert.Contains(t, after, "out of order")
}

func TestNothingListeningIsToldAtOnceAndFiguresFollow(t *testing.T) {
	address := freeAddress(t)
	p := onTerminal(t, 80, 24, "top", "--endpoint", "http://"+address+"/metrics")
	p.until("o figures from http://" + address)
	p.until("Is the collector running?")
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	collector := &httptest.Server{Listener: l, Config: &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "testdata/measured.prom") }),
		ReadHeaderTimeout: time.Minute,
	}}
	collector.Start()
	t.Cleanup(collector.Close)
	p.until("java")
	p.press("q")
	p.restored()
}

func TestNoScreenIsClearedBetweenFigures(t *testing.T) {
	p := topOn(t, 80, 24, "--interval", "20ms")
	p.press("n")
	p.until("by name")
	p.press("/evil\r")
	p.until("1 matching row")
	p.until("evil?[2J?name")
	p.press("?")
	p.until("Any key goes back")
	p.press("?\x1b")
	p.until("java")
	assert.Equal(t, 1, strings.Count(p.output(), clearAll), "only when it was entered")
	p.press("q")
	p.restored()
}

func TestTheScreenFollowsTheTerminalsSize(t *testing.T) {
	p := topOn(t, 80, 24)
	p.resize(132, 43)
	p.until("TOTAL")
	p.resize(40, 10)
	p.until("= 9.10 W active")
	p.press("q")
	p.restored()
}

func TestColorsAreNotShownWhereTheyAreNotWanted(t *testing.T) {
	for setting, colored := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", setting)
		p := topOn(t, 80, 24)
		assert.Equal(t, colored, strings.Contains(p.output(), "\x1b[32m"), setting)
		p.press("q")
		p.restored()
	}
}

func TestOneTableOnATerminalIsPlain(t *testing.T) {
	p := topOn(t, 80, 24, "--once")
	require.NoError(t, <-p.ended)
	assert.NotContains(t, p.drain(), "\x1b")
}
