// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func TestNamesOfManyNewProcessesAreLookedUpBeforeTheyAreRead(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}()
	id := NewIdentifier("/", Wanted{})
	defer func() { assert.NoError(t, id.Close()) }()
	f := id.files.Job()
	if !f.cached.NeverWaits() {
		t.Skip("lacks openat2(2) with RESOLVE_CACHED for procfs, Linux 5.16")
	}
	lookUp := func(n int) error {
		id.LookUp(func(yield func(*proc.Process) bool) {
			for slot := range n {
				p := &proc.Process{Slot: int32(slot), Sight: proc.Sight{ID: proc.ID{PID: int32(cmd.Process.Pid)}, Cgroups: 1}}
				if !yield(p) {
					return
				}
			}
		})
		_, err := f.cached.LinkOf(int32(cmd.Process.Pid), "exe", make([]byte, maxText))
		return err
	}
	require.Error(t, lookUp(63), "few are not worth it")
	require.NoError(t, lookUp(64))
}
