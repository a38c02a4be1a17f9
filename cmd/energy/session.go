// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
)

// session is top on a terminal: one goroutine reads figures, another one draws them and takes keys.
type session struct {
	options
	open    opener
	model   top.Model
	changes chan func(top.Model) top.Model // of the model, by what was read
}

// opener opens what figures come from.
type opener func(context.Context, options) (*opened, error)

// runScreen shows figures on a terminal until q, ctx or the time limit ends it. It restores the
// terminal before it returns or panics, and stops the command, if any, before it returns. A source
// that hangs does not keep it from returning.
func runScreen(ctx context.Context, o options, t *screen.Terminal, open opener) error {
	defer t.Close()
	if o.limit > 0 {
		limited, cancel := context.WithTimeout(ctx, o.limit)
		defer cancel()
		ctx = limited
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &session{options: o, open: open, changes: make(chan func(top.Model) top.Model), model: top.New(opening(&o))}
	ended := make(chan error, 1)
	go func() { ended <- s.guard(ctx) }()
	if over, err := s.loop(ctx, t, ended); over {
		return err
	}
	t.Close() // before the source is closed, which may take a moment
	stop()
	return s.result(o.await(ctx, func() error { return <-ended }))
}

// opening says what is done first.
func opening(o *options) string {
	switch {
	case o.local:
		return "Opening the meters of this machine"
	case len(o.command) > 0:
		return "Starting " + o.command[0]
	}
	return "Looking for a collector at " + o.endpoint
}

// loop draws and takes keys. It returns when a key or ctx ends the session, or, as over, with the
// result of the reader that ended.
func (s *session) loop(ctx context.Context, t *screen.Terminal, ended <-chan error) (over bool, err error) {
	for {
		var grid *screen.Grid
		grid, s.model = s.model.Draw(t.Size())
		t.Draw(grid)
		select {
		case e := <-t.Events():
			if s.handle(t, e) {
				return false, nil
			}
		case change := <-s.changes:
			s.model = change(s.model)
		case err := <-ended:
			t.Close()
			return true, s.result(err)
		case <-ctx.Done():
			return false, nil
		}
	}
}

// handle does what an event at the terminal asks for, and reports whether that ends the session.
func (s *session) handle(t *screen.Terminal, e screen.Event) (quit bool) {
	var action top.Action
	switch e := e.(type) {
	case screen.Lost:
		return true
	case screen.Mouse:
		s.model, action = s.model.Click(e)
	case screen.Key:
		s.model, action = s.model.Press(e)
	}
	switch action {
	case top.Quit:
		return true
	case top.Suspend:
		return t.Suspend() != nil
	case top.Redraw:
		t.Redraw()
	case top.Nothing:
	}
	return false
}

// panicked is a panic of the goroutine that reads.
type panicked struct {
	value any
	stack []byte
}

// Error implements error.
func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// guard reads, and returns a panic as an error: the terminal must be restored before the panic is
// reported.
func (s *session) guard(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return s.read(ctx)
}

// result returns what reading ended with, once the terminal is given back.
func (*session) result(err error) error {
	if p := (*panicked)(nil); errors.As(err, &p) {
		panic(p)
	}
	return err
}

// change changes the model.
func (s *session) change(ctx context.Context, change func(top.Model) top.Model) {
	select {
	case s.changes <- change:
	case <-ctx.Done():
	}
}

// explain shows why there are no newer figures.
func (s *session) explain(ctx context.Context, from *opened, text string, failed bool) {
	notes := notesOf(from)
	s.change(ctx, func(m top.Model) top.Model { return m.Explain(text, failed, notes) })
}

// firstRows is the time after which this machine's first rows are shown. The next figures follow soon.
const firstRows = 200 * time.Millisecond

// read opens a source, and reads it until ctx or the source ends.
func (s *session) read(ctx context.Context) (err error) {
	began := time.Now()
	from, err := s.open(ctx, s.options)
	switch {
	case err != nil && ctx.Err() != nil: // it was not waited for
		return nil
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	if from.first > 0 {
		s.explain(ctx, from, "Measuring", false)
		pause(ctx, min(from.first, firstRows))
	}
	r := newReader(from)
	f := framer{host: hostOf(s.endpoint), procs: from.files, fresh: from.strict, since: began}
	if f.host == "" {
		f.host, _ = os.Hostname()
	}
	delay, shown := firstWindow, false
	for {
		snap := r.read(ctx)
		switch {
		case ctx.Err() != nil:
		case r.err == nil && snap.hasFigures():
			frame, notes := f.frame(snap, r.sums, time.Now()), notesOf(from)
			s.change(ctx, func(m top.Model) top.Model { return m.Show(frame, notes) })
			shown = true
		case !shown && r.err != nil && time.Since(began) >= s.wait:
			return r.noFigures()
		default:
			s.missing(ctx, &r, shown, time.Since(began) >= s.wait)
		}
		if done, err := s.sleep(ctx, &r, min(delay, s.interval), shown); done {
			return err
		}
		if shown { // the first readings follow each other fast
			delay = min(2*delay, s.interval)
		}
	}
}

// missing reports why a reading has no figures.
func (s *session) missing(ctx context.Context, r *reader, shown, late bool) {
	switch {
	case shown && r.err != nil:
		s.explain(ctx, r.from, "No answer: "+r.err.Error(), true)
	case r.err != nil || late:
		s.explain(ctx, r.from, capital(r.missing()), true)
	case !shown:
		s.explain(ctx, r.from, "Measuring: no figures yet from "+r.from.name(), false)
	}
}

// sleep waits until it is time for the next reading. It returns true, and the result of all, if there is none.
func (s *session) sleep(ctx context.Context, r *reader, delay time.Duration, shown bool) (done bool, err error) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-r.from.exited:
		if ctx.Err() == nil {
			return true, r.from.ended(&s.options)
		}
	case <-ctx.Done():
	}
	switch {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded): // a key or a signal
		return true, nil
	case !shown:
		return true, r.noFigures()
	}
	return true, r.sums.err()
}

// notesOf returns what a source notes, a line each, and without control characters.
func notesOf(from *opened) (notes []string) {
	for line := range strings.Lines(from.note()) {
		notes = append(notes, figure.Line(line))
	}
	return notes
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
