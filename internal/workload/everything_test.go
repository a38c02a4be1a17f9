// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func TestEverythingIsInOneContainerAndNothingIsRead(t *testing.T) {
	id := NewIdentifier("/nowhere", Wanted{CommandLine: true, ProcessCgroup: true, Unit: true, Everything: "build"})
	defer func() { assert.NoError(t, id.Close()) }()
	in := identity.Workload{Container: identity.Container{ID: "build"}}
	p := &proc.Process{Sight: proc.Sight{ID: proc.ID{PID: 7}, Comm: proc.Comm{'c', 'c'}}}
	id.Identify(p, 0)
	got, changed := id.Identity(0)
	assert.True(t, changed)
	assert.Equal(t, Identity{Executable: "cc", Placement: Placement{Workload: in}}, *got)
	id.Identify(p, 1)
	_, changed = id.Identity(0)
	assert.False(t, changed)
	p.Comm = proc.Comm{'l', 'd'}
	id.Identify(p, 2)
	got, changed = id.Identity(0)
	assert.True(t, changed, "it executes another program")
	assert.Equal(t, "ld", got.Executable)
	assert.Equal(t, Placement{Workload: in}, id.PlaceShortLived("/command"))
	assert.NoError(t, id.Outside(time.Now()))
}
