// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
)

// Answers of the server to a line. A cause follows failed.
const (
	ok     = "ok"
	failed = "error: "
)

// maxAnswer is the maximum length of an answer in bytes.
const maxAnswer = 1024

// ErrNobody means that no process listens at the socket.
var ErrNobody = errors.New("nothing listens there")

// Send sends a mark to the server at a socket. It returns when the server has measured the boundary, or when ctx is
// done.
func Send(ctx context.Context, socket string, m Mark) error {
	if err := send(ctx, socket, m); err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	return nil
}

func send(ctx context.Context, socket string, m Mark) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return ErrNobody
	} else if err != nil {
		return errors.Unwrap(err) // without the path
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var answer string
	if _, err = io.WriteString(conn, m.String()+"\n"); err == nil {
		answer, err = bufio.NewReader(io.LimitReader(conn, maxAnswer)).ReadString('\n')
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("no answer: %w", err)
	}
	answer = strings.TrimSpace(answer)
	if why, refused := strings.CutPrefix(answer, failed); refused {
		return errors.New(why)
	} else if answer != ok {
		return fmt.Errorf("unexpected answer %q", answer)
	}
	return nil
}
