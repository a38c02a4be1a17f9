// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/period"
)

// reportOptions are the flags of the command report.
type reportOptions struct {
	period.Options
	month         string
	last          model.Duration
	headers       []string
	outputOptions // formats, outputs and rates
}

// subcommand returns the command report.
func (o *reportOptions) subcommand() *cobra.Command {
	c := &cobra.Command{
		Use: "report [flags]", Short: "report the energy of nodes over a month, from Prometheus",
		Long: `Reports the energy of nodes and of their namespaces, users, jobs and so on over a period, with the
change against the period before. It reads Prometheus, VictoriaMetrics, Mimir, or another database
with the HTTP API of Prometheus.`,
		Example: `  energy report --last 7d                                   the last week, by namespace
  energy report --prometheus https://mimir.example/prometheus --header 'X-Scope-OrgID: team'
  energy report --month 2026-10 --html october.html --grid FRA --price 0.3 --currency EUR
  energy report --by node --match 'k8s_cluster_name="a"' -o nodes.csv`,
		Args: noArguments(func() error { return o.check(time.Now()) }),
		RunE: untilDone(o.run),
	}
	flagGroup(c, "Source", func(f *pflag.FlagSet) {
		f.StringVar(&o.Server, "prometheus", "http://127.0.0.1:9090",
			"`URL` of the server, with the path before /api/v1; a user and a password may be part of it")
		f.StringArrayVar(&o.headers, "header", nil,
			"`header` of requests, as 'Name: value', or @FILE with one per line. May be repeated")
		o.last = model.Duration(30 * 24 * time.Hour)
		f.Func("last", "`length` of the period until the last full hour, such as 12h, 7d or 4w (default 30d)", func(text string) (err error) {
			o.last, err = model.ParseDuration(text)
			return err
		})
		f.StringVar(&o.month, "month", "", "`month` of the calendar, such as 2026-10, instead of --last")
		f.StringVar(&o.By, "by", "namespace", "`rows`: "+strings.Join(period.Groupings(), ", "))
		f.StringArrayVar(&o.Match, "match", nil,
			"label `matcher` of PromQL for all series, also those of nodes, such as 'k8s_cluster_name=\"a\"'. May be repeated")
	})
	flagGroup(c, "Output", func(f *pflag.FlagSet) {
		f.IntVar(&o.Rows, "rows", 20, "`number` of rows. The rows with the largest changes are added")
		o.formatFlags(f, "standard output")
		rateFlags(f, &o.rates)
	})
	c.MarkFlagsMutuallyExclusive("last", "month")
	c.MarkFlagsMutuallyExclusive("json", "csv", "markdown")
	return c
}

// settled is the time after which the samples of a step are expected to be stored.
const settled = 2 * time.Minute

// check validates the flags, and sets the period to complete steps.
func (o *reportOptions) check(now time.Time) error {
	now = now.Add(-settled)
	last := time.Duration(o.last)
	o.To = now.Truncate(period.StepLength)
	o.From = o.To.Add(-last)
	if o.month != "" {
		tz := strings.TrimPrefix(os.Getenv("TZ"), ":")
		if _, err := time.LoadLocation(tz); err != nil && !filepath.IsAbs(tz) {
			return fmt.Errorf("TZ: %w", err) // the time package uses UTC
		}
		var err error
		if o.From, err = time.ParseInLocation("2006-01", o.month, now.Location()); err != nil {
			return errors.New("--month must be a month such as 2026-10")
		}
		if o.To = o.From.AddDate(0, 1, 0); o.To.After(now) {
			o.To = o.From.Add(now.Sub(o.From).Truncate(period.StepLength))
		}
	}
	o.Rates = o.rates
	switch {
	case last <= 0 || last%period.StepLength != 0 || last > 400*24*time.Hour:
		return errors.New("--last must be a number of hours, days or weeks up to 400 days, such as 12h, 7d or 4w")
	case !o.From.Before(o.To):
		return errors.New("--month must have begun more than an hour ago")
	case !slices.Contains(period.Groupings(), o.By):
		return errors.New("--by must be one of " + strings.Join(period.Groupings(), ", "))
	case o.Rows < 1 || o.Rows > 1000:
		return errors.New("--rows must be from 1 to 1000")
	}
	if err := cmp.Or(period.CheckServer(o.Server), o.addHeaders()); err != nil {
		return err
	}
	return checkRates(&o.rates)
}

// addHeaders sets the headers of requests. Headers in files are not visible in the process list.
func (o *reportOptions) addHeaders() error {
	o.Header = http.Header{}
	for _, text := range o.headers {
		if path, isFile := strings.CutPrefix(text, "@"); isFile {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(content)
		}
		for line := range strings.Lines(text) {
			name, value, found := strings.Cut(strings.TrimSpace(line), ":")
			switch {
			case name == "" && !found: // an empty line
			case !found || !httpguts.ValidHeaderFieldName(name):
				return errors.New("a --header is not of the form 'Name: value'") // it may be a secret
			default:
				o.Header.Add(name, strings.TrimSpace(value))
			}
		}
	}
	return nil
}

// run reads and writes the report.
func (o *reportOptions) run(ctx context.Context) error {
	f := &files{}
	defer f.discard()
	if len(o.outputs) == 0 && o.html == "" {
		o.outputs = []string{"-"}
	}
	if err := o.openFiles(ctx, f, os.Stdout); err != nil {
		return err
	}
	if isTerminal(os.Stderr) {
		o.Progress = func(done, all int) { fmt.Fprintf(os.Stderr, "\rReading: %d %%\x1b[K", 100*done/all) }
	}
	d, err := period.Read(ctx, o.Options)
	if o.Progress != nil {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	for _, to := range f.results {
		err = errors.Join(err, to.save(o.format(d, d.WriteText, to)))
	}
	return err
}
