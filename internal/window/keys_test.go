// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

func TestWeighingRowsAllocatesNothingInTheSteadyState(t *testing.T) {
	h := hostsim.New(t.TempDir())
	h.Clocks = map[int]int64{0: 3_000_000, 1: 1_000_000, 2: 1_000_000}
	require.NoError(t, h.Render())
	for _, key := range []Key{KeyFrequency, KeyMemory, KeyMemoryCPUTime, KeyCacheMisses, KeyMissesOrMemory} {
		tree := cgroup.New(cgroup.Options{Root: h.Root()})
		k := NewKeys(KeyOptions{Cgroups: tree, Keys: []Key{key}, FrequencyExponent: 1, Open: openOn(h)})
		table, m := newTable(0), &Measurement{ReadAt: h.Now()}
		assert.Zero(t, testing.AllocsPerRun(30, func() {
			m.ReadAt = m.ReadAt.Add(time.Second)
			table.clearRows()
			for i := range int32(3) {
				table.rows = append(table.rows, row{Share: weigh.Share{
					CPU: 5 * units.Second, LastCPU: i, ShortLived: i == 0, Resident: 1 << 20, Held: time.Second,
					Events: proc.Events{9e9, 9e9, 1e6}, Counted: true,
				}})
			}
			k.weigh(&table, m)
			for key, err := range k.Failed() {
				t.Error(key, err)
			}
		}), key)
		assert.NotZero(t, table.rows[2].weights[0], key)
		require.NoError(t, errors.Join(k.Close(), tree.Close()))
	}
}

// openOn opens the keys of a simulated host, whose clock rates are counted.
func openOn(h *hostsim.Host) func(Key, *KeyOptions) (Weigher, error) {
	return func(key Key, o *KeyOptions) (Weigher, error) {
		if key == KeyFrequency {
			return weigh.SimulatedClock(func() map[int]int64 { return h.Clocks }, o.FrequencyExponent)
		}
		return OpenWeigher(key, o)
	}
}

func TestMeasuredEnergyIsThatOfAllMeasuredZonesOfAKindSinceTheOldestReading(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	zone := func(kind power.Kind, source power.Method) *power.Zone { return &power.Zone{Kind: kind, Method: source} }
	first, second := zone(power.Package, power.Measured), zone(power.Package, power.Measured)
	dram, modeled := zone(power.DRAM, power.Measured), zone(power.Package, power.Modeled)
	for name, c := range map[string]struct {
		readings []power.Reading
		total    units.Energy
		at       time.Time
	}{
		"no zone":            {nil, 0, time.Time{}},
		"one modeled":        {[]power.Reading{{Zone: modeled, Total: 5, At: at(3)}}, 0, time.Time{}},
		"one and others":     {[]power.Reading{{Zone: dram, Total: 9, At: at(1)}, {Zone: first, Total: 5, At: at(3)}, {Zone: modeled, Total: 7, At: at(1)}}, 5, at(3)},
		"two":                {[]power.Reading{{Zone: first, Total: 5, At: at(3)}, {Zone: second, Total: 6, At: at(2)}}, 11, at(2)},
		"one was never read": {[]power.Reading{{Zone: first}, {Zone: second, Total: 6, At: at(2)}}, 6, time.Time{}},
	} {
		total, until := measuredEnergy(c.readings, power.Package)
		assert.Equal(t, c.total, total, name)
		assert.Equal(t, c.at, until, name)
	}
}

// calibrated is a Weigher that notes the energy it was given.
type calibrated struct {
	weigh.CPUTime
	total     units.Energy
	zones     int
	trainable bool
	forgotten int
}

func (c *calibrated) Forget() { c.forgotten++ }

func (c *calibrated) Calibrate(total units.Energy, zones int, _ time.Time, trainable bool) {
	c.total, c.zones, c.trainable = total, zones, trainable
}

func TestEachPowerModelIsFittedToItsZoneKind(t *testing.T) {
	models := map[Key]*calibrated{KeyPowerModel: {}, KeyDRAMPowerModel: {}}
	k := NewKeys(KeyOptions{Keys: []Key{KeyDRAMPowerModel, KeyPowerModel}, Open: func(key Key, _ *KeyOptions) (Weigher, error) {
		return models[key], nil
	}})
	table := newTable(0)
	table.clearRows()
	scan := &proc.Table{Counting: proc.Counting{Trainable: true}}
	k.weigh(&table, &Measurement{ReadAt: time.Unix(1, 0), Table: scan, Readings: []power.Reading{
		{Zone: &power.Zone{Kind: power.Package, Method: power.Measured}, Total: 5, At: time.Unix(1, 0)},
		{Zone: &power.Zone{Kind: power.DRAM, Method: power.Measured}, Total: 3, At: time.Unix(1, 0)},
	}})
	assert.Equal(t, calibrated{total: 5, zones: 1, trainable: true, forgotten: 1}, *models[KeyPowerModel])
	assert.Equal(t, calibrated{total: 3, zones: 1, trainable: true, forgotten: 1}, *models[KeyDRAMPowerModel])
}

func TestCacheMissesThatTheMachineDoesNotCountAreNoWeight(t *testing.T) {
	for key, refused := range map[Key]bool{KeyInstructions: false, KeyCacheMisses: true, KeyMissesOrMemory: true, KeyPowerModel: false} {
		o := KeyOptions{Unmissed: errors.New("refills only")}
		if _, err := OpenWeigher(key, &o); refused {
			assert.Equal(t, o.Unmissed, err, key)
		} else {
			assert.NoError(t, err, key)
		}
	}
}

func TestEachModelOfSmartWattsHasItsParameters(t *testing.T) {
	dram := weigh.SmartWattsOptions{BaseClock: 50}
	o := KeyOptions{SmartWatts: map[Key]weigh.SmartWattsOptions{KeyDRAMSmartWatts: dram}}
	for key, want := range map[Key]weigh.SmartWattsOptions{KeySmartWatts: {}, KeyDRAMSmartWatts: dram} {
		w, err := OpenWeigher(key, &o)
		require.NoError(t, err)
		assert.Equal(t, weigh.NewSmartWatts(want), w, key)
	}
}

func TestASampleOfOtherZonesIsDiscarded(t *testing.T) {
	model := &calibrated{}
	k := NewKeys(KeyOptions{Keys: []Key{KeyPowerModel}, Open: func(Key, *KeyOptions) (Weigher, error) { return model, nil }})
	zone := func(id string) power.Reading {
		return power.Reading{Zone: &power.Zone{ID: id, Kind: power.Package, Method: power.Measured}}
	}
	dram := power.Reading{Zone: &power.Zone{Kind: power.DRAM, Method: power.Measured}}
	for i, c := range []struct {
		readings  []power.Reading
		discarded int
	}{
		{[]power.Reading{zone("0")}, 1},
		{[]power.Reading{zone("0"), dram}, 1},
		{[]power.Reading{zone("0"), zone("1")}, 2},
		{[]power.Reading{zone("0"), zone("2")}, 3},
		{[]power.Reading{zone("0")}, 4},
		{[]power.Reading{zone("0")}, 4},
	} {
		table := newTable(0)
		table.clearRows()
		k.weigh(&table, &Measurement{ReadAt: time.Unix(1, 0), Table: &proc.Table{}, Readings: c.readings})
		assert.Equal(t, c.discarded, model.forgotten, "window %d", i)
	}
}

func TestConfiguredCacheMissesCountWhereTheDefaultRuleCountsThem(t *testing.T) {
	for key, ofMemory := range map[Key]bool{KeyDRAMCacheMisses: true, KeyMissesOrMemory: true, KeyCacheMisses: false} {
		k := NewKeys(KeyOptions{Keys: []Key{key}})
		assert.Equal(t, ofMemory, k.OfMemory(), key)
	}
}
