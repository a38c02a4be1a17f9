// SPDX-License-Identifier: Apache-2.0

// Package notes keeps of what the receiver logs what says how good its figures are.
package notes

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

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// Notes is a log of which only that is kept what says how good the figures are: warnings, what was
// taken because something better was rejected, and what a model is made from. A condition is
// forgotten when it has ended.
//
// Its methods may be called concurrently.
type Notes struct {
	zapcore.LevelEnabler

	mu    sync.Mutex
	lines []noted // in the order of their first mention
	// denied reports whether a permission was missing.
	denied bool
}

// noted is a line about one thing. A later line about the same thing replaces it.
type noted struct {
	about any // a comparable value
	text  string
}

// New returns notes without a line.
func New() *Notes { return &Notes{LevelEnabler: zapcore.InfoLevel} }

// With returns n: the receiver adds no fields.
func (n *Notes) With([]zapcore.Field) zapcore.Core { return n }

// Sync does nothing.
func (n *Notes) Sync() error { return nil }

// Check implements [zapcore.Core].
func (n *Notes) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if n.Enabled(e.Level) {
		return c.AddCore(e, n)
	}
	return c
}

// Write implements [zapcore.Core].
func (n *Notes) Write(e zapcore.Entry, fields []zapcore.Field) error {
	encoder := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(encoder)
	}
	said := encoder.Fields
	n.mu.Lock()
	defer n.mu.Unlock()
	n.denied = n.denied || slices.ContainsFunc(fields, isDenied)
	warned := e.Level >= zapcore.WarnLevel
	switch condition := said["condition"]; {
	case condition != nil && warned:
		n.set(condition, fmt.Sprintf("%v: %v", condition, said["error"]))
	case condition != nil:
		n.lines = slices.DeleteFunc(n.lines, func(l noted) bool { return l.about == condition })
	case said["basis"] != nil:
		n.set(said["zone"], fmt.Sprintf("%v is modeled from %v; expected error %v", said["zone"], said["basis"], said["expected_error"]))
	case said["rejected"] != nil:
		// Of several errors the first says what is missing.
		rejected, _, _ := strings.Cut(fmt.Sprint(said["rejected"]), "; ")
		delete(said, "rejected")
		n.set(e.Message, fmt.Sprintf("%s%s; rejected: %s (docs/permissions.md)", e.Message, listed(said), rejected))
	case warned, said["gpus"] != nil: // GPUs that are not read
		n.set(e.Message, e.Message+listed(said))
	}
	return nil
}

// isDenied reports whether a field is the error of a missing permission.
func isDenied(f zapcore.Field) bool {
	err, ok := f.Interface.(error)
	return ok && errors.Is(err, fs.ErrPermission)
}

// Set notes a text about something, a comparable value. It replaces an earlier text about the same.
func (n *Notes) Set(about any, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set(about, text)
}

// Denied reports whether a permission was missing.
func (n *Notes) Denied() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.denied
}

func (n *Notes) set(about any, text string) {
	for i := range n.lines {
		if n.lines[i].about == about {
			n.lines[i].text = text
			return
		}
	}
	n.lines = append(n.lines, noted{about, text})
}

// listed returns the fields of a log line.
func listed(fields map[string]any) string {
	if len(fields) == 0 {
		return ""
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, fmt.Sprintf("%s %v", key, fields[key]))
	}
	return ": " + strings.Join(parts, ", ")
}

// Logger returns a logger that adds to the notes.
func (n *Notes) Logger() *zap.Logger { return zap.New(n) }

// Lines returns the notes, each on one line and without control characters.
func (n *Notes) Lines() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := make([]string, len(n.lines))
	for i, l := range n.lines {
		lines[i] = figure.Line(l.text)
	}
	return lines
}

// String returns a line for each note, without the last newline.
func (n *Notes) String() string { return strings.Join(n.Lines(), "\n") }
