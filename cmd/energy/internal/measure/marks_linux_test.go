// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
)

// script is the variable that has this program send marks in place of its tests: phases separated
// by spaces.
const script = "MEASURE_TEST_PHASES"

func TestThisProgramAsACommandThatMarksPhases(t *testing.T) {
	names := os.Getenv(script)
	if names == "" {
		t.Skip("it is run by other tests")
	}
	for name := range strings.FieldsSeq(names) {
		if err := phase.Send(context.Background(), os.Getenv(phase.Variable), name); err != nil {
			t.Fatal(err)
		}
	}
}

// shortDir returns a directory whose path leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "e")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestACommandMarksItsPhases(t *testing.T) {
	o := options(t, machine(t), modeled, "")
	t.Setenv("TMPDIR", shortDir(t))
	t.Setenv(script, "install build install none")
	o.Command, o.Interval = []string{os.Args[0], "-test.run=^TestThisProgramAsACommandThatMarksPhases$"}, time.Minute
	r := measured(t, o)
	require.Zero(t, r.Exit)
	var names []string
	for _, p := range r.Phases {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{phase.None, "install", "build"}, names)
	assert.Len(t, r.Samples, 5)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left, "the socket is removed")
}

func TestMoreMarksThanARunMayHaveAreRefused(t *testing.T) {
	r := &run{begun: maxMarks}
	require.ErrorIs(t, r.begin(t.Context(), "one more"), errMarks)
	assert.NotEmpty(t, r.notes)
}

func TestTheSocketIsTheCommandsAloneUntilItEnds(t *testing.T) {
	dir := shortDir(t)
	t.Setenv("TMPDIR", dir)
	file := filepath.Join(dir, "socket")
	measured(t, options(t, machine(t), nil, `printf "%s %s" "$(stat -c %a "${ENERGY_PHASE_SOCKET%/*}")" "$ENERGY_PHASE_SOCKET" >`+file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	mode, socket, _ := strings.Cut(string(text), " ")
	assert.Equal(t, "700", mode)
	assert.ErrorIs(t, phase.Send(t.Context(), socket, "late"), phase.ErrNobody)
}

func TestAMarkThatWaitsAtTheEndIsRefused(t *testing.T) {
	r := &run{marks: make(chan mark)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, r.take(ctx, "late"), errEnded)
}

func TestACommandRunsWhereNoSocketCanBeMade(t *testing.T) {
	o := options(t, machine(t), nil, "true")
	t.Setenv("TMPDIR", filepath.Join(shortDir(t), "missing"))
	r := measured(t, o)
	assert.True(t, noted(r, "Phases cannot be marked"), r.Notes)
}
