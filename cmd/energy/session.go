// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
)

// opener opens a source.
type opener func(context.Context, options) (*source, error)

// display shows figures, or the reason why there are no new figures. An error of a display ends the
// follower.
type display interface {
	show(ctx context.Context, f *top.Frame, notes []string) error
	explain(ctx context.Context, text string, failed bool, notes []string) error
}

// follower reads a source until its end.
type follower struct {
	options
	*source
	to    display
	began time.Time
	frame *top.Frame // newest one, nil before the first
	said  []string   // notes of the newest snapshot
}

// follow opens a source, and shows its figures until ctx or the source ends.
func follow(ctx context.Context, o options, open opener, to display) (err error) {
	f := &follower{options: o, to: to, began: time.Now()}
	if f.source, err = open(ctx, o); err != nil {
		if ctx.Err() != nil { // the opening was interrupted
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if f.first > 0 {
		if err := to.explain(ctx, "Measuring", false, f.lines()); err != nil {
			return err
		}
		pause(ctx, f.first)
	}
	for delay := soonAgain; ctx.Err() == nil; {
		if done, err := f.step(ctx); done || err != nil {
			return err
		}
		delay = f.next(delay)
		pause(ctx, min(delay, f.interval))
	}
	switch {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded): // a key or a signal
		return nil
	case f.frame == nil:
		return f.noFigures(nil)
	}
	return contradiction(f.frame)
}

// soonAgain is the time until the second reading on a screen, and between readings without figures.
const soonAgain = 250 * time.Millisecond

// next returns the time until the next reading, which follows a reading after a delay. On a screen
// the first frames follow each other fast.
func (f *follower) next(delay time.Duration) time.Duration {
	switch {
	case f.frame == nil:
		return soonAgain
	case f.plain:
		return f.interval
	}
	return min(2*delay, f.interval)
}

// step reads and shows. It reports whether it was the last time, and the result.
func (f *follower) step(ctx context.Context) (done bool, err error) {
	err = f.update(ctx)
	late := time.Since(f.began) >= f.wait
	switch {
	case ctx.Err() != nil:
	case err == nil && f.frame != nil:
		if err := f.to.show(ctx, f.frame, f.lines()); err != nil || !f.once {
			return false, err
		}
		return true, contradiction(f.frame)
	case f.frame != nil:
		return false, f.to.explain(ctx, "No new figures: "+err.Error(), true, f.lines())
	case late && (err != nil || f.once || f.mustStart):
		return true, f.noFigures(err)
	case err != nil || late:
		text := f.missing(err)
		return false, f.to.explain(ctx, strings.ToUpper(text[:1])+text[1:], true, f.lines())
	default:
		return false, f.to.explain(ctx, "Waiting for figures from "+f.name, false, f.lines())
	}
	return false, nil
}

// rereads is the maximum number of repetitions of a reading whose figures do not add up, as of an
// exporter that was read while a collection arrived.
const rereads = 2

// update reads a snapshot, and makes a frame if there are new figures.
func (f *follower) update(ctx context.Context) error {
	for try := 0; ; try++ {
		s, err := f.read(ctx)
		if err == nil && !s.HasFigures() {
			if f.said = s.Notes; f.frame == nil {
				return nil
			}
			err = errors.New("the response has no energy figures")
		}
		switch {
		case err != nil && try > 0:
			return nil
		case err != nil:
			return err
		}
		news := f.account.Add(s)
		f.said, f.frame = s.Notes, frameOf(&f.account, s, f.files)
		f.frame.Host, f.frame.Source = cmp.Or(figure.Line(f.frame.Host), f.host), f.name
		if !f.reread || !news && try == 0 || try == rereads || f.account.Complete() {
			return nil
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// lines returns the notes on the figures, one line each and without control characters.
func (f *follower) lines() (lines []string) {
	for _, note := range slices.Concat(f.notes(), f.said) {
		lines = append(lines, figure.Line(note))
	}
	return lines
}

// missing returns the reason why there are no figures, and advice.
func (f *follower) missing(err error) string {
	text := "no figures from " + f.name
	var request *url.Error // repeats the name
	if errors.As(err, &request) {
		err = request.Err
	}
	if err != nil {
		text += ": " + err.Error()
	}
	return text + "\n" + f.hint(err)
}

// noFigures is missing with the notes, as an error.
func (f *follower) noFigures(err error) error {
	return errors.New(strings.Join(append([]string{f.missing(err)}, f.lines()...), "\n"))
}

// contradiction returns the error of figures that cannot be right.
func contradiction(f *top.Frame) error {
	if f.Wrong == "" {
		return nil
	}
	return errors.New(f.Wrong)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// session is top on a terminal: one goroutine follows the source, another one draws and takes keys.
type session struct {
	model   top.Model
	changes chan func(top.Model) top.Model
}

// runScreen shows figures on a terminal until q, ctx or the time limit ends it. It restores the
// terminal before it returns or panics. A source that hangs does not keep it from returning.
func runScreen(ctx context.Context, o options, t *screen.Terminal, open opener) error {
	defer t.Close()
	ctx, stop := o.limited(ctx)
	defer stop()
	status := "Looking for a collector at " + o.endpoint
	if o.local {
		status = "Opening the meters of this machine"
	}
	s := &session{changes: make(chan func(top.Model) top.Model), model: top.New(status)}
	ended := make(chan error, 1)
	go func() { ended <- guarded(func() error { return follow(ctx, o, open, s) }) }()
	if over, err := s.loop(ctx, t, ended); over {
		return err
	}
	t.Close() // before the source is closed, which may take a moment
	stop()
	return repanic(await(ctx, func() error { return <-ended }))
}

// loop draws and takes keys. It returns when a key or ctx ends the session, or, as over, with the
// result of the follower.
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
			return true, repanic(err)
		case <-ctx.Done():
			return false, nil
		}
	}
}

// handle handles an event of the terminal, and reports whether it ends the session.
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

// show implements display.
func (s *session) show(ctx context.Context, f *top.Frame, notes []string) error {
	return s.change(ctx, func(m top.Model) top.Model { return m.Show(f, notes) })
}

// explain implements display.
func (s *session) explain(ctx context.Context, text string, failed bool, notes []string) error {
	return s.change(ctx, func(m top.Model) top.Model { return m.Explain(text, failed, notes) })
}

func (s *session) change(ctx context.Context, change func(top.Model) top.Model) error {
	select {
	case s.changes <- change:
	case <-ctx.Done():
	}
	return nil
}

// panicked is a panic of the goroutine that follows the source.
type panicked struct {
	value any
	stack []byte
}

// Error implements error.
func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// guarded returns a panic as an error: the terminal must be restored before it is reported.
func guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return do()
}

// repanic returns the result of the follower, after the terminal was restored.
func repanic(err error) error {
	if p := (*panicked)(nil); errors.As(err, &p) {
		panic(p)
	}
	return err
}
