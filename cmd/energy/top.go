// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

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
	plain    bool // tables, also on a terminal
}

// subcommand returns the command top.
func (o *options) subcommand() *cobra.Command {
	o.endpoint = defaultEndpoint
	c := &cobra.Command{
		Use: "top [flags] [-- COMMAND [ARGUMENT...]]", Short: "show the top consumers of energy as a table",
		Long: `Shows the programs that use the most energy: of a collector on this machine, or measured by energy
itself if no collector runs. With a command it starts that collector, and stops it at the end.`,
		Example: `  energy top              a screen, until q; without a terminal a table every 5 s
  energy top --rows 10    tables of 10 rows, also on a terminal
  energy top --once       one table
  energy top --local      measures even where a collector listens`,
		Args: func(c *cobra.Command, args []string) error {
			o.command = args
			o.given = c.Flags().Changed("endpoint")
			o.plain = o.once || c.Flags().Changed("rows")
			return o.check()
		},
		RunE: untilDone(func(ctx context.Context) error {
			if !o.plain && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
				if t, err := screen.Open(); err == nil {
					return runScreen(ctx, *o, t, open)
				}
			}
			return o.await(ctx, func() error { return run(ctx, *o, os.Stdout) })
		}),
	}
	c.Flags().SetInterspersed(false)
	flagGroup(c, "What is shown", func(f *pflag.FlagSet) {
		f.Var((*endpoint)(&o.endpoint), "endpoint", "`URL` or host:port of the collector's Prometheus exporter; without this flag, "+
			"if no collector listens there, this command measures by itself")
		f.BoolVar(&o.local, "local", false, "measure without looking for a collector")
		f.StringVar(&o.model, "model", "", "without a collector: "+modelUsage)
		f.StringVar(&o.config, "config", "", "without a collector: `file` with the configuration of a collector, or of its energy receiver")
		f.StringVar(&o.receiver, "receiver", "", "`name` of the receiver in that file if it has several: energy/name")
		f.StringVar(&o.logFile, "log", "", "`file` for the output of the started command; its warnings are shown under the table")
	})
	flagGroup(c, "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&o.once, "once", false, "print one table and end")
		f.IntVar(&o.rows, "rows", 10, "`number` of rows of a table; tables are plain text, also on a terminal")
		f.DurationVar(&o.interval, "interval", 5*time.Second, "time between two readings")
	})
	flagGroup(c, "Limits", func(f *pflag.FlagSet) {
		f.DurationVar(&o.limit, "for", 0, "end after this time (0: at Ctrl-C)")
		f.DurationVar(&o.wait, "wait", 15*time.Second, "how long to wait for the first figures")
	})
	return c
}

// endsWithin is how long reading may take to end after a key or a signal.
const endsWithin = 4 * time.Second

// await calls do, and returns its error. Once ctx has ended, it waits for do no longer than
// endsWithin, and for the command, if any, to end.
func (o *options) await(ctx context.Context, do func() error) error {
	grace := endsWithin
	if len(o.command) > 0 {
		grace += stopTimeout
	}
	_, err := patience.Call(ctx, grace, func() (struct{}, error) { return struct{}{}, do() })
	if errors.Is(err, patience.ErrBlocked) {
		return fmt.Errorf("interrupted while a read or write was blocked: %w", err)
	}
	return err
}

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (o *options) check() error {
	switch {
	case o.local && (o.given || len(o.command) > 0):
		return errors.New("--local is for measuring without a collector: it takes neither --endpoint nor a command")
	case o.interval <= 0:
		return errors.New("--interval must be above 0")
	case o.rows < 1:
		return errors.New("--rows must be at least 1")
	case o.wait < 0 || o.limit < 0:
		return errors.New("--wait and --for must not be below 0")
	case len(o.command) > 0 && o.logFile == "":
		return errors.New("--log is needed with a command")
	}
	return nil
}

// run shows tables until ctx or the time limit ends. It stops the command, if any, before it returns.
func run(ctx context.Context, o options, out io.Writer) error {
	from, err := open(ctx, o)
	if err != nil {
		return err
	}
	return from.show(ctx, o, out)
}

// opened is a source, and how it is read.
type opened struct {
	source
	retries int             // how often to read again if sums do not add up
	strict  bool            // no series was dropped before the first reading
	first   time.Duration   // until the first figures are there
	files   *processFiles   // of the machine whose processes these are, nil where that is another one
	exited  <-chan struct{} // closed when the command has ended; nil if there is none
	last    func(lines int) string
	close   func() error
}

// open opens a collector's exporter, starts the command first if there is one, or opens the
// embedded receiver where no collector is.
func open(ctx context.Context, o options) (*opened, error) {
	if o.local || !o.given && len(o.command) == 0 && refused(o.endpoint) {
		cfg, without, err := localConfig(ctx, &o)
		if err != nil {
			return nil, err
		}
		return openedLocal(ctx, o, cfg, without)
	}
	from := &collector{endpoint: o.endpoint, log: logTail{path: o.logFile}}
	s := &opened{source: from, retries: 5, close: func() error { return nil }}
	if hostOf(o.endpoint) == "" {
		s.files = newProcessFiles("/")
	}
	if len(o.command) == 0 {
		return s, nil
	}
	c, err := start(o.command, o.endpoint, o.logFile)
	if err != nil {
		return nil, err
	}
	// A collector started by this process has dropped no series yet, so everything must add up.
	s.strict, s.exited, s.last = true, c.exited, from.log.last
	s.close = func() error { c.stop(); return nil }
	return s, nil
}

// openedLocal opens the embedded receiver. Its first figures are there after the first window.
func openedLocal(ctx context.Context, o options, cfg *energyreceiver.Config, without []string) (*opened, error) {
	from, err := openLocal(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for _, setting := range without {
		from.notes.Set(setting, setting+" is left out: extensions are a collector's")
	}
	if !o.local {
		from.why = fmt.Sprintf("No collector listens at %s: this command measures by itself", o.endpoint)
	}
	// It has the receiver's series from the first one on.
	return &opened{source: from, strict: true, first: min(o.interval, firstWindow), files: newProcessFiles(cfg.RootPath), close: from.close}, nil
}

// show shows tables of a source, which it closes.
func (s *opened) show(ctx context.Context, o options, out io.Writer) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	pause(ctx, s.first)
	d := display{options: o, out: figure.Writer(out), reader: newReader(s)}
	return d.show(ctx)
}

// reader reads figures and adds them up.
type reader struct {
	from   *opened
	ledger ledger
	sums   check
	err    error // of the last read
}

func newReader(from *opened) reader { return reader{from: from, ledger: ledger{strict: from.strict}} }

// read reads the figures. An exporter may be read while it takes in a batch, so read reads again if sums do not add up.
func (r *reader) read(ctx context.Context) *snapshot {
	var snap *snapshot
	if snap, r.err = r.from.read(ctx); r.err != nil {
		return snap
	}
	r.sums = r.ledger.add(snap)
	for try := 0; try < r.from.retries && !r.sums.ok() && ctx.Err() == nil; try++ {
		pause(ctx, 100*time.Millisecond)
		if again, err := r.from.read(ctx); err == nil {
			snap, r.sums = again, r.ledger.add(again)
		}
	}
	return snap
}

// missing says why there is nothing to show, and what to do.
func (r *reader) missing() string {
	text := "nothing to show from " + r.from.name()
	if r.err != nil {
		text += ": " + r.err.Error()
	}
	return text + "\n" + r.from.hint(r.err)
}

// noFigures is missing with the source's notes, as an error.
func (r *reader) noFigures() error {
	return errors.New(strings.TrimRight(r.missing()+"\n"+r.from.note(), "\n"))
}

// ended is the error of a command that ended.
func (s *opened) ended(o *options) error {
	var last []string
	for line := range strings.Lines(s.last(20)) {
		last = append(last, figure.Clean(strings.TrimRight(line, "\r\n")))
	}
	return fmt.Errorf("%s ended by itself; its last lines in %s:\n%s", o.command[0], o.logFile, strings.Join(last, "\n"))
}

// display shows tables, one after the other.
type display struct {
	options
	reader
	out       io.Writer
	begin     time.Time
	shown     bool // a table was shown
	announced bool // the wait was announced
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
		case <-d.from.exited:
			timer.Stop()
			if ctx.Err() != nil {
				return nil
			}
			return d.from.ended(&d.options)
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

// table writes the tables.
func (d *display) table(snap *snapshot) {
	if d.shown {
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

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
