// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/regular"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// File reads carbon intensities in g/kWh from a file: one number, or periods as CSV or JSON.
//
// A number holds from the time at which the file was written. CSV has a header with the columns from,
// until, value and estimated, of which from and value are required; lines that begin with # are
// comments. JSON is an array of objects with the same members. Times are in RFC 3339 format. A period
// without until ends when the next period begins.
type File struct {
	// Path is the path of the file. It is read again when it changes.
	Path string `mapstructure:"path"`

	_ struct{} // keyed literals only
}

const (
	fileInterval = 10 * time.Second
	// settled is the minimum age of a file's last modification before the file counts as read: its
	// timestamp may be coarse, and its writer may not have finished.
	settled = 2 * time.Second
)

// forever is the end of a number's period.
var forever = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	errUnequal = errors.New("the file changes while it is read")
	errUntil   = errors.New("the last period has no until")
	errFormat  = errors.New("the file is neither a number nor CSV nor JSON")
)

// Validate checks the settings.
func (c *File) Validate() error { return notEmpty("path", c.Path) }

// Open implements Settings. Periods have no maximum age: the intensity after the last one is unknown.
func (c *File) Open(o *Opening) (*Source, error) {
	return &Source{Provider: &file{path: c.Path, maxAge: o.MaxAge}, Options: signal.Options{MaxBackoff: localBackoff}}, nil
}

type file struct {
	path   string
	maxAge time.Duration // of a number; 0 means unlimited
	seen   os.FileInfo   // of the last good reading; nil if the file may have changed since
}

// Ask implements signal.Provider.
func (f *file) Ask(context.Context) (signal.Answer, error) {
	now := time.Now()
	answer := signal.Answer{Next: now.Add(fileInterval)}
	before, err := os.Stat(f.path)
	if err == nil && f.seen != nil && unchanged(f.seen, before) {
		answer.Unchanged = true
		return answer, nil
	}
	f.seen = nil
	if err != nil {
		return answer, err
	}
	text, err := regular.Read(f.path, fetch.MaxAnswer)
	if err != nil {
		return answer, err
	}
	if after, err := os.Stat(f.path); err != nil || !unchanged(before, after) {
		return answer, fmt.Errorf("%s: %w", f.path, errUnequal)
	}
	if answer.Periods, err = f.parse(text, before.ModTime(), now); err != nil {
		return answer, fmt.Errorf("%s: %w", f.path, err)
	}
	if now.Sub(before.ModTime()) >= settled {
		f.seen = before
	}
	return answer, nil
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// Close implements signal.Provider.
func (*file) Close() {}

// parse returns the periods of a file that was written at a time.
func (f *file) parse(text []byte, written, now time.Time) ([]signal.Period, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff"))) // spreadsheets write a byte order mark
	if len(text) == 0 {
		return nil, errFormat
	}
	if value, err := fetch.NumberText(text); err == nil && text[0] != '"' {
		rate, err := signal.Parse(value, signal.GramsPerKWh)
		if written.After(now) { // by another clock
			written = now
		}
		until := forever
		if f.maxAge > 0 {
			until = written.Add(f.maxAge)
		}
		return []signal.Period{{From: written, Until: until, Rate: rate}}, err
	}
	parseEntries := entriesOfCSV
	if text[0] == '[' {
		parseEntries = entriesOfJSON
	}
	entries, err := parseEntries(text)
	if err != nil {
		return nil, err
	}
	periods := make([]signal.Period, len(entries))
	for i := range entries {
		if periods[i], err = entries[i].period(); err != nil {
			return nil, fmt.Errorf("%s: %w", entries[i].position, err)
		}
		if i > 0 && periods[i-1].Until.IsZero() {
			periods[i-1].Until = periods[i].From
		}
	}
	if n := len(periods); n > 0 && periods[n-1].Until.IsZero() {
		return nil, errUntil
	}
	return periods, nil
}

// entry is a period as written in a file.
type entry struct {
	From      string          `json:"from"`
	Until     string          `json:"until"`
	Value     json.RawMessage `json:"value"`
	Estimated bool            `json:"estimated"`

	position string // for errors
}

// period returns the period of an entry. Until is the zero time if the entry has no until.
func (e *entry) period() (p signal.Period, err error) {
	p.Estimated = e.Estimated
	if p.From, err = parseTime(e.From); err != nil {
		return p, errors.New("from: must be a time such as 2026-01-02T15:00:00+01:00")
	}
	if e.Until != "" {
		if p.Until, err = parseTime(e.Until); err != nil {
			return p, errors.New("until: must be a time such as 2026-01-02T16:00:00+01:00")
		}
	}
	if p.Rate, err = rate(e.Value, signal.GramsPerKWh); err != nil {
		return p, fmt.Errorf("value: %w", err)
	}
	return p, nil
}

// entriesOfJSON reads an array of objects.
func entriesOfJSON(text []byte) (entries []entry, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&entries); err != nil {
		return nil, fmt.Errorf("%w: %.200s", errFormat, err.Error())
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errFormat
	}
	for i := range entries {
		entries[i].position = fmt.Sprintf("period %d", i)
	}
	return entries, nil
}

// entriesOfCSV reads a table with a header.
func entriesOfCSV(text []byte) (entries []entry, err error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment = '#'
	r.TrimLeadingSpace = true
	header, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	for {
		fields, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			return entries, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %.200s", errFormat, err.Error())
		case len(entries) == signal.MaxPeriods:
			return nil, signal.ErrMany
		}
		values := map[string]string{}
		for i, column := range header {
			values[column] = strings.TrimSpace(fields[i])
		}
		line, _ := r.FieldPos(0)
		e := entry{From: values["from"], Until: values["until"], Value: json.RawMessage(values["value"]), position: fmt.Sprintf("line %d", line)}
		if e.Estimated, err = strconv.ParseBool(cmp.Or(values["estimated"], "false")); err != nil {
			return nil, fmt.Errorf("%s: estimated: must be true or false", e.position)
		}
		entries = append(entries, e)
	}
}

// readHeader reads the names of the columns.
func readHeader(r *csv.Reader) ([]string, error) {
	header, err := r.Read()
	if err != nil {
		return nil, errFormat
	}
	for i, name := range header {
		name = strings.ToLower(strings.TrimSpace(name))
		if columns := []string{"from", "until", "value", "estimated"}; slices.Contains(header[:i], name) || !slices.Contains(columns, name) {
			return nil, fmt.Errorf("%w: column %.32q is not one of %s, or occurs twice", errFormat, name, strings.Join(columns, ", "))
		}
		header[i] = name
	}
	for _, name := range []string{"from", "value"} {
		if !slices.Contains(header, name) {
			return nil, fmt.Errorf("%w: there is no column %q", errFormat, name)
		}
	}
	return header, nil
}
