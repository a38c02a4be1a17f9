// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
)

func TestPhaseSendsMarksToTheSocketOfTheEnvironmentOrTheFlag(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "e")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var got []string
	var refuse error
	socket := filepath.Join(dir, "s")
	server, err := phase.Listen(socket, func(_ context.Context, name string) error {
		got = append(got, name)
		return refuse
	})
	require.NoError(t, err)
	defer server.Close()
	t.Setenv(phase.Variable, filepath.Join(dir, "nothing"))
	require.NoError(t, mark([]string{"--socket", socket, "begin", "unit tests"}))
	t.Setenv(phase.Variable, socket)
	require.NoError(t, mark([]string{"end"}))
	require.NoError(t, mark([]string{"--optional", "begin", "two", "words"}))
	assert.Equal(t, []string{"unit tests", phase.None, "two words"}, got)
	refuse = errors.New("too many")
	assert.EqualError(t, mark([]string{"--optional", "begin", "b"}), socket+": too many")
	assert.ErrorContains(t, mark([]string{"start", "b"}), `expected "begin NAME" or "end"`)
}

func TestPhaseSaysWhereNothingMeasures(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	t.Setenv(phase.Variable, socket)
	err := mark([]string{"begin", "a"})
	require.ErrorIs(t, err, phase.ErrNobody)
	assert.ErrorContains(t, err, socket)
	assert.NoError(t, mark([]string{"--optional", "begin", "a"}))
	t.Setenv(phase.Variable, "")
	assert.ErrorContains(t, mark([]string{"begin", "a"}), "$ENERGY_PHASE_SOCKET is not set")
	assert.NoError(t, mark([]string{"--optional", "begin", "a"}))
}

// mark runs energy phase, and returns its error.
func mark(args []string) error {
	c := phaseCommand()
	if err := parseArgs(c, args); err != nil {
		return err
	}
	var ended exitError
	if errors.As(c.RunE(c, nil), &ended) {
		return ended.err
	}
	return nil
}
