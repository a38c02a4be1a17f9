// SPDX-License-Identifier: Apache-2.0

// Package patience bounds how long a program waits for calls that may never return. Such calls open a
// FIFO without a reader, or read a file system that does not answer.
package patience

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"
)

// ErrBlocked is the error of a call that did not return in time.
var ErrBlocked = errors.New("the call did not return in time")

// Call calls do and returns its results. Once ctx has ended, it waits for do for the time grace, and
// then returns ErrBlocked. do continues in that case, and the caller must leave its data alone.
func Call[T any](ctx context.Context, grace time.Duration, do func() (T, error)) (T, error) {
	type results struct {
		value T
		err   error
	}
	done := make(chan results, 1)
	go func() {
		value, err := do()
		done <- results{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(grace):
		var none T
		return none, ErrBlocked
	}
}

// Guard bounds calls that may never return, one after the other. While an earlier call is blocked,
// others are not called. The zero Guard does not wait. A Guard is not safe for concurrent use.
type Guard struct {
	// Grace is the maximum wait for a call.
	Grace time.Duration

	blocked chan struct{} // closed when the blocked call has returned; nil without one
}

// Call calls do. It returns ErrBlocked if do or an earlier call does not return in time; do may
// continue then. After ctx has ended it does not wait for an earlier call.
func (g *Guard) Call(ctx context.Context, do func()) error {
	if g.Blocked() && !g.wait(ctx) {
		return ErrBlocked
	}
	done := make(chan struct{})
	g.blocked = done
	go func() {
		defer close(done)
		do()
	}()
	if !g.wait(context.Background()) {
		return ErrBlocked
	}
	return nil
}

// wait waits until the current call has returned, and reports whether it did.
func (g *Guard) wait(ctx context.Context) bool {
	ctx, stop := context.WithTimeout(ctx, g.Grace)
	defer stop()
	select {
	case <-g.blocked:
	case <-ctx.Done():
	}
	return !g.Blocked()
}

// Blocked reports whether a call has not returned.
func (g *Guard) Blocked() bool {
	select {
	case <-g.blocked:
		return false
	default:
		return g.blocked != nil
	}
}

// Writer writes like another writer until a write blocks for longer than grace after ctx has ended.
// From then on it only returns ErrBlocked. It is not safe for concurrent use.
type Writer struct {
	ctx     context.Context //nolint:containedctx // it bounds each write, and io.Writer takes none
	grace   time.Duration
	to      io.Writer
	blocked bool
}

// NewWriter returns a Writer.
func NewWriter(ctx context.Context, grace time.Duration, to io.Writer) *Writer {
	return &Writer{ctx: ctx, grace: grace, to: to}
}

// Write implements io.Writer.
func (w *Writer) Write(text []byte) (int, error) {
	if w.blocked {
		return 0, ErrBlocked
	}
	own := bytes.Clone(text) // the caller may change text while a write is blocked
	n, err := Call(w.ctx, w.grace, func() (int, error) { return w.to.Write(own) })
	w.blocked = errors.Is(err, ErrBlocked)
	return n, err
}
