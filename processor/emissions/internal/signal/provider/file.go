// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bytes"
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
// A number holds from when the file was written. CSV has a header with the columns from, until,
// value and estimated, of which from and value are required; lines that begin with # are comments.
// JSON is an array of objects with the same members. Times are in RFC 3339 format. A period without
// until ends where the next period begins.
type File struct {
	FileOptions
	seen os.FileInfo // of the last good reading; nil if the file may have changed since
}

// FileOptions are a file and how it is read.
type FileOptions struct {
	Path  string
	Every time.Duration // from one look at the file to the next
	// MaxAge is how long a number holds after the file was written. 0 means for ever.
	MaxAge time.Duration
}

// NewFile returns the provider of a file, which need not be there yet.
func NewFile(o FileOptions) *File { return &File{FileOptions: o} }

// settled is the minimum age of a file's last modification before the file counts as read: its
// timestamp may be coarse, and its writer may not have finished.
const settled = 2 * time.Second

// forever is the end of a number's period.
var forever = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	errUnequal = errors.New("the file changes while it is read")
	errUntil   = errors.New("the last period has no until")
	errRow     = errors.New("the file is neither a number nor CSV nor JSON")
)

// Ask implements signal.Provider.
func (f *File) Ask(context.Context) (signal.Answer, error) {
	now := time.Now()
	answer := signal.Answer{Next: now.Add(f.Every)}
	before, err := os.Stat(f.Path)
	if err != nil {
		f.seen = nil
		return answer, err
	}
	if f.seen != nil && unchanged(f.seen, before) {
		answer.Unchanged = true
		return answer, nil
	}
	f.seen = nil
	text, err := f.read(before)
	if err != nil {
		return answer, err
	}
	if answer.Periods, err = f.parse(text, before.ModTime(), now); err != nil {
		return answer, fmt.Errorf("%s: %w", f.Path, err)
	}
	if now.Sub(before.ModTime()) >= settled {
		f.seen = before
	}
	return answer, nil
}

// read returns the content of the file.
func (f *File) read(before os.FileInfo) ([]byte, error) {
	text, err := regular.Read(f.Path, fetch.MaxAnswer)
	switch {
	case errors.Is(err, regular.ErrNotRegular):
		return nil, fmt.Errorf("%s: %w", f.Path, regular.ErrNotRegular)
	case errors.Is(err, regular.ErrTooLarge):
		return nil, fmt.Errorf("%s: %w", f.Path, errors.New("the file is larger than 4 MiB"))
	case err != nil:
		return nil, err
	}
	if after, err := os.Stat(f.Path); err != nil || !unchanged(before, after) {
		return nil, fmt.Errorf("%s: %w", f.Path, errUnequal)
	}
	return text, nil
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// Close has nothing to do.
func (f *File) Close() error { return nil }

// parse returns the periods of a file that was written at a time.
func (f *File) parse(text []byte, written, now time.Time) ([]signal.Period, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff"))) // a byte order mark, as spreadsheets write it
	if len(text) == 0 {
		return nil, errRow
	}
	if value, err := fetch.NumberText(text); err == nil && text[0] != '"' {
		rate, err := signal.Parse(value, signal.GramsPerKWh)
		if err != nil {
			return nil, err
		}
		if written.After(now) { // by another clock
			written = now
		}
		until := forever
		if f.MaxAge > 0 {
			until = written.Add(f.MaxAge)
		}
		return []signal.Period{{From: written, Until: until, Rate: rate}}, nil
	}
	read := rowsOfCSV
	if text[0] == '[' {
		read = rowsOfJSON
	}
	rows, err := read(text)
	if err != nil {
		return nil, err
	}
	return periodsOf(rows)
}

// row is a period as written in a file. name is its position, for errors.
type row struct {
	name               string
	from, until, value string
	estimated          bool
}

func periodsOf(rows []row) ([]signal.Period, error) {
	periods := make([]signal.Period, len(rows))
	for i, r := range rows {
		p, err := r.period()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		periods[i] = p
		if i > 0 && periods[i-1].Until.IsZero() {
			periods[i-1].Until = p.From
		}
	}
	if n := len(periods); n > 0 && periods[n-1].Until.IsZero() {
		return nil, errUntil
	}
	return periods, nil
}

// period returns the period of a row, without Until where it has none.
func (r *row) period() (p signal.Period, err error) {
	p.Estimated = r.estimated
	if p.From, err = parseTime(r.from); err != nil {
		return p, errors.New("from: must be a time such as 2026-01-02T15:00:00+01:00")
	}
	if r.until != "" {
		if p.Until, err = parseTime(r.until); err != nil {
			return p, errors.New("until: must be a time such as 2026-01-02T16:00:00+01:00")
		}
	}
	if p.Rate, err = signal.Parse(r.value, signal.GramsPerKWh); err != nil {
		return p, fmt.Errorf("value: %w", err)
	}
	return p, nil
}

// rowsOfJSON reads an array of objects.
func rowsOfJSON(text []byte) ([]row, error) {
	var list []struct {
		From      string          `json:"from"`
		Until     string          `json:"until"`
		Value     json.RawMessage `json:"value"`
		Estimated bool            `json:"estimated"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("%w: %.200s", errRow, err.Error())
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errRow
	}
	rows := make([]row, len(list))
	for i, p := range list {
		value, err := fetch.NumberText(p.Value)
		if err != nil {
			return nil, fmt.Errorf("period %d: value: %w", i, err)
		}
		rows[i] = row{fmt.Sprintf("period %d", i), p.From, p.Until, value, p.Estimated}
	}
	return rows, nil
}

var columns = []string{"from", "until", "value", "estimated"}

// rowsOfCSV reads a table with a header.
func rowsOfCSV(text []byte) ([]row, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment = '#'
	r.TrimLeadingSpace = true
	index, err := indexOf(r)
	if err != nil {
		return nil, err
	}
	var rows []row
	for {
		fields, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %.200s", errRow, err.Error())
		case len(rows) == signal.MaxPeriods:
			return nil, signal.ErrMany
		}
		line, _ := r.FieldPos(0)
		row, err := rowOf(fields, index)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		row.name = fmt.Sprintf("line %d", line)
		rows = append(rows, row)
	}
}

// rowOf returns the row of a line, whose columns have an index.
func rowOf(fields []string, index map[string]int) (row, error) {
	get := func(name string) string {
		if i, ok := index[name]; ok {
			return strings.TrimSpace(fields[i])
		}
		return ""
	}
	r := row{from: get("from"), until: get("until"), value: get("value")}
	if text := get("estimated"); text != "" {
		estimated, err := strconv.ParseBool(text)
		if err != nil {
			return r, errors.New("estimated: must be true or false")
		}
		r.estimated = estimated
	}
	return r, nil
}

// indexOf reads the header and returns which columns there are.
func indexOf(r *csv.Reader) (map[string]int, error) {
	header, err := r.Read()
	if err != nil {
		return nil, errRow
	}
	index := map[string]int{}
	for i, name := range header {
		name = strings.ToLower(strings.TrimSpace(name))
		if _, again := index[name]; again || !slices.Contains(columns, name) {
			return nil, fmt.Errorf("%w: column %.32q is not one of %s, or is there twice", errRow, name, strings.Join(columns, ", "))
		}
		index[name] = i
	}
	for _, name := range []string{"from", "value"} {
		if _, ok := index[name]; !ok {
			return nil, fmt.Errorf("%w: there is no column %q", errRow, name)
		}
	}
	return index, nil
}
