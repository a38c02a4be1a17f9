// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
)

// openHanging opens a source that never answers, and cannot be closed.
func openHanging(context.Context, options) (*source, error) {
	return &source{
		name: "nowhere", notes: func() []string { return nil }, hint: func(error) string { return "" }, close: func() error { select {} },
		read: func(context.Context) (*snapshot.Snapshot, error) { select {} },
	}, nil
}

// soon bounds what must end within 5 s, on a machine that may be busy.
const soon = time.Minute

func TestTheScreenEndsWhateverHangs(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startOn(t, 80, 24, "hangs")
			p.until("Looking for a collector")
			end(p)
			exit, after := p.restored()
			assert.Equal(t, 1, exit)
			assert.Contains(t, after, "energy top: interrupted while a read or write was blocked")
		})
	}
}

func TestTheScreenEndsOnATerminalThatAcceptsNoOutput(t *testing.T) {
	for _, name := range []string{"q", "SIGTERM"} {
		t.Run(name, func(t *testing.T) {
			p := topOn(t, 200, 60)
			p.reading.Lock() // nothing is read any more
			defer p.reading.Unlock()
			p.press(strings.Repeat("\x0c", 20)) // each draws the whole screen
			ends[name](p)
			p.awaitEnd()
		})
	}
}

// fullPipe returns a pipe that has no room, and that nothing is read from until the test ends.
func fullPipe(t *testing.T) (in *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	fill(t, int(in.Fd()))
	t.Cleanup(func() { _, _ = out.Close(), in.Close() })
	return in
}

// fill writes to a pipe until it has no room, and leaves its writes blocking.
func fill(t *testing.T, fd int) {
	t.Helper()
	require.NoError(t, unix.SetNonblock(fd, true))
	for _, size := range []int{4096, 1} {
		for {
			if _, err := unix.Write(fd, make([]byte, size)); err != nil {
				require.ErrorIs(t, err, unix.EAGAIN)
				break
			}
		}
	}
	require.NoError(t, unix.SetNonblock(fd, false))
}

func TestTablesThatNobodyReadsEndWithASignal(t *testing.T) {
	endpoint := serveTexts(t, read(t, "testdata/measured.prom"))
	var stderr strings.Builder
	top := exec.Command(os.Args[0], "top", "--once", "--endpoint", endpoint)
	top.Env = append(os.Environ(), standIn+"=energy")
	top.Stdout, top.Stderr = fullPipe(t), &stderr
	require.NoError(t, top.Start())
	require.Eventually(t, func() bool { return isWriting(top.Process.Pid) }, soon, 10*time.Millisecond)
	require.NoError(t, top.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- top.Wait() }()
	select {
	case err := <-ended:
		t.Log("ended: ", err)
		assert.Equal(t, 1, top.ProcessState.ExitCode())
		assert.Contains(t, stderr.String(), "interrupted while a read or write was blocked")
	case <-time.After(soon):
		_ = top.Process.Kill()
		t.Fatal("it does not end")
	}
}

// isWriting reports whether a thread of a process waits in a write to a pipe.
func isWriting(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	return slices.ContainsFunc(threads, func(file string) bool {
		where, err := os.ReadFile(file)
		return err == nil && strings.HasSuffix(string(where), "pipe_write")
	})
}

// endsSoon returns the exit status of a measurement, which must end.
func endsSoon(ctx context.Context, t *testing.T, o *measureOptions) int {
	t.Helper()
	ended := make(chan int, 1)
	go func() { ended <- o.run(ctx) }()
	select {
	case status := <-ended:
		return status
	case <-time.After(soon):
		t.Fatal("it does not end")
		return 0
	}
}

func aFIFO(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	return path
}

func TestASignalEndsTheWaitForAFIFO(t *testing.T) {
	for _, flags := range [][]string{{"-o"}, {"--json", "-o"}, {"--csv", "-o"}, {"--runs", "2", "-o"}, {"--html"}, {"--config"}, {"--model"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			started := filepath.Join(t.TempDir(), "started")
			o, err := parsed[measureOptions](append(flags, aFIFO(t), "touch", started))
			require.NoError(t, err)
			o.Stderr = os.Stderr
			ctx, stop := context.WithCancelCause(t.Context())
			stop(interrupted(syscall.SIGTERM))
			assert.Equal(t, 128+15, endsSoon(ctx, t, &o))
			assert.NoFileExists(t, started)
		})
	}
}

func TestASignalEndsTheWaitForAReaderOfTheResult(t *testing.T) {
	for name, output := range map[string]func(t *testing.T, o *measureOptions){
		"-o FIFO": func(t *testing.T, o *measureOptions) {
			o.outputs = []string{aFIFO(t)}
			reader, err := unix.Open(o.outputs[0], unix.O_RDWR|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			fill(t, reader)
			t.Cleanup(func() { _ = unix.Close(reader) })
		},
		"standard error": func(t *testing.T, o *measureOptions) { o.Stderr = fullPipe(t) },
	} {
		t.Run(name, func(t *testing.T) {
			out, in, err := os.Pipe()
			require.NoError(t, err)
			o, err := parsed[measureOptions]([]string{"--wait", "0s", "--model", tenToFifty, "sh", "-c", "echo started; exit 3"})
			require.NoError(t, err)
			o.Stdout, o.Stderr = in, os.Stderr
			output(t, &o)
			ctx, stop := context.WithCancelCause(t.Context())
			go func() {
				_, _ = out.Read(make([]byte, 10))
				stop(interrupted(syscall.SIGTERM))
			}()
			assert.Equal(t, 3, endsSoon(ctx, t, &o), "the exit status is that of the command")
			_, _ = in.Close(), out.Close()
		})
	}
}
