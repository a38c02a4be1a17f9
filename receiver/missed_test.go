// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// missingNode is a node of 4 W at rest where scans show seven processes.
func missingNode(t *testing.T, preset config.Preset) *testNode {
	n := newTestNode(t, func(c *Config) {
		c.Zones, c.Window = []power.Kind{power.Package}, c.CollectionInterval
		rest := 4.0
		static := config.StaticPowerConfig{Model: config.StaticFixed, Power: &rest}
		c.Attribution = config.AttributionConfig{Preset: preset, StaticPower: map[power.Kind]config.StaticPowerConfig{power.Package: static}}
	})
	n.host.LastPID = 7
	for pid := 2; pid <= 7; pid++ {
		n.process(pid, "app")
	}
	n.start()
	return n
}

// miss runs the node for ten seconds with 20 J of active energy, in which the visible processes use 710 ms of CPU time,
// and born short-lived processes whose parent discards their times use ticks of 10 ms.
func (n *testNode) miss(born int, ticks int64) {
	n.host.LastPID += born
	n.runUnseen(ticks)
	n.run(60*joule, map[int]int64{1: 10, 2: 8, 3: 7, 4: 6, 5: 20, 6: 9, 7: 11})
}

func TestTimeOfShortLivedProcessesThatNothingShowsIsUnattributed(t *testing.T) {
	for name, c := range map[string]struct {
		preset              config.Preset
		born                int
		ticks               int64
		first, unattributed float64 // J
	}{
		"short-lived processes":          {"", 10, 29, 2, 5.8},
		"Kepler's formula":               {config.PresetKepler, 10, 29, 20 * 10. / 71, 0},
		"Scaphandre's formula":           {config.PresetScaphandre, 10, 29, 20 * 10. / 71, 0},
		"no process was born":            {"", 0, 29, 20 * 10. / 71, 0},
		"within the noise of ticks":      {"", 10, 10, 20 * 10. / 71, 0},
		"the counter is behind the scan": {"", 10, -20, 20 * 10. / 71, 0},
	} {
		n := missingNode(t, c.preset)
		n.miss(c.born, c.ticks)
		state := []string{"energy.state=active"}
		if n.idleRule() == config.IdleNone {
			state = nil
		}
		assert.InDelta(t, c.first, n.sum("process.energy", attrs{"process.pid": "1"}, state...), 1e-5, name)
		assert.InDelta(t, c.unattributed, n.sum("system.unattributed.energy", nil, state...), 1e-6, name)
		assert.InDelta(t, 20, n.sum("system.energy", nil, "energy.state=active"), 1e-6, name)
	}
}

func TestNoiseOfTicksThatIsTakenBackIsNotUnattributed(t *testing.T) {
	n := missingNode(t, "")
	n.miss(10, -25) // a scan shows time that the node's counter does not show yet
	for range 5 {
		n.miss(10, 25)
		n.miss(10, -25)
	}
	assert.Zero(t, n.sum("system.unattributed.energy", nil))
}
