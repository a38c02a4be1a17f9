// SPDX-License-Identifier: Apache-2.0

package window

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func TestHiddenProcessesAreExplained(t *testing.T) {
	root := t.TempDir()
	private, host := proc.New(proc.Traits{}), proc.New(proc.Traits{})
	private.Begin(0).See(&proc.Sight{ID: proc.ID{PID: 2}})
	host.Begin(0).See(&proc.Sight{ID: proc.ID{PID: 2}, Flags: proc.Kernel})
	require.ErrorIs(t, whyHidden(root, private), errNamespace)
	require.ErrorIs(t, whyHidden(root, host), errFiltered)
	require.ErrorIs(t, whyHidden(root, &proc.Table{}), errNamespace)

	mount := filepath.Join(root, "proc")
	require.NoError(t, os.Mkdir(mount, 0o700))
	for option, hides := range map[string]bool{"hidepid=0": false, "hidepid=2": true, "hidepid=4": true} {
		if err := unix.Mount("proc", mount, "proc", 0, option); err != nil {
			t.Skipf("not permitted to mount: %v", err)
		}
		err := whyHidden(root, private)
		require.NoError(t, unix.Unmount(mount, 0))
		if hides {
			assert.ErrorContains(t, err, "is mounted with hidepid=", option)
			assert.ErrorContains(t, err, "CAP_SYS_PTRACE", option)
		} else {
			assert.ErrorIs(t, err, errNamespace, option)
		}
	}
}
