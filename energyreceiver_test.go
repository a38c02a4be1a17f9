// SPDX-License-Identifier: Apache-2.0

package energyreceiver_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver"
)

func TestTheRootPackageProvidesTheReceiver(t *testing.T) {
	f := energyreceiver.NewFactory()
	assert.Equal(t, "energy", f.Type().String())
	assert.NotNil(t, f.CreateDefaultConfig())
}
