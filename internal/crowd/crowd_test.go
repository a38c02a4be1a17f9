//go:build linux

package crowd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestACrowdComesAndGoes(t *testing.T) {
	before := processes(t)
	stop, err := Start(t.TempDir(), 50, 5)
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	require.NoError(t, err)
	assert.GreaterOrEqual(t, processes(t), before+50-10)
	require.NoError(t, stop())
	assert.Less(t, processes(t), before+40)
}

func processes(t *testing.T) int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	if len(dirs) == 0 {
		t.Skipf("no processes below /proc: %v", os.ErrNotExist)
	}
	return len(dirs)
}
