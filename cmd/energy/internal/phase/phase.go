// SPDX-License-Identifier: Apache-2.0

// Package phase implements the events that divide a run into phases such as install, build and
// test. A phase lasts until the next phase begins, or until it ends. The time outside of all phases
// has a name of its own.
//
// An event is the name of the phase that begins. Send sends events as lines of text over a Unix
// socket, and a Server receives them.
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
	"unicode"
	"unicode/utf8"
)

const (
	// None names the time outside of all phases, which begins when a phase ends. Phases must have
	// other names.
	None = "none"
	// MaxName is the longest name of a phase, in bytes.
	MaxName = 100
	// Variable is the environment variable with the path of the socket, for the command.
	Variable = "ENERGY_PHASE_SOCKET"
)

// Parse returns the phase that a line begins: "begin NAME" or "end". White space around the line
// and the name is ignored.
func Parse(line string) (name string, err error) {
	verb, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	name = strings.TrimSpace(name)
	switch {
	case verb == "begin":
		return name, checkName(name)
	case verb == "end" && name == "":
		return None, nil
	}
	return "", errors.New(`expected "begin NAME" or "end"`)
}

// checkName returns why a phase may not have a name, nil if it may. A name is text that can be
// printed on one line.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the phase has no name")
	case name == None:
		return fmt.Errorf("the name %q is reserved for the time outside of all phases", None)
	case len(name) > MaxName:
		return fmt.Errorf("the phase's name is longer than %d bytes", MaxName)
	case !utf8.ValidString(name):
		return errors.New("the phase's name is not UTF-8")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the phase's name has %q, which cannot be printed", r)
		}
	}
	return nil
}

// Answers of the server to a line. A cause follows failed.
const (
	ok     = "ok"
	failed = "error: "
)

// maxAnswer is the maximum length of an answer in bytes.
const maxAnswer = 1024

// ErrNobody means that no process listens at the socket.
var ErrNobody = errors.New("energy measure is not running")

// Send begins a phase at the server of a socket. It returns when the server has measured the
// boundary, or when ctx is done.
func Send(ctx context.Context, socket, name string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", socket, err)
		}
	}()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return ErrNobody
	} else if err != nil {
		return errors.Unwrap(err) // without the path
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	line, answer := "begin "+name, ""
	if name == None {
		line = "end"
	}
	if _, err = fmt.Fprintln(conn, line); err == nil {
		answer, err = bufio.NewReader(io.LimitReader(conn, maxAnswer)).ReadString('\n')
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("no response: %w", err)
	}
	answer = strings.TrimSpace(answer)
	if why, refused := strings.CutPrefix(answer, failed); refused {
		return errors.New(why)
	} else if answer != ok {
		return fmt.Errorf("unexpected response %q", answer)
	}
	return nil
}
