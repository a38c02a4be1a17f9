// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// unread is a source that does not read the CPU times of some processes if err is not nil.
type unread struct {
	cpu.Source
	err error
}

func (u *unread) Traits() cpu.Traits { return cpu.Traits{Unread: u.err} }

func TestProcessesThatTheSourceDoesNotReadAreReportedAsOfNow(t *testing.T) {
	root := t.TempDir()
	source := &unread{}
	n := &Node{CPU: cpu.NewReader(source, cpu.Options{Root: root})}
	identifier := workload.NewIdentifier(root, workload.Wanted{})
	t.Cleanup(func() { assert.NoError(t, identifier.Close()) })
	require.NoError(t, n.Unread(identifier))
	source.err = errors.New("CPU times of user 1")
	require.ErrorIs(t, n.Unread(identifier), source.err)
}
