// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// marks collects marks.
type marks struct {
	mu   sync.Mutex
	all  []string
	seen chan string // one element for each, if set
	err  error
}

func (m *marks) take(_ context.Context, mark Mark) error {
	m.mu.Lock()
	m.all = append(m.all, mark.Phase)
	err := m.err
	m.mu.Unlock()
	if m.seen != nil {
		m.seen <- mark.Phase
	}
	return err
}

// socketDir returns a directory with a short path.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "phase")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func serve(t *testing.T, m *marks, edit ...func(*Server)) (path string, s *Server) {
	t.Helper()
	path = filepath.Join(socketDir(t), "run", "phases.sock")
	s = NewServer(ServerOptions{Path: path, Mark: m.take})
	for _, f := range edit {
		f(s)
	}
	require.NoError(t, s.Start())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return path, s
}

func dial(t *testing.T, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn, bufio.NewReader(conn)
}

func TestAMarkIsAnsweredWhenItWasTaken(t *testing.T) {
	m := &marks{}
	path, _ := serve(t, m)
	require.NoError(t, Send(t.Context(), path, Mark{"build"}))
	require.NoError(t, Send(t.Context(), path, End))
	assert.Equal(t, []string{"build", None}, m.all)
	m.err = errors.New("too many phases")
	assert.EqualError(t, Send(t.Context(), path, Mark{"more"}), path+": too many phases")
}

func TestOneConnectionTakesManyLines(t *testing.T) {
	m := &marks{}
	path, _ := serve(t, m)
	conn, answers := dial(t, path)
	_, err := io.WriteString(conn, "begin a\nfoo\n\nbegin b\nend\n")
	require.NoError(t, err)
	for _, want := range []string{"ok", "error: want", "error: want", "ok", "ok"} {
		line, err := answers.ReadString('\n')
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(line, want), line)
	}
	assert.Equal(t, []string{"a", "b", None}, m.all)
}

func TestALineThatIsTooLongOrHasNoEndEndsTheConnection(t *testing.T) {
	path, _ := serve(t, &marks{})
	conn, answers := dial(t, path)
	_, _ = io.WriteString(conn, strings.Repeat("x", 10_000))
	line, err := answers.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "error: line longer than 256 bytes\n", line)
	_, err = answers.ReadByte()
	require.Error(t, err)

	conn, answers = dial(t, path)
	_, _ = io.WriteString(conn, "begin a")
	require.NoError(t, conn.(*net.UnixConn).CloseWrite())
	line, err = answers.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "error: the line has no end\n", line)
}

func TestAClientThatIsSlowIsHungUpOn(t *testing.T) {
	path, _ := serve(t, &marks{}, func(s *Server) { s.patient = 50 * time.Millisecond })
	conn, answers := dial(t, path)
	_, err := io.WriteString(conn, "begin")
	require.NoError(t, err)
	_, err = answers.ReadByte()
	assert.ErrorIs(t, err, io.EOF)
}

func TestMoreClientsThanThereIsRoomForAreRefusedUntilOthersLeave(t *testing.T) {
	m := &marks{}
	path, s := serve(t, m)
	var first net.Conn
	for i := range maxConns {
		conn, answers := dial(t, path)
		_, err := io.WriteString(conn, "end\n")
		require.NoError(t, err)
		_, err = answers.ReadString('\n')
		require.NoError(t, err)
		if i == 0 {
			first = conn
		}
	}
	err := Send(t.Context(), path, Mark{"a"})
	require.Error(t, err)
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) < maxConns
	}, time.Minute, time.Millisecond)
	assert.NoError(t, Send(t.Context(), path, Mark{"a"}))
}

func TestManyClientsAtOnceAreAllAnswered(t *testing.T) {
	m := &marks{}
	path, _ := serve(t, m)
	var sending sync.WaitGroup
	for i := range 50 {
		sending.Go(func() { assert.NoError(t, Send(t.Context(), path, Mark{fmt.Sprint(i)})) })
	}
	sending.Wait()
	assert.Len(t, m.all, 50)
}

func TestTheSocketIsForTheOwnerAndTheGroupAndRemovedAtTheEnd(t *testing.T) {
	path, s := serve(t, &marks{})
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	assert.NoFileExists(t, path)
	require.ErrorIs(t, Send(t.Context(), path, End), ErrNobody)
}

func TestASocketThatIsAnothersByThenIsLeft(t *testing.T) {
	path, s := serve(t, &marks{})
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, s.Close())
	assert.FileExists(t, path)
}

func TestTheSocketOfAProcessThatEndedIsReplaced(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	old.SetUnlinkOnClose(false)
	require.NoError(t, old.Close())
	require.ErrorIs(t, Send(t.Context(), path, End), ErrNobody)
	s := NewServer(ServerOptions{Path: path, Mark: (&marks{}).take})
	require.NoError(t, s.Start())
	require.NoError(t, Send(t.Context(), path, End))
	require.NoError(t, s.Close())
}

func TestASocketThatIsServedAndAFileThatIsNoSocketAreLeft(t *testing.T) {
	m := &marks{}
	path, _ := serve(t, m)
	other := NewServer(ServerOptions{Path: path, Mark: (&marks{}).take})
	assert.EqualError(t, other.Start(), path+": another process listens there")
	require.NoError(t, other.Close())
	require.NoError(t, Send(t.Context(), path, Mark{"a"}))
	assert.Equal(t, []string{"a"}, m.all)

	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	no := NewServer(ServerOptions{Path: file, Mark: m.take})
	require.EqualError(t, no.Start(), file+": there is a file that is no socket")
	require.NoError(t, no.Close())
	assert.FileExists(t, file)
}

func TestAPathThatCannotBeListenedAtIsTriedAgain(t *testing.T) {
	dir := socketDir(t)
	path := filepath.Join(dir, "a", "b", "s")
	s := NewServer(ServerOptions{Path: path, Mark: (&marks{}).take})
	s.again = time.Millisecond
	require.EqualError(t, s.Start(), path+": no such file or directory")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
	require.Eventually(t, func() bool { return s.Err() == nil }, time.Minute, time.Millisecond)
	require.NoError(t, Send(t.Context(), path, End))
	require.NoError(t, s.Close())
	long := NewServer(ServerOptions{Path: "/" + strings.Repeat("x", 200)})
	require.ErrorContains(t, long.Start(), "at most 107 bytes")
	require.NoError(t, long.Close())
}

func TestAMarkThatIsBeingTakenEndsWithTheServer(t *testing.T) {
	taking := make(chan struct{})
	path := filepath.Join(socketDir(t), "s")
	s := NewServer(ServerOptions{Path: path, Mark: func(ctx context.Context, _ Mark) error {
		close(taking)
		<-ctx.Done()
		return ctx.Err()
	}})
	require.NoError(t, s.Start())
	sent := make(chan error)
	go func() { sent <- Send(t.Context(), path, End) }()
	<-taking
	require.NoError(t, s.Close())
	assert.Error(t, <-sent)
}

func TestAClientDoesNotWaitForeverAndTrustsNoAnswer(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	answers := make(chan string, 1)
	go func() {
		for answer := range answers {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 100))
			if answer == "silence" {
				_, _ = conn.Read(make([]byte, 100)) // until the client leaves
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	defer close(answers)
	for answer, why := range map[string]string{
		"yes\n": `unknown answer "yes"`, "": "no answer", "ok": "no answer", strings.Repeat("x", 5000): "no answer", "error: no\n": "no",
	} {
		answers <- answer
		assert.ErrorContains(t, Send(t.Context(), path, End), why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	answers <- "silence"
	assert.ErrorIs(t, Send(ctx, path, End), context.DeadlineExceeded)
}
