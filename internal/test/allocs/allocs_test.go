// SPDX-License-Identifier: Apache-2.0

package allocs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
)

func TestOccasionalAllocationsAreCounted(t *testing.T) {
	i, kept := 0, []byte(nil)
	assert.GreaterOrEqual(t, allocs.Count(1000, func() {
		if i++; i%100 == 0 {
			kept = make([]byte, 100)
		}
	}), uint64(10))
	assert.Len(t, kept, 100)
}
