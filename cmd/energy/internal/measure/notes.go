// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// notes are what the reader of the figures should know, each once, in the order in which they came up. They may be added to from several
// goroutines.
type notes struct {
	mu         sync.Mutex
	texts      []string
	permission bool // a permission is missing
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(n.texts, text) {
		n.texts = append(n.texts, text)
	}
}

// all returns the notes so far.
func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.texts)
}

// lacksPermission reports whether a permission is missing.
func (n *notes) lacksPermission() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.permission
}

// logger returns a logger whose warnings are notes.
func (n *notes) logger() *zap.Logger { return zap.New(noteCore{n}) }

// noteCore is a zapcore.Core that makes notes of what the receiver has to say.
type noteCore struct{ notes *notes }

// Enabled implements zapcore.Core.
func (noteCore) Enabled(l zapcore.Level) bool { return l >= zapcore.InfoLevel }

// With implements zapcore.Core. The receiver's loggers have no fields of their own.
func (c noteCore) With([]zapcore.Field) zapcore.Core { return c }

// Sync implements zapcore.Core.
func (noteCore) Sync() error { return nil }

// Check implements zapcore.Core.
func (c noteCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c noteCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	var cause error
	for _, f := range fields {
		f.AddTo(values)
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			cause = err
		}
	}
	switch {
	case e.Message == "Power model selected":
		c.notes.add("%v is modeled, not measured; the expected error of its power is %v", values.Fields["zone"], values.Fields["expected_error"])
	case e.Level < zapcore.WarnLevel:
	case cause != nil:
		if errors.Is(cause, fs.ErrPermission) {
			c.notes.mu.Lock()
			c.notes.permission = true
			c.notes.mu.Unlock()
		}
		if condition, ok := values.Fields["condition"]; ok {
			c.notes.add("%v: %v", condition, cause)
			return nil
		}
		c.notes.add("%s: %v", e.Message, cause)
	default:
		c.notes.add("%s", e.Message)
	}
	return nil
}
