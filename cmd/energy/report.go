// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/period"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/web"
)

// reportOptions are the flags of the command report.
type reportOptions struct {
	period.Options
	prometheus, month string
	last              time.Duration
	headers           []string
	timeout           time.Duration
	outputOptions     // formats, outputs and rates
}

// subcommand returns the command report.
func (o *reportOptions) subcommand() *cobra.Command {
	o.last = 30 * 24 * time.Hour
	c := &cobra.Command{
		Use: "report [flags]", Short: "report the energy of nodes over a month, from Prometheus",
		Long: `Reports the energy of nodes and of their namespaces, users, jobs and so on over a period, with the
change against the period before. It reads Prometheus, VictoriaMetrics, Mimir, or another database
with the HTTP API of Prometheus.`,
		Example: `  energy report --last 7d                                   the last week, by namespace
  energy report --prometheus https://mimir.example/prometheus --header 'X-Scope-OrgID: team'
  energy report --month 2026-10 --html october.html --grid FRA --price 0.3 --currency EUR
  energy report --by node --match 'k8s_cluster_name="a"' -o nodes.csv`,
		Args: noArguments(o.check),
		RunE: untilDone(o.run),
	}
	flagGroup(c, "What is read", func(f *pflag.FlagSet) {
		f.StringVar(&o.prometheus, "prometheus", "http://127.0.0.1:9090",
			"`URL` of the server, with the path before /api/v1; a user and a password may be part of it")
		f.StringArrayVar(&o.headers, "header", nil,
			"`header` of requests, as 'Name: value', or @FILE with one per line. May be repeated")
		f.Func("last", "`length` of the period until the last full hour, such as 12h, 7d or 4w (default 30d)", o.setLast)
		f.StringVar(&o.month, "month", "", "`month` of the calendar, such as 2026-10, in place of --last")
		f.StringVar(&o.By, "by", "namespace", "`rows`: "+strings.Join(period.Groupings(), ", "))
		f.StringArrayVar(&o.Match, "match", nil,
			"label `matcher` of PromQL for all series, such as 'k8s_cluster_name=\"a\"'. May be repeated")
		f.BoolVar(&o.Rules, "rules", false,
			"read the recording rules in place of the counters, which is faster. They must have run throughout")
		f.DurationVar(&o.timeout, "timeout", 15*time.Minute, "maximum time for all queries")
	})
	flagGroup(c, "Output", func(f *pflag.FlagSet) {
		f.IntVar(&o.Rows, "rows", 20, "`number` of rows. The rows with the largest changes are added")
		f.StringVar(&o.html, "html", "", "`file` for the report as a page")
		f.StringArrayVarP(&o.outputs, "output", "o", nil, "`file` to write to in place of standard output; the "+
			"extensions .json, .csv, .md and .html select a format. May be repeated")
		f.BoolVar(&o.json, "json", false, "write JSON, but to files with the extension of another format")
		f.BoolVar(&o.csv, "csv", false, "write CSV")
		f.BoolVar(&o.markdown, "markdown", false, "write Markdown")
		rateFlags(f, &o.rates)
		forceFlag(f, &o.force)
	})
	return c
}

// setLast sets the length of the period. Days and weeks are units, too.
func (o *reportOptions) setLast(text string) (err error) {
	units := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour, 'h': time.Hour}
	if text == "" || units[text[len(text)-1]] == 0 {
		return errors.New("want a number of hours, days or weeks, such as 12h, 7d or 4w")
	}
	number, err := strconv.Atoi(text[:len(text)-1])
	o.last = time.Duration(number) * units[text[len(text)-1]]
	if err != nil || number < 1 || number > 10000 || o.last > 400*24*time.Hour {
		return errors.New("want a whole number of hours, days or weeks, and at most 400 days")
	}
	return nil
}

// settled is the time after which the samples of a step are expected to be stored.
const settled = 2 * time.Minute

// check sets the period: whole steps that are over.
func (o *reportOptions) check() error { return o.checkAt(time.Now()) }

func (o *reportOptions) checkAt(now time.Time) error {
	o.Step = time.Hour
	if o.last > 93*24*time.Hour {
		o.Step = 24 * time.Hour
	}
	o.To = now.Add(-settled).Truncate(time.Hour)
	o.From = o.To.Add(-o.last)
	if o.month != "" {
		first, err := time.ParseInLocation("2006-01", o.month, now.Location())
		if err != nil {
			return errors.New("--month must be a month such as 2026-10")
		}
		if end := first.AddDate(0, 1, 0); end.Before(now.Add(-settled)) {
			o.To = end
		} else {
			o.To = first.Add(now.Add(-settled).Sub(first).Truncate(time.Hour))
		}
		if o.From = first; !o.From.Before(o.To) {
			return errors.New("--month must have begun more than an hour ago")
		}
	}
	o.From, o.To = o.From.In(now.Location()), o.To.In(now.Location())
	switch {
	case !slices.Contains(period.Groupings(), o.By):
		return errors.New("--by must be one of " + strings.Join(period.Groupings(), ", "))
	case o.Rows < 1 || o.Rows > 1000:
		return errors.New("--rows must be from 1 to 1000")
	case o.timeout <= 0:
		return errors.New("--timeout must be above 0")
	case o.json && o.csv || o.csv && o.markdown || o.markdown && o.json:
		return errors.New("--json, --csv and --markdown exclude each other")
	}
	if err := checkRates(&o.rates); err != nil {
		return err
	}
	o.Rates = o.rates
	return refuseExisting(o.force, append(slices.Clone(o.outputs), o.html)...)
}

// header returns the headers of requests. Headers in files are not in the list of processes.
func (o *reportOptions) header() (http.Header, error) {
	header := http.Header{}
	for _, text := range o.headers {
		lines := []string{text}
		if path, isFile := strings.CutPrefix(text, "@"); isFile {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			lines = strings.Split(string(content), "\n")
		}
		for _, line := range lines {
			name, value, found := strings.Cut(line, ":")
			switch {
			case strings.TrimSpace(line) == "":
			case !found || strings.ContainsAny(strings.TrimSpace(name), " \t"):
				return nil, errors.New("a --header is not of the form 'Name: value'") // it may be a secret
			default:
				header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
			}
		}
	}
	return header, nil
}

// run reads and writes the report.
func (o *reportOptions) run(ctx context.Context) error {
	header, err := o.header()
	if err != nil {
		return err
	}
	server, err := period.NewServer(o.prometheus, header)
	if err != nil {
		return fmt.Errorf("--prometheus: %w", err)
	}
	outputs, err := o.open(ctx)
	defer func() {
		for _, to := range outputs {
			to.discard()
		}
	}()
	if err != nil {
		return err
	}
	late := fmt.Errorf("the queries took longer than --timeout %v", o.timeout)
	limited, stop := context.WithTimeoutCause(ctx, o.timeout, late)
	defer stop()
	if isTerminal(os.Stderr) {
		o.Progress = func(done, all int) { fmt.Fprintf(os.Stderr, "\rReading: %d %%\x1b[K", 100*done/all) }
		defer fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	d, err := period.Read(limited, server, o.Options)
	if err != nil {
		return err
	}
	for _, to := range outputs {
		if err := to.save(o.format(d, to.output, to.isPage)); err != nil {
			return err
		}
	}
	return nil
}

// target is an output. --html selects its format if isPage is set.
type target struct {
	*output
	isPage bool
}

// open opens the outputs. After an error it returns the open ones.
func (o *reportOptions) open(ctx context.Context) (targets []target, err error) {
	var outputs []*output
	paths := o.outputs
	if len(paths) == 0 && o.html == "" {
		paths = []string{"-"}
	}
	for i, path := range append(slices.Clone(paths), o.html) {
		to := &output{Writer: os.Stdout}
		if path != "-" {
			if to, err = create(ctx, path); err != nil {
				return targets, err
			}
		}
		if to != nil {
			outputs, targets = append(outputs, to), append(targets, target{to, i == len(paths)})
		}
	}
	return targets, distinct(outputs...)
}

// format returns the function that writes a report in the format of an output.
func (o *reportOptions) format(d *period.Document, to *output, isPage bool) func(io.Writer) error {
	extension := ""
	if to.file != nil {
		extension = filepath.Ext(to.file.Name())
	}
	isKnown := slices.Contains([]string{".csv", ".json", ".md", ".html"}, extension)
	switch {
	case isPage || extension == ".html":
		return func(w io.Writer) error { return web.WriteReport(w, "report", d) }
	case extension == ".csv" || o.csv && !isKnown:
		return d.WriteCSV
	case extension == ".json" || o.json && !isKnown:
		return d.WriteJSON
	case extension == ".md" || o.markdown && !isKnown:
		return d.WriteMarkdown
	}
	return d.WriteText
}
