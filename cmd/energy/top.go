// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

const clearScreen = "\x1b[H\x1b[2J"

const defaultEndpoint = "http://127.0.0.1:8889/metrics"

type options struct {
	endpoint string
	given    bool   // the endpoint is not the default
	local    bool   // no collector is asked
	model    string // none, or what receiverconfig.Model reads; auto if it is empty, unless config says it
	config   string // the file of the receiver's configuration, without a collector
	receiver string // which of several in it
	rows     int
	interval time.Duration
	wait     time.Duration
	limit    time.Duration
	once     bool
	logFile  string
	command  []string
	terminal bool // redraw in place
}

const topUsage = `Usage: energy top [flags]
       energy top [flags] -log FILE -- COMMAND [ARGUMENT...]

Shows what uses the most energy: of a collector on this machine, or without one of what it measures itself. With a command it starts that
collector, and stops it at the end.

  energy top                    a table every 5 s, until Ctrl-C
  energy top -once              one table
  energy top -local             measures even where a collector listens

`

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
	fs.StringVar(&o.endpoint, "endpoint", defaultEndpoint,
		"`URL` of the collector's Prometheus exporter; where it is not given and nothing listens there, this command measures by itself")
	fs.BoolVar(&o.local, "local", false, "measure without looking for a collector")
	fs.StringVar(&o.model, "model", "", "without a collector: the `model` that estimates what no meter measures: auto, none, the watts of the CPUs idle and busy as 35-120, or the file of a trained model (default auto, or what -config says)")
	fs.StringVar(&o.config, "config", "", "without a collector: `file` with a collector's configuration, or with that of its energy receiver")
	fs.StringVar(&o.receiver, "receiver", "", "`name` of the receiver in that file if it has several: energy/name")
	fs.IntVar(&o.rows, "n", 10, "rows of a table")
	fs.DurationVar(&o.interval, "interval", 5*time.Second, "time between two tables")
	fs.DurationVar(&o.wait, "wait", 15*time.Second, "how long to wait for the first figures")
	fs.DurationVar(&o.limit, "for", 0, "end after this time (0: at Ctrl-C)")
	fs.BoolVar(&o.once, "once", false, "print one table and end")
	fs.StringVar(&o.logFile, "log", "", "`file` for the output of the started command; its warnings are shown under the table")
	if err := parseWithUsage(fs, args, topUsage, usage); err != nil {
		return o, err
	}
	o.command = fs.Args()
	fs.Visit(func(f *flag.Flag) { o.given = o.given || f.Name == "endpoint" })
	var err error
	switch {
	case o.local && (o.given || len(o.command) > 0):
		err = errors.New("-local is for measuring without a collector: it takes neither -endpoint nor a command")
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
	if o.local || !o.given && len(o.command) == 0 && refused(o.endpoint) {
		cfg, without, err := localConfig(ctx, &o)
		if err != nil {
			return err
		}
		return runLocal(ctx, o, cfg, without, out)
	}
	from := &collector{endpoint: o.endpoint, log: logTail{path: o.logFile}}
	d := display{options: o, out: out, from: from, retries: 5}
	if len(o.command) == 0 {
		return d.show(ctx)
	}
	c, err := start(o.command, o.endpoint, o.logFile)
	if err != nil {
		return err
	}
	defer c.stop()
	// A collector started by this process has dropped no series yet, so everything must add up.
	d.ledger.strict = true
	d.exited = c.exited
	d.last = from.log.last
	return d.show(ctx)
}

// runLocal shows tables of this machine without a collector.
func runLocal(ctx context.Context, o options, cfg *energyreceiver.Config, without []string, out io.Writer) (err error) {
	from, err := openLocal(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	for _, setting := range without {
		from.notes.Set(setting, setting+" is left out: extensions are a collector's")
	}
	if !o.local {
		from.why = fmt.Sprintf("No collector listens at %s: this command measures by itself", o.endpoint)
	}
	pause(ctx, min(o.interval, firstWindow))
	d := display{options: o, out: out, from: from}
	d.ledger.strict = true // it has the receiver's series from the first one on
	return d.show(ctx)
}

// display is the state of top.
type display struct {
	options
	out       io.Writer
	from      source
	retries   int             // how often to read again if sums do not add up
	exited    <-chan struct{} // closed when the command has ended; nil if there is none
	last      func(lines int) string
	ledger    ledger
	begin     time.Time
	shown     bool // a table was shown
	announced bool // the wait was announced
	sums      check
	err       error // of the last read
}

func (d *display) show(ctx context.Context) error {
	d.begin = time.Now()
	var limit <-chan time.Time
	if d.limit > 0 {
		t := time.NewTimer(d.limit)
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
		case <-d.exited:
			timer.Stop()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s ended by itself; its last lines in %s:\n%s", d.command[0], d.logFile, d.last(20))
		case <-limit:
			timer.Stop()
			if !d.shown {
				return d.noFigures()
			}
			return d.sums.err()
		}
	}
}

// refresh reads once and shows the result. It returns when to read again, or that top is done.
func (d *display) refresh(ctx context.Context) (next time.Duration, done bool, err error) {
	snap := d.read(ctx)
	switch {
	case ctx.Err() != nil:
	case d.err == nil && snap.hasFigures():
		d.table(snap)
		if d.once {
			return 0, true, d.sums.err()
		}
	case !d.shown && time.Since(d.begin) >= d.wait && (d.once || d.err != nil):
		return 0, true, d.noFigures()
	default:
		return d.explain(), false, nil
	}
	return d.interval, false, nil
}

// read reads the figures. An exporter may be read while it takes in a batch, so read reads again if sums do not add up.
func (d *display) read(ctx context.Context) *snapshot {
	var snap *snapshot
	if snap, d.err = d.from.read(ctx); d.err != nil {
		return snap
	}
	d.sums = d.ledger.add(snap)
	for try := 0; try < d.retries && !d.sums.ok() && ctx.Err() == nil; try++ {
		pause(ctx, 100*time.Millisecond)
		if again, err := d.from.read(ctx); err == nil {
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
	d.writeNote()
	d.shown = true
}

func (d *display) writeNote() {
	if note := d.from.note(); note != "" {
		fmt.Fprintln(d.out, note)
	}
}

// explain writes why there is no table, and returns when to look again.
func (d *display) explain() (next time.Duration) {
	waiting := !d.shown && time.Since(d.begin) < d.wait
	switch {
	case !d.announced:
		fmt.Fprintf(d.out, "Waiting for figures from %s\n", d.from.name())
		d.writeNote()
		d.announced = true
	case d.shown && d.err != nil:
		fmt.Fprintf(d.out, "No answer: %v\n", d.err)
	case !d.shown && !waiting:
		fmt.Fprintln(d.out, d.noFigures())
	}
	if waiting {
		return min(d.interval, 500*time.Millisecond)
	}
	return d.interval
}

func (d *display) noFigures() error {
	text := "nothing to show from " + d.from.name()
	if d.err != nil {
		text += ": " + d.err.Error()
	}
	text += "\n" + d.from.hint(d.err)
	if note := d.from.note(); note != "" {
		text += "\n" + note
	}
	return errors.New(text)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
