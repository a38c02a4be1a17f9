// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"
)

// The answers to a line. A cause follows failed.
const (
	ok     = "ok"
	failed = "error: "
)

// maxAnswer bounds an answer in bytes.
const maxAnswer = 1024

// ErrNobody means that no process listens at the socket.
var ErrNobody = errors.New("nothing listens there")

// Send sends a mark to the server at a socket, and returns when the server has measured the boundary, or ctx is done.
func Send(ctx context.Context, socket string, m Mark) error {
	if err := send(ctx, socket, m); err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	return nil
}

func send(ctx context.Context, socket string, m Mark) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return ErrNobody
	case err != nil:
		return plain(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	answer, err := ask(conn, m)
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("no answer: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("no answer: %w", plain(err))
	case answer == ok:
		return nil
	}
	if why, refused := strings.CutPrefix(answer, failed); refused {
		return errors.New(why)
	}
	return fmt.Errorf("unknown answer %q", answer)
}

// ask sends a line and returns the line of the answer.
func ask(conn net.Conn, m Mark) (string, error) {
	if _, err := conn.Write([]byte(m.String() + "\n")); err != nil {
		return "", err
	}
	line, err := bufio.NewReaderSize(conn, maxAnswer).ReadSlice('\n')
	return strings.TrimRight(string(line), "\r\n"), err
}
