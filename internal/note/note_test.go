// SPDX-License-Identifier: Apache-2.0

package note

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestNotesThatNoLongerHoldAreRemoved(t *testing.T) {
	c := NewCollector()
	log := zap.New(c)
	log.Debug("Something small", Note{About: "small", Text: "small"}.Field())
	log.Info("CPU time source selected", zap.String("source", "bpf"))
	assert.Empty(t, c.Notes(), "information without a note")

	log.Info("Power model selected", Note{About: "package", Text: "package is modeled"}.Field())
	log.Warn("Collection degraded", About("GPU usage", "GPU usage: unknown", errors.New("unknown")).Field())
	denied := fmt.Errorf("read: %w", fs.ErrPermission)
	log.Warn("Collection degraded", zap.Error(denied), About("GPU usage", "GPU usage: read", denied).Field())
	log.Warn("Setting has no effect", zap.String("setting", "a"), zap.String("reason", "b"))
	model := Note{About: "package", Text: "package is modeled"}
	setting := Note{About: "Setting has no effect", Text: "Setting has no effect: reason b, setting a"}
	assert.Equal(t, []Note{model, {About: "GPU usage", Text: "GPU usage: read", Permission: true}, setting}, c.Notes())

	log.Info("Collection recovered", Note{About: "GPU usage"}.Field())
	log.Info("Collection recovered", Note{About: "never degraded"}.Field())
	assert.Equal(t, []Note{model, setting}, c.Notes())
}

func TestALogDoesNotPrintNotes(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	zap.New(core).Info("Power model selected", zap.String("zone", "package"), Note{About: "package", Text: "text"}.Field())
	assert.Equal(t, map[string]any{"zone": "package"}, logs.All()[0].ContextMap())
}
