// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// hang blocks each read of the energy counter while there is a file, until the test ends.
func hang(t *testing.T, file string) {
	t.Helper()
	ended := make(chan struct{})
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if _, missing := os.Stat(file); strings.HasSuffix(path, "/energy_uj") && missing == nil {
			<-ended
		}
		return got, err
	})
	t.Cleanup(func() { restore(); close(ended) })
}

func TestAReadThatHangsDoesNotKeepTheResultFromBeingReported(t *testing.T) {
	root := machine(t)
	file := filepath.Join(root, "hang")
	o := options(t, root, allActive, "touch "+file+"; exit 3")
	hang(t, file)
	began := time.Now()
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 20*time.Second)
	assert.Equal(t, 3, r.Exit)
	assert.Less(t, r.Wall, 30*time.Second, "the command did not hang")
	assertSamplesAddUp(t, r)
	assert.True(t, noted(r, "Not measured at the end: the receiver hangs"), r.Notes)
}

func TestASignalEndsTheWaitForAReadThatHangsBeforeTheCommand(t *testing.T) {
	root := machine(t)
	started := filepath.Join(root, "started")
	o := options(t, root, nil, "touch "+started)
	hang(t, root)
	interrupted := errors.New("interrupted")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(interrupted)
	_, err := Run(ctx, o)
	require.ErrorIs(t, err, interrupted)
	assert.NoFileExists(t, started)
}
