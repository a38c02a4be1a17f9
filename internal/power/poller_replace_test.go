// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// rechosen reads its zone by a counter, and from the third poll on by powers.
type rechosen struct {
	polls int
	zones [2]power.Zone
}

func (r *rechosen) Poll(context.Context) ([]power.Value, error) {
	r.polls++
	if r.polls < 3 {
		return []power.Value{power.EnergyValue(&r.zones[0], units.Energy(r.polls)*100*units.Joule, time.Now())}, nil
	}
	return []power.Value{power.PowerValue(&r.zones[1], 20e6, 0, time.Now())}, nil
}

func (*rechosen) Close() error { return nil }

func TestAZoneThatIsReadInAnotherWayTakesThePlaceOfTheOneWithItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &rechosen{}
		for i := range s.zones {
			s.zones[i] = power.Zone{ID: "redfish:1", Kind: power.Platform, MaxWatts: power.MaxPlatformWatts}
		}
		p := power.NewPoller(s, power.PollOptions{Name: "redfish", Every: 10 * time.Second})
		defer func() { require.NoError(t, p.Close()) }()
		read := func() power.Reading {
			synctest.Wait()
			readings, err := p.Read(t.Context(), power.Sample{})
			require.NoError(t, err)
			require.Len(t, readings, 1)
			assert.NoError(t, readings[0].Err)
			return readings[0]
		}
		_, err := p.Read(t.Context(), power.Sample{})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		assert.Equal(t, 100*units.Joule, read().Total)
		time.Sleep(20 * time.Second)
		last := read()
		assert.Same(t, &s.zones[1], last.Zone)
		assert.Equal(t, 200*units.Joule, last.Total)
	})
}
