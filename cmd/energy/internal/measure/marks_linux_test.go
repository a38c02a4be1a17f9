// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// script is the variable that has this program send marks in place of its tests: phases separated by spaces.
const script = "MEASURE_TEST_PHASES"

func TestThisProgramAsACommandThatMarksPhases(t *testing.T) {
	names := os.Getenv(script)
	if names == "" {
		t.Skip("it is run by other tests")
	}
	for name := range strings.FieldsSeq(names) {
		if err := phase.Send(context.Background(), os.Getenv(phase.Variable), phase.Mark{Phase: name}); err != nil {
			t.Fatal(err)
		}
	}
}

// runMarked measures this program while it marks phases.
func runMarked(t *testing.T, names string) *Result {
	t.Helper()
	t.Setenv(script, names)
	return runCommand(t, os.Args[0], "-test.run=^TestThisProgramAsACommandThatMarksPhases$")
}

func runCommand(t *testing.T, args ...string) *Result {
	t.Helper()
	t.Setenv("TMPDIR", shortDir(t))
	cfg := energyreceiver.DefaultConfig()
	cfg.Meters.Use = nil
	cfg.Model = configoptional.Some(energyreceiver.ModelConfig{Points: []energyreceiver.ModelPoint{{Power: 40}, {Utilization: 1, Power: 120}}})
	r, err := Run(t.Context(), Options{Command: args, Config: cfg, Interval: time.Minute})
	require.NoError(t, err)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left, "the socket is removed")
	assertSamplesAddUp(t, r)
	return r
}

// shortDir returns a directory whose path leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "e")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func phaseNames(r *Result) (names []string) {
	for _, p := range r.Phases {
		names = append(names, p.Name)
	}
	return names
}

func TestACommandMarksItsPhases(t *testing.T) {
	r := runMarked(t, "install build install none")
	require.Zero(t, r.Exit)
	assert.Equal(t, []string{phase.None, "install", "build"}, phaseNames(r))
	assert.Len(t, r.Samples, 5)
}

func TestWithoutMarksARunHasNoPhases(t *testing.T) {
	assert.Empty(t, runCommand(t, "true").Phases)
}

func TestAPhaseThatNeverEndsLastsUntilTheEnd(t *testing.T) {
	r := runMarked(t, "build")
	require.Len(t, r.Phases, 2)
	assert.Equal(t, "build", r.Phases[1].Name)
	assert.Positive(t, r.Phases[1].Wall)
}

func TestMoreMarksThanARunMayHaveAreRefused(t *testing.T) {
	r := &run{begun: maxMarks}
	require.ErrorIs(t, r.begin(t.Context(), "one more"), errMarks)
	assert.NotEmpty(t, r.notes)
}

// A process that the command leaves behind marks a phase after the end: that fails there and changes nothing here.
func TestMarksAfterTheEndFindNoSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "socket")
	r := runCommand(t, "sh", "-c", `printf %s "$ENERGY_PHASE_SOCKET" >`+path)
	require.Zero(t, r.Exit)
	socket, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotEmpty(t, socket)
	assert.ErrorIs(t, phase.Send(t.Context(), string(socket), phase.Mark{Phase: "late"}), phase.ErrNobody)
}

func TestAMarkThatWaitsAtTheEndIsRefused(t *testing.T) {
	r := &run{marks: make(chan mark)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, r.take(ctx, phase.Mark{Phase: "late"}), errEnded)
}

func TestACommandRunsWhereNoSocketCanBeMade(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(shortDir(t), "missing"))
	cfg := energyreceiver.DefaultConfig()
	r, err := Run(t.Context(), Options{Command: []string{"true"}, Config: cfg, Interval: time.Minute})
	require.NoError(t, err)
	assert.Contains(t, strings.Join(r.Notes, "\n"), "Phases cannot be marked")
}

func TestTheSocketIsTheCommandsAlone(t *testing.T) {
	if _, err := exec.LookPath("stat"); err != nil {
		t.Skip("no stat(1)")
	}
	path := filepath.Join(shortDir(t), "mode")
	runCommand(t, "sh", "-c", `stat -c %a "$(dirname "$ENERGY_PHASE_SOCKET")" >`+path)
	mode, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "700\n", string(mode))
}
