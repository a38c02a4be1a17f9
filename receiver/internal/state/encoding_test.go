// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func TestTheConditionsOfAnAccountAreStored(t *testing.T) {
	for _, want := range []attribution.AccountState{{Other: true}, {Group: true}, {Live: true}, {Reported: true}} {
		want.Entity, want.Start, want.Owner.Process.Executable = units.ProgramEntity, time.Unix(1, 0).UTC(), "sh"
		written := pack.NewWriter(nil)
		packAccount(written, &want)
		var got attribution.AccountState
		packAccount(pack.NewReader(written.Bytes()), &got)
		got.Start = got.Start.UTC()
		assert.Empty(t, got.Amounts)
		got.Amounts = nil
		assert.Equal(t, want, got)
	}
}
