// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// stopTimeout is how long a command may take to end after SIGTERM.
const stopTimeout = 10 * time.Second

// command is a collector that was started here.
type command struct {
	process *os.Process
	exited  chan struct{}
}

// start runs argv with its output in logFile. It fails if endpoint's port is in use, as the figures would be those of
// another collector.
func start(argv []string, endpoint, logFile string) (*command, error) {
	if err := portFree(endpoint); err != nil {
		return nil, err
	}
	out, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // Ctrl-C goes to this process alone, which then stops the command
		Pdeathsig: syscall.SIGTERM, // if this process is killed, so that nothing keeps running
	}
	c := &command{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread ends. Keep the thread until the command has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		_ = out.Close()
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start the collector: %w", err)
	}
	return c, nil
}

// stop terminates the command and waits until it has ended.
func (c *command) stop() {
	_ = c.process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(stopTimeout):
		_ = c.process.Kill()
		<-c.exited
	}
}

func portFree(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", u.Host)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use, perhaps by another collector: stop that one, or choose another port with `make run ENDPOINT=127.0.0.1:<port>`", u.Host)
	}
	if err != nil {
		return fmt.Errorf("cannot listen on the endpoint: %w", err)
	}
	return l.Close()
}

// logTail reads the collector's log.
type logTail struct{ path string }

// read returns the end of the log, at most 64 KiB.
func (l logTail) read() []byte {
	if l.path == "" {
		return nil
	}
	f, err := os.Open(l.path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > 64<<10 {
		_, _ = f.Seek(-64<<10, io.SeekEnd)
	}
	data, _ := io.ReadAll(f)
	return data
}

// last returns the last n lines.
func (l logTail) last(n int) string {
	lines := strings.Split(strings.TrimRight(string(l.read()), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// note returns the newest warning or error of the log, or "". Log lines are time, level, caller, message and fields,
// separated by tabs.
func (l logTail) note() string {
	count, newest := 0, ""
	for line := range bytes.Lines(l.read()) {
		fields := strings.Split(strings.TrimSpace(string(line)), "\t")
		if len(fields) < 4 || (fields[1] != "warn" && fields[1] != "error") {
			continue
		}
		count++
		newest = fields[1] + ": " + figure.Clean(fields[3])
		if len(fields) > 4 {
			newest += reason(fields[4])
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("%s   (%d in %s)", newest, count, l.path)
}

// reason returns the field "error" of a log line.
func reason(fields string) string {
	_, rest, found := strings.Cut(fields, `"error": "`)
	if !found {
		return ""
	}
	text, _, _ := strings.Cut(rest, `"`)
	return ": " + figure.Clean(text)
}
