// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOnlyAMarkedContextHasEnergy(t *testing.T) {
	_, ok := EnergyOf(context.Background())
	assert.False(t, ok)
	energy, ok := EnergyOf(WithEnergy(context.Background(), 0))
	assert.True(t, ok, "a batch without energy may also be marked")
	assert.Zero(t, energy)
	energy, _ = EnergyOf(WithEnergy(context.Background(), 7))
	assert.Equal(t, uint64(7), energy)
}
