// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// toldUsage is a source that tells of some GPUs, and counts how often it is asked.
type toldUsage struct {
	usage []gpu.Usage
	err   error
	asked int
}

func (u *toldUsage) Read(time.Time, *cpu.Table) ([]gpu.Usage, error) {
	u.asked++
	return u.usage, u.err
}

func (u *toldUsage) Close() error { return nil }

// Without the rule, a receiver without privileges would be degraded on each machine with a graphics chip in its CPU, and look at
// descriptors of which nothing comes.
func TestDRMIsAskedOfGPUsWithAMeterOnly(t *testing.T) {
	told, chip := units.GPU("0000:65:00.0"), units.GPU("0000:03:00.0")
	library := &toldUsage{usage: []gpu.Usage{{Domain: told}}}
	drm := &toldUsage{err: errors.New("denied")}
	g := gpus{Sources: []gpu.Source{library}, drm: drm}
	read := func(domains ...units.Domain) error {
		readings := []power.Reading{{Zone: &power.Zone{Kind: power.Package}}}
		for _, domain := range domains {
			readings = append(readings, power.Reading{Zone: &power.Zone{Kind: power.GPU, Domain: domain}})
		}
		used, err := g.read(time.Time{}, nil, readings)
		assert.Len(t, used, 1)
		return err
	}
	require.NoError(t, read(), "no GPU has a meter")
	require.NoError(t, read(told), "the library tells of the only one")
	assert.Zero(t, drm.asked)
	require.Error(t, read(told, chip))
	require.Error(t, read(told), "it goes on while a card is gone")
	assert.Equal(t, 2, drm.asked)
	assert.Equal(t, 4, library.asked)
}
