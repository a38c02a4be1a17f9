// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// shell is a process that runs the lines that it is sent, and prints a line after each.
type shell struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{Cmd: exec.Command("sh", "-c", `while read line; do eval "$line"; echo done; done`)}
	var err error
	s.in, err = s.StdinPipe()
	require.NoError(t, err)
	out, err := s.StdoutPipe()
	require.NoError(t, err)
	s.out = bufio.NewReader(out)
	require.NoError(t, s.Start())
	t.Cleanup(func() { _ = s.in.Close(); _ = s.Wait() })
	return s
}

func attach(t *testing.T, s *shell) *Group {
	t.Helper()
	g, err := Attach("/", s.Process.Pid)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

// begin starts a line. The shell prints an empty line after it.
func (s *shell) begin(t *testing.T, line string) {
	t.Helper()
	_, err := io.WriteString(s.in, line+"\n")
	require.NoError(t, err)
}

// printed returns the next line of output.
func (s *shell) printed(t *testing.T) string {
	t.Helper()
	line, err := s.out.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

func (s *shell) run(t *testing.T, line string) {
	t.Helper()
	s.begin(t, line)
	s.printed(t)
}

func TestAProcessThatRunsAlreadyCountsFromNowOnWithItsDescendants(t *testing.T) {
	s := startShell(t)
	s.run(t, loop)
	g := attach(t, s)
	assert.Equal(t, s.Args, g.Args())
	assert.Equal(t, ProcessTree, g.Method())

	own := func() units.CPUTime { return clock(int32(^s.Process.Pid<<3 | 2)) }
	before := own()
	assert.Less(t, usedBy(t, g), before/2, "CPU time until now does not count")
	counted := usedBy(t, g)
	s.run(t, loop)
	assert.InEpsilon(t, uint64(own()-before), uint64(usedBy(t, g)-counted), 0.1)

	counted = usedBy(t, g)
	s.run(t, "sh -c '"+loop+"; :'")
	assert.Greater(t, usedBy(t, g)-counted, 2*units.Tick, "a child that was waited for")
	require.NoError(t, g.Lost())
}

func TestAnOrphanOfAnAttachedProcessCounts(t *testing.T) {
	s := startShell(t)
	g := attach(t, s)
	runs, fifo := filepath.Join(t.TempDir(), "runs"), filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, os.WriteFile(runs, nil, 0o600))
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	s.begin(t, "(sh -c 'while test -e "+runs+"; do :; done' & echo $!; cat "+fifo+")")
	orphan, err := strconv.Atoi(s.printed(t))
	require.NoError(t, err)
	usedBy(t, g) // its parent runs
	require.NoError(t, os.WriteFile(fifo, nil, 0))
	s.printed(t)
	clockOf := func() units.CPUTime { return clock(int32(^orphan<<3 | 2)) }
	counted, from := usedBy(t, g), clockOf()
	require.Eventually(t, func() bool { return clockOf() > from+10*units.Tick }, time.Minute, time.Millisecond)
	assert.GreaterOrEqual(t, usedBy(t, g)-counted, 6*units.Tick, "its parent, which was waited for, is counted in ticks now")
	var members []int32
	require.NoError(t, g.Processes(func(pid int32) { members = append(members, pid) }))
	assert.Contains(t, members, int32(orphan))
	require.NoError(t, os.Remove(runs))
}

func TestDescendantsThatEndAtOnceCountOnce(t *testing.T) {
	s := startShell(t)
	g := attach(t, s)
	fifo, script := filepath.Join(t.TempDir(), "fifo"), filepath.Join(t.TempDir(), "script")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	require.NoError(t, os.WriteFile(script, []byte(loop+"; echo; cat "+fifo), 0o600))
	s.run(t, "sh -c 'sh "+script+"; :'")
	counted := usedBy(t, g)
	require.Greater(t, counted, 4*units.Tick)
	require.NoError(t, os.WriteFile(fifo, nil, 0))
	s.printed(t)
	assert.Less(t, usedBy(t, g)-counted, counted/2, "the last shell waited for both")
	require.NoError(t, g.Lost())
}

func TestTheEndOfAnAttachedProcessIsAwaited(t *testing.T) {
	s := startShell(t)
	g := attach(t, s)
	ended, stop := context.WithCancel(t.Context())
	stop()
	assert.False(t, g.AwaitEnd(ended))
	require.NoError(t, s.in.Close())
	assert.True(t, g.AwaitEnd(t.Context()))
	require.NoError(t, s.Wait())
	usedBy(t, g)
	require.ErrorContains(t, g.Lost(), "between the last measurement and its exit")

	_, err := Attach("/", s.Process.Pid)
	assert.ErrorIs(t, err, unix.ESRCH)
}

func TestThisProcessIsNotOfAnAttachedTree(t *testing.T) {
	_, err := Attach("/", os.Getpid())
	require.ErrorContains(t, err, "cannot measure itself")
	g, err := Attach("/", os.Getppid())
	require.NoError(t, err)
	require.NoError(t, g.Processes(func(pid int32) { assert.NotEqual(t, os.Getpid(), int(pid)) }))
	require.NoError(t, g.Close())
}

func TestAllChildrenOfAThreadAreListed(t *testing.T) {
	held, end, err := os.Pipe()
	require.NoError(t, err)
	const children = 1500 // the kernel returns about 580 in one read
	parent := exec.Command("sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do read x <&3 & i=$((i+1)); done; echo; wait", children))
	parent.ExtraFiles = []*os.File{held}
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	tree, err := newProcessTree("/")
	require.NoError(t, err)
	assert.Len(t, tree.childrenOf(parent.Process.Pid), children)
	require.NoError(t, errors.Join(end.Close(), held.Close()))
	require.NoError(t, parent.Wait())
}
