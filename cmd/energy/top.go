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
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
)

// shortestInterval is the minimum collection interval of the receiver.
const shortestInterval = 10 * time.Millisecond

const defaultEndpoint = "http://127.0.0.1:8889/metrics"

type options struct {
	endpoint string
	given    bool   // the endpoint is not the default
	local    bool   // no collector is read
	model    string // the value of --model, empty for the default
	config   string // the file of the receiver's configuration, without a collector
	receiver string // which of several in it
	rows     int
	interval time.Duration
	wait     time.Duration
	limit    time.Duration
	once     bool
	json     bool
	plain    bool // no screen, also on a terminal
	// mustStart makes reading end if there are no figures after wait.
	mustStart bool
}

// subcommand returns the command top.
func (o *options) subcommand() *cobra.Command {
	c := &cobra.Command{
		Use: "top [flags]", Short: "show the largest energy consumers",
		Long: `Shows the programs that use the most energy. The figures are read from a collector on this machine.
If no collector runs, energy top measures.`,
		Example: `  energy top                  a full screen; if the output is not a terminal, a table every 2 s
  energy top --rows 10        tables of 10 rows, also on a terminal
  energy top --once           one table
  energy top --once --json    one JSON document
  energy top --local          measures even if a collector runs`,
		Args: func(c *cobra.Command, args []string) error {
			o.given = c.Flags().Changed("endpoint")
			o.plain = o.once || o.json || c.Flags().Changed("rows")
			if o.rows < 1 {
				return errors.New("--rows must be at least 1")
			}
			return noArguments(o.check)(c, args)
		},
		RunE: untilDone(func(ctx context.Context) error {
			if !o.plain && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
				if t, err := screen.Open(); err == nil {
					return runScreen(ctx, *o, t, openSource)
				}
			}
			o.plain = true
			return await(ctx, func() error { return run(ctx, *o, os.Stdout) })
		}),
	}
	flagGroup(c, "What is shown", o.sourceFlags)
	flagGroup(c, "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&o.once, "once", false, "print one table and exit")
		f.BoolVar(&o.json, "json", false, "print JSON instead of tables: a document per line, with --once an indented one")
		f.IntVar(&o.rows, "rows", 10, "`number` of rows of a table; tables are plain text, also on a terminal")
		f.DurationVar(&o.interval, "interval", 2*time.Second, "time between two readings")
	})
	flagGroup(c, "Limits", func(f *pflag.FlagSet) {
		f.DurationVar(&o.limit, "for", 0, "exit after this time (0: run until Ctrl-C)")
		f.DurationVar(&o.wait, "wait", 15*time.Second, "maximum wait for the first figures")
	})
	return c
}

// sourceFlags adds the flags that select the source of the figures.
func (o *options) sourceFlags(f *pflag.FlagSet) {
	o.endpoint = defaultEndpoint
	f.Var((*endpoint)(&o.endpoint), "endpoint", "`URL` or host:port of the collector's Prometheus exporter; if no collector "+
		"listens at the default, energy measures this machine")
	f.BoolVar(&o.local, "local", false, "measure even if a collector runs")
	f.StringVar(&o.model, "model", "", "without a collector: "+modelUsage)
	f.StringVar(&o.config, "config", "", "without a collector: `file` with the configuration of a collector, or of its energy receiver")
	f.StringVar(&o.receiver, "receiver", "", "`name` of the receiver in that file if it has several: energy/name")
}

func (o *options) check() error {
	switch {
	case o.local && o.given:
		return errors.New("--local and --endpoint are mutually exclusive")
	case o.interval <= 0:
		return errors.New("--interval must be above 0")
	case o.interval < shortestInterval && !o.given:
		return fmt.Errorf("--interval must be at least %v without --endpoint", shortestInterval)
	case o.wait < 0 || o.limit < 0:
		return errors.New("--wait and --for must not be below 0")
	}
	return nil
}

// limited returns a context that ends with ctx or after the time limit.
func (o *options) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.limit > 0 {
		return context.WithTimeout(ctx, o.limit)
	}
	return context.WithCancel(ctx)
}

// endsWithin is how long reading may take to end after a key or a signal.
const endsWithin = 4 * time.Second

// await calls do, and returns its error. After ctx has ended, it waits for do no longer than
// endsWithin.
func await(ctx context.Context, do func() error) error {
	_, err := patience.Call(ctx, endsWithin, func() (struct{}, error) { return struct{}{}, do() })
	if errors.Is(err, patience.ErrBlocked) {
		return fmt.Errorf("interrupted while a read or write was blocked: %w", err)
	}
	return err
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(to io.Writer) bool {
	f, isFile := to.(*os.File)
	if !isFile {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// run writes tables or JSON documents until ctx or the time limit ends.
func run(ctx context.Context, o options, out io.Writer) error {
	ctx, stop := o.limited(ctx)
	defer stop()
	return follow(ctx, o, openSource, &printer{options: o, to: figure.Writer(out)})
}

// printer is the display without a screen.
type printer struct {
	options
	to   io.Writer
	last *top.Frame
	said string
}

// show implements display. It prints the same figures only once.
func (p *printer) show(_ context.Context, f *top.Frame, notes []string) error {
	first := p.last == nil
	if !first && p.last.At.Equal(f.At) {
		return nil
	}
	p.last, p.said = f, ""
	switch {
	case p.json && p.once:
		return top.JSON(p.to, f, notes, "  ")
	case p.json:
		return top.JSON(p.to, f, notes, "")
	}
	text := top.New("").Show(f, notes).Text(p.rows)
	if !first {
		text = "\n" + text
	}
	_, err := io.WriteString(p.to, text)
	return err
}

// explain implements display. It prints the same explanation only once. The standard output contains
// only the document of JSON, or only the table of --once. explain prints the notes only after a
// failure, because show prints them with the figures.
func (p *printer) explain(_ context.Context, text string, failed bool, notes []string) (err error) {
	if text != p.said {
		to := p.to
		if p.json || p.once {
			to = figure.Writer(os.Stderr)
		}
		lines := []string{text}
		if failed {
			lines = append(lines, notes...)
		}
		_, err = fmt.Fprintln(to, strings.Join(lines, "\n"))
	}
	p.said = text
	return err
}
