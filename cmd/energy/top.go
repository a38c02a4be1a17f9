// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const clearScreen = "\x1b[H\x1b[2J"

type options struct {
	endpoint string
	rows     int
	interval time.Duration
	wait     time.Duration
	limit    time.Duration
	once     bool
	logFile  string
	command  []string
	terminal bool // redraw in place
}

// top is the subcommand of that name.
func top(args []string) error {
	opts, err := parseFlags(args, os.Stderr)
	if info, err := os.Stdout.Stat(); err == nil {
		opts.terminal = info.Mode()&os.ModeCharDevice != 0
	}
	return runParsed(err, func(ctx context.Context) error { return run(ctx, opts, os.Stdout) })
}

func parseFlags(args []string, usage io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("energy top", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.StringVar(&o.endpoint, "endpoint", "http://127.0.0.1:8889/metrics", "URL of the collector's Prometheus exporter")
	fs.IntVar(&o.rows, "n", 10, "rows of a table")
	fs.DurationVar(&o.interval, "interval", 5*time.Second, "time between two tables")
	fs.DurationVar(&o.wait, "wait", 15*time.Second, "how long to wait for the first figures")
	fs.DurationVar(&o.limit, "for", 0, "end after this time (0: at Ctrl-C)")
	fs.BoolVar(&o.once, "once", false, "print one table and end")
	fs.StringVar(&o.logFile, "log", "", "where the started command's output goes; its warnings are shown under the table")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.command = fs.Args()
	var err error
	switch {
	case o.interval <= 0:
		err = errors.New("-interval must be above 0")
	case o.rows < 1:
		err = errors.New("-n must be at least 1")
	case o.wait < 0 || o.limit < 0:
		err = errors.New("-wait and -for must not be below 0")
	case len(o.command) > 0 && o.logFile == "":
		err = errors.New("-log is needed with a command")
	}
	if err != nil {
		fmt.Fprintln(usage, "energy top:", err)
	}
	return o, err
}

// run shows tables until ctx or the time limit ends. It stops the command, if any, before it returns.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	var exited <-chan struct{}
	if len(o.command) > 0 {
		c, err := start(o.command, o.endpoint, o.logFile)
		if err != nil {
			return err
		}
		defer c.stop()
		exited = c.exited
	}
	return show(ctx, o, out, exited)
}

// display is the state of top.
type display struct {
	options
	out       io.Writer
	ledger    ledger
	log       logTail
	begin     time.Time
	shown     bool // a table was shown
	announced bool // the wait was announced
	sums      check
	err       error // of the last scrape
}

func show(ctx context.Context, o options, out io.Writer, exited <-chan struct{}) error {
	d := display{options: o, out: out, log: logTail{path: o.logFile}, begin: time.Now()}
	// A collector started by this process has dropped no series yet, so everything must add up.
	d.ledger.strict = len(o.command) > 0
	var limit <-chan time.Time
	if o.limit > 0 {
		t := time.NewTimer(o.limit)
		defer t.Stop()
		limit = t.C
	}
	for {
		next, done, err := d.refresh(ctx)
		if done {
			return err
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-exited:
			timer.Stop()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s ended by itself; its last lines in %s:\n%s", o.command[0], o.logFile, d.log.last(20))
		case <-limit:
			timer.Stop()
			if !d.shown {
				return noFigures(o.endpoint, d.err, &d.log)
			}
			return d.sums.err()
		}
	}
}

// refresh scrapes once and shows the result. It returns when to scrape again, or that top is done.
func (d *display) refresh(ctx context.Context) (next time.Duration, done bool, err error) {
	snap := d.scrape(ctx)
	switch {
	case ctx.Err() != nil:
	case d.err == nil && snap.hasFigures():
		d.table(snap)
		if d.once {
			return 0, true, d.sums.err()
		}
	case !d.shown && time.Since(d.begin) >= d.wait && (d.once || d.err != nil):
		return 0, true, noFigures(d.endpoint, d.err, &d.log)
	default:
		return d.explain(), false, nil
	}
	return d.interval, false, nil
}

// scrape reads the endpoint. The exporter may be read while it takes in a batch, so scrape reads again if sums do not
// add up.
func (d *display) scrape(ctx context.Context) *snapshot {
	var snap *snapshot
	if snap, d.err = scrape(ctx, d.endpoint); d.err != nil {
		return snap
	}
	d.sums = d.ledger.add(snap)
	for try := 0; try < 5 && !d.sums.ok() && ctx.Err() == nil; try++ {
		pause(ctx, 100*time.Millisecond)
		if again, err := scrape(ctx, d.endpoint); err == nil {
			snap, d.sums = again, d.ledger.add(again)
		}
	}
	return snap
}

// table writes the tables, over the previous ones if the output is a terminal.
func (d *display) table(snap *snapshot) {
	if d.terminal && !d.once {
		fmt.Fprint(d.out, clearScreen)
	} else if d.shown {
		fmt.Fprintln(d.out)
	}
	fmt.Fprint(d.out, render(snap, d.sums, d.rows, time.Now()))
	if note := d.log.note(); note != "" {
		fmt.Fprintln(d.out, note)
	}
	d.shown = true
}

// explain writes why there is no table, and returns when to look again.
func (d *display) explain() (next time.Duration) {
	waiting := !d.shown && time.Since(d.begin) < d.wait
	switch {
	case !d.announced:
		fmt.Fprintf(d.out, "Waiting for figures from %s\n", d.endpoint)
		d.announced = true
	case d.shown && d.err != nil:
		fmt.Fprintf(d.out, "No answer: %v\n", d.err)
	case !d.shown && !waiting:
		fmt.Fprintln(d.out, noFigures(d.endpoint, d.err, &d.log))
	}
	if waiting {
		return min(d.interval, 500*time.Millisecond)
	}
	return d.interval
}

func noFigures(endpoint string, err error, log *logTail) error {
	var b strings.Builder
	if err != nil {
		fmt.Fprintf(&b, "nothing to show from %s: %v\nIs the collector running? `make run` starts it.", endpoint, err)
	} else {
		fmt.Fprintf(&b, "%s answers, but has no energy figures: no sensor can be read, and the receiver has no `model:` configured.", endpoint)
	}
	if note := log.note(); note != "" {
		b.WriteString("\n" + note)
	}
	return errors.New(b.String())
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
