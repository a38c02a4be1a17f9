// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve returns the socket of a server whose marks go to taken. A phase "refused" is refused.
func serve(t *testing.T) (path string, s *Server, taken chan string) {
	t.Helper()
	path, taken = shortPath(t), make(chan string, 1000)
	s, err := Listen(path, func(ctx context.Context, name string) error {
		taken <- name
		switch name {
		case "refused":
			return errors.New("too many phases")
		case "slow":
			<-ctx.Done()
		}
		return ctx.Err()
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return path, s, taken
}

// shortPath returns the path of a file in a temporary directory that is short enough for a socket.
func shortPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "phase")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func dial(t *testing.T, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn, bufio.NewReader(conn)
}

func TestAnEventIsAnsweredAfterItWasTaken(t *testing.T) {
	path, _, taken := serve(t)
	require.NoError(t, Send(t.Context(), path, "build"))
	assert.Equal(t, "build", <-taken)
	require.NoError(t, Send(t.Context(), path, None))
	assert.Equal(t, None, <-taken)
	assert.EqualError(t, Send(t.Context(), path, "refused"), path+": too many phases")
}

func TestOneConnectionTakesManyLines(t *testing.T) {
	path, _, taken := serve(t)
	conn, answers := dial(t, path)
	_, err := io.WriteString(conn, "begin a\nfoo\n\nbegin b\nend\n"+strings.Repeat("x", 10_000))
	require.NoError(t, err)
	for _, want := range []string{"ok", "error: expected", "error: expected", "ok", "ok", "error: line longer than 256 bytes"} {
		line, err := answers.ReadString('\n')
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(line, want), line)
	}
	assert.Equal(t, []string{"a", "b", None}, []string{<-taken, <-taken, <-taken})
	_, err = answers.ReadByte()
	assert.Error(t, err, "the connection is closed after the long line")
}

func TestAClientBeyondTheLimitWaitsUntilAnotherLeaves(t *testing.T) {
	path, _, _ := serve(t)
	var first net.Conn
	for range maxConns {
		conn, answers := dial(t, path)
		_, err := io.WriteString(conn, "end\n")
		require.NoError(t, err)
		_, err = answers.ReadString('\n')
		require.NoError(t, err)
		first = cmp.Or(first, conn)
	}
	last, answers := dial(t, path)
	_, err := io.WriteString(last, "begin a\n")
	require.NoError(t, err)
	require.NoError(t, last.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err = answers.ReadString('\n')
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, last.SetReadDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, first.Close())
	_, err = answers.ReadString('\n')
	assert.NoError(t, err)
}

func TestTheSocketIsRemovedAtTheEnd(t *testing.T) {
	path, s, _ := serve(t)
	_, err := Listen(path, nil)
	require.ErrorContains(t, err, "address already in use")
	s.Close()
	assert.NoFileExists(t, path)
	require.ErrorIs(t, Send(t.Context(), path, None), ErrNobody)
	_, err = Listen("/"+strings.Repeat("x", 200), nil)
	assert.ErrorContains(t, err, "at most 107 bytes")
}

func TestCloseEndsIdleConnectionsAndTheEventBeingTaken(t *testing.T) {
	path, s, taken := serve(t)
	_, answers := dial(t, path)
	sent := make(chan error)
	go func() { sent <- Send(t.Context(), path, "slow") }()
	<-taken
	s.Close()
	require.Error(t, <-sent)
	_, err := answers.ReadByte()
	assert.Error(t, err)
}

func TestAClientDoesNotWaitForeverAndTrustsNoResponse(t *testing.T) {
	path := shortPath(t)
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	read, answers := make(chan struct{}), make(chan string)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_, _ = conn.Read(make([]byte, 100))
			read <- struct{}{}
			_, _ = io.WriteString(conn, <-answers)
			_ = conn.Close()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-read; cancel() }()
	require.ErrorIs(t, Send(ctx, path, None), context.Canceled)
	answers <- ""
	for answer, why := range map[string]string{
		"yes\n": `unexpected response "yes"`, "": "no response", "ok": "no response", strings.Repeat("x", 5000): "no response", "error: no\n": "no",
	} {
		go func() { <-read; answers <- answer }()
		assert.ErrorContains(t, Send(t.Context(), path, None), why)
	}
}
