// SPDX-License-Identifier: Apache-2.0

// Package table writes tables of figures: as CSV files, and in Markdown between two markers of a
// page.
package table

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// A Table has a cell for each column in each row.
type Table struct {
	Columns []string
	Rows    [][]string
}

// New returns a table without rows.
func New(columns ...string) *Table { return &Table{Columns: columns} }

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Markdown returns the table in Markdown.
func (t *Table) Markdown() string {
	var b strings.Builder
	b.WriteString(Line(t.Columns...) + strings.Repeat("|---", len(t.Columns)) + "|\n")
	for _, cells := range t.Rows {
		b.WriteString(Line(cells...))
	}
	return b.String()
}

// Line returns a row in Markdown.
func Line(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// Read reads a CSV file. Lines that begin with # are comments.
func Read(path string) (*Table, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := csv.NewReader(bytes.NewReader(data))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err == nil && len(rows) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Table{Columns: rows[0], Rows: rows[1:]}, nil
}

// Write writes the table to a CSV file.
func (t *Table) Write(path string) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.WriteAll(append([][]string{t.Columns}, t.Rows...)); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644) //nolint:gosec // a file of the checkout
}

// Update replaces the rows of a CSV file whose first keys cells equal a row of the table. It
// appends the other rows of the table, and keeps the other rows of the file.
func (t *Table) Update(path string, keys int) error {
	all, err := Read(path)
	if err != nil {
		return err
	}
	all.Columns = t.Columns
	for _, row := range t.Rows {
		if i := all.Find(row[:keys]...); i >= 0 {
			all.Rows[i] = row
		} else {
			all.Rows = append(all.Rows, row)
		}
	}
	return all.Write(path)
}

// Find returns the index of the first row that begins with the cells, or -1.
func (t *Table) Find(cells ...string) int {
	return slices.IndexFunc(t.Rows, func(row []string) bool { return slices.Equal(row[:len(cells)], cells) })
}

// Put replaces the text of a page between two markers that name the command, such as "make
// accuracy". The text has an empty line above and below.
func Put(page, command, text string) error {
	content, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+command+" writes what follows -->\n", "<!-- "+command+" wrote "
	before, rest, begins := strings.Cut(string(content), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("%s lacks %q or %q", page, begin, end)
	}
	filled := before + begin + "\n" + text + "\n" + end + after
	return os.WriteFile(page, []byte(filled), 0o644) //nolint:gosec // a page of the checkout
}
