// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func named(id string, names *identity.Names) func(*identity.Owner) {
	return func(o *identity.Owner) { o.Container, o.Names = identity.Container{ID: id}, names }
}

// containers returns the names of the containers whose accounts are emitted.
func (b *bench) containers() map[string]*identity.Names {
	all := map[string]*identity.Names{}
	for a := range b.e.Ledger().Accounts {
		if a.Entity == identity.ContainerEntity && !a.Other {
			all[a.Owner.Container.ID] = a.Owner.Names
		}
	}
	return all
}

func TestAnAccountThatAwaitsNamesIsLeftOutAndLosesNothing(t *testing.T) {
	b := newBench(t, Config{})
	names := &identity.Names{Pending: true}
	id := b.open(1, named("c", names))
	b.collect(map[attribution.Claimant]int{id: 3})
	assert.Empty(t, b.containers())
	b.deliver()
	names.Container, names.Pending = "web", false
	b.collect(map[attribution.Claimant]int{id: 4})
	assert.Same(t, names, b.containers()["c"])
	assert.Equal(t, 7*units.Joule, b.energy(identity.ContainerEntity, "c"))
}

func TestASeriesThatGoesOnKeepsItsNames(t *testing.T) {
	b := newBench(t, Config{})
	names := &identity.Names{Pending: true}
	id := b.open(1, named("c", names))
	b.collect(map[attribution.Claimant]int{id: 3})
	b.e.Close(id)
	without := b.containers()["c"]
	require.Equal(t, &identity.Names{}, without, "it ended, and is emitted as far as it is known")
	b.e.Emitted()
	b.e.Outcome(Refused)
	names.Container, names.Pending = "web", false
	b.open(2, named("c", names))
	require.Equal(t, []string{"c"}, b.live(identity.ContainerEntity))
	assert.Same(t, without, b.containers()["c"])
}
