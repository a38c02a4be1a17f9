// SPDX-License-Identifier: Apache-2.0

// Package note attaches remarks on the quality of figures to log lines, and collects them.
package note

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Pages is the URL of the pages for users, which messages name.
const Pages = "https://github.com/energyreceiver/energyreceiver/blob/main/docs/"

// Note is a remark on the quality of figures: a degraded state, a rejected preference, or the basis
// of a power model.
type Note struct {
	// About is the subject. A later note about the same subject replaces this one.
	About string
	// Text is one line. An empty text removes the note before.
	Text string
	// Permission is set if a permission is missing.
	Permission bool
}

// About returns a note about a subject with the cause err.
func About(subject, text string, err error) Note {
	return Note{About: subject, Text: text, Permission: errors.Is(err, fs.ErrPermission)}
}

// Field returns a field that attaches the note to a log line. Logs do not print it.
func (n Note) Field() zap.Field { return zap.Field{Type: zapcore.SkipType, Interface: n} }

// Collector is a log that keeps the notes of its lines, and warnings without a note. Its methods may
// be called concurrently.
type Collector struct {
	zapcore.LevelEnabler

	mu    sync.Mutex
	notes []Note // in the order of their first mention
}

// NewCollector returns a collector without notes.
func NewCollector() *Collector { return &Collector{LevelEnabler: zapcore.InfoLevel} }

// Notes returns the notes, ordered by their first mention.
func (c *Collector) Notes() []Note {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.notes)
}

// With implements [zapcore.Core].
func (c *Collector) With([]zapcore.Field) zapcore.Core { return c }

// Sync implements [zapcore.Core].
func (c *Collector) Sync() error { return nil }

// Check implements [zapcore.Core].
func (c *Collector) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements [zapcore.Core].
func (c *Collector) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if n, ok := f.Interface.(Note); ok {
			c.set(n)
			return nil
		}
	}
	if e.Level >= zapcore.WarnLevel {
		c.set(Note{About: e.Message, Text: e.Message + listed(fields)})
	}
	return nil
}

func (c *Collector) set(n Note) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.notes, func(old Note) bool { return old.About == n.About })
	switch {
	case n.Text == "" && at >= 0:
		c.notes = slices.Delete(c.notes, at, at+1)
	case n.Text == "":
	case at >= 0:
		c.notes[at] = n
	default:
		c.notes = append(c.notes, n)
	}
}

// listed returns the fields of a log line as text.
func listed(fields []zapcore.Field) string {
	encoder := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(encoder)
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(encoder.Fields)) {
		parts = append(parts, fmt.Sprintf("%s %v", key, encoder.Fields[key]))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
