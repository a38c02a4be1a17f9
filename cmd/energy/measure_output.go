// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/profile"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
)

// outputOptions select the outputs and their formats.
type outputOptions struct {
	json, csv, markdown bool
	quiet, verbose      bool
	force               bool
	showOutput, silent  bool     // of the command. silent discards it
	outputs             []string // paths
	html, base          string   // paths
	pprof               string   // path of the energy by function
	profiler            string   // path of the profiler
	rates               report.Rates
}

func (o *outputOptions) outputFlags(f *pflag.FlagSet) {
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also write zones, programs, all notes and a line for each of several runs")
	o.formatFlags(f, "standard error. - is standard output, and the command's output goes to standard error")
	f.BoolVar(&o.quiet, "quiet", false, "write only errors to standard error")
	f.StringVar(&o.base, "base", "", "`file` with an earlier result (JSON or HTML) to compare with, or with an earlier profile for --profile")
	rateFlags(f, &o.rates)
	f.BoolVar(&o.showOutput, "show-output", false, "show on a terminal what the commands of --runs and --vs write; "+
		"=false also discards the output of one run")
	f.StringVar(&o.pprof, "profile", "", "`file` for the energy by function and stack, for pprof, in microjoules")
	f.StringVar(&o.profiler, "profiler", "", "`path` of the collector with the eBPF profiler (default "+
		profile.CollectorName+" next to energy or in PATH; in a checkout also build/profiles/otelcol-energy)")
}

// formatFlags adds the flags of outputs and formats. standard is the output without --output.
func (o *outputOptions) formatFlags(f *pflag.FlagSet, standard string) {
	f.StringArrayVarP(&o.outputs, "output", "o", nil, "`file` to write to instead of "+standard+
		". The extensions .json, .csv, .md and .html select a format. May be repeated")
	f.BoolVar(&o.json, "json", false, "write JSON, except to files with the extension of another format")
	f.BoolVar(&o.csv, "csv", false, "write CSV")
	f.BoolVar(&o.markdown, "markdown", false, "write a Markdown table, for a comment in a pull request")
	f.StringVar(&o.html, "html", "", "`file` for the result as an HTML page")
	forceFlag(f, &o.force)
}

// files are open from before the command is started.
type files struct {
	results     []*output
	pprof       *output // nil if it is not written
	base        *report.Command
	profileBase profile.Base
}

func (f *files) all() []*output { return append(slices.Clone(f.results), f.pprof) }

// discard closes all files, and removes new files that were not saved. f may be nil.
func (f *files) discard() {
	if f != nil {
		for _, o := range f.all() {
			o.discard()
		}
	}
}

// open opens the files before the command is started. After an error it returns the open ones.
func (o *measureOptions) open(ctx context.Context) (f *files, err error) {
	f = &files{}
	if len(o.outputs) == 0 && !o.quiet {
		f.results = []*output{{Writer: patience.NewWriter(ctx, takesWithin, o.Stderr), optional: true}}
	}
	if err := o.openFiles(ctx, f, o.Stdout); err != nil {
		return f, err
	}
	if slices.Contains([]string{o.html, o.pprof}, "-") || slices.Contains(o.outputs, "-") {
		o.Stdout = o.Stderr // the command's own output does not mix with the result
	}
	return f, o.readBase(f)
}

// openFiles opens the outputs. After an error, f has the outputs that are open.
func (o *outputOptions) openFiles(ctx context.Context, f *files, stdout io.Writer) error {
	if err := refuseExisting(o.force, append(slices.Clone(o.outputs), o.html, o.pprof)...); err != nil {
		return err
	}
	open := func(path string) (*output, error) {
		if path != "-" {
			return create(ctx, path)
		}
		return &output{Writer: patience.NewWriter(ctx, takesWithin, stdout)}, nil
	}
	for i, path := range append(slices.Clone(o.outputs), o.html) {
		to, err := open(path)
		switch {
		case err != nil:
			return err
		case to != nil:
			to.isPage = i == len(o.outputs)
			f.results = append(f.results, to)
		}
	}
	var err error
	if f.pprof, err = open(o.pprof); err != nil {
		return err
	}
	return distinct(f.all()...)
}

// readBase reads an earlier result or profile.
func (o *measureOptions) readBase(f *files) error {
	if o.base == "" {
		return nil
	}
	file, err := os.Open(o.base)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	in := bufio.NewReader(file)
	switch start, _ := in.Peek(1); {
	case string(start) == "{", string(start) == "<":
		f.base, err = report.ReadBase(in)
	case o.pprof != "":
		f.profileBase, err = profile.ReadBase(in)
	default:
		err = errors.New("not a result of energy measure --json or --html")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.base, err)
	}
	return nil
}

// create opens a file for writing. It keeps existing content until output.save. It returns nil if
// path is empty.
func create(ctx context.Context, path string) (*output, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a result is no secret
	isNew := err == nil
	if errors.Is(err, fs.ErrExist) {
		file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644) //nolint:gosec // a result is no secret
	}
	if err != nil {
		return nil, err
	}
	return &output{Writer: patience.NewWriter(ctx, takesWithin, file), file: file, isNew: isNew}, nil
}

// distinct returns an error if two outputs have the same file, because the second would replace the
// first.
func distinct(outputs ...*output) error {
	var files []os.FileInfo
	for _, o := range outputs {
		if o == nil || o.file == nil {
			continue
		}
		info, err := o.file.Stat()
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
		case slices.ContainsFunc(files, func(other os.FileInfo) bool { return os.SameFile(info, other) }):
			return fmt.Errorf("two outputs have the same file %s", o.file.Name())
		}
		files = append(files, info)
	}
	return nil
}

// output is a file of results whose writes do not block for long after a signal.
type output struct {
	io.Writer
	file     *os.File // nil if the output must not be closed
	isNew    bool     // create created the file
	isPage   bool     // --html selects the format, not the extension
	optional bool     // a failed write is not an error
}

// save truncates the file, unless it is a standard stream, calls write and closes the file.
func (o *output) save(write func(io.Writer) error) error {
	if o.file == nil {
		return write(o)
	}
	if !isStream(o.file.Name()) {
		_ = o.file.Truncate(0) // fails for a pipe
	}
	err := errors.Join(write(o), o.file.Close())
	o.isNew = o.isNew && err != nil
	return err
}

// saveData saves data.
func (o *output) saveData(data []byte) error {
	return o.save(func(to io.Writer) error { _, err := to.Write(data); return err })
}

// discard closes the file, and removes a new file that was not saved. o may be nil.
func (o *output) discard() {
	if o == nil || o.file == nil {
		return
	}
	_ = o.file.Close() // save may have closed it
	if o.isNew {
		_ = os.Remove(o.file.Name()) // the file is empty, or contains a part of a result
	}
}

// write writes a report to the result files.
func (o *measureOptions) write(f *files, r *report.Report) {
	o.live.clear()
	written := o.quiet && len(f.results) == 0
	for _, to := range f.results {
		text := func(w io.Writer) error {
			if to.optional && o.live == nil {
				fmt.Fprintln(w) // apart from the output of the command
			}
			return r.WriteText(figure.Writer(w))
		}
		written = o.save("result", to, o.format(r, text, to)) || written
	}
	if !written { // the figures would be lost
		_ = r.WriteText(o.messages)
	}
}

// document is a result that can be written in each format except text.
type document interface {
	WriteJSON(w io.Writer) error
	WriteCSV(w io.Writer) error
	WriteMarkdown(w io.Writer) error
	WriteHTML(w io.Writer) error
}

// format returns the function that writes a document in the format of an output. The function is
// text if no other format is selected.
func (o *outputOptions) format(d document, text func(io.Writer) error, to *output) func(io.Writer) error {
	extension := ""
	switch {
	case to.isPage:
		extension = ".html"
	case to.file != nil:
		extension = filepath.Ext(to.file.Name())
	}
	isKnown := slices.Contains([]string{".csv", ".json", ".md", ".html"}, extension)
	switch {
	case extension == ".csv" || o.csv && !isKnown:
		return d.WriteCSV
	case extension == ".json" || o.json && !isKnown:
		return d.WriteJSON
	case extension == ".md" || o.markdown && !isKnown:
		return d.WriteMarkdown
	case extension == ".html":
		return d.WriteHTML
	}
	return text
}

// save writes a file and closes it, if it is open. It reports whether the file is written.
func (o *measureOptions) save(what string, to *output, write func(io.Writer) error) bool {
	if to == nil {
		return false
	}
	err := to.save(write)
	if err != nil {
		o.say("the %s is not written: %v", what, err)
		if !to.optional {
			o.lost = exitFailed
		}
	}
	return err == nil
}
