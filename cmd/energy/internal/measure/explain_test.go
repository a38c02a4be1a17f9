// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// explained returns a run of ten seconds with a package.
func explained(static Static) *run {
	return &run{
		Options: &Options{Baseline: 10 * time.Second},
		meter:   &meter{},
		result:  &Result{Wall: 10 * time.Second, Zones: []Zone{{Name: "package", Source: "measured", Static: static}}},
	}
}

func TestTheBaselineSaysHowMuchTooLowTheFiguresAre(t *testing.T) {
	for want, before := range map[string]float64{
		"": 0.001,
		"Other programs ran during the baseline, and their power counts as static: joules are about 10% too low": 0.05,
		"The CPUs were as busy during the baseline as during the command: joules are too low, and meaningless":   0.5,
	} {
		r := explained(StaticBaseline)
		r.baseline = &Baseline{watts: map[power.Class]float64{packages: 12}, utilization: before}
		r.busy = 0.5 * r.result.Wall.Seconds()
		r.explainBaseline()
		assert.Regexp(t, `^The static power was measured in the 10s before: package 12\.0 W, .* \(50\.0% during the command\)$`, r.notes[0])
		assert.Equal(t, want, strings.Join(r.result.Warnings, ""))
	}
}

func TestWhatIsMissingIsNoted(t *testing.T) {
	for name, c := range map[string]struct {
		static  Static
		missing time.Duration
		set     func(r *run)
		want    []string
	}{
		"a baseline that is too short": {static: StaticConfiguration, set: func(r *run) { r.baseline = &Baseline{unknown: []power.Class{packages}} },
			want: []string{"The baseline of 10s is too short for the meter of package"}},
		"late energy": {static: StaticConfiguration, missing: 2500 * time.Millisecond, set: func(r *run) {
			r.late = map[power.Class]time.Time{packages: {}, platform: {}}
			r.meter.notes = []energyreceiver.Note{{Text: "denied", Permission: true}}
		}, want: []string{
			"The meter of platform has not answered, so its energy is missing",
			"The meter of package has not reported the energy of the last 2.500 s, so the figures lack it",
			"Only root may read the energy counters since Linux 5.10: run energy with sudo, or permit it to read them",
		}},
		"static power that is not trained yet": {static: StaticTraining, set: func(*run) {}, want: []string{
			"The static power of package is not trained yet, so energy is split by utilization or by a first estimate: the joules may be far off",
		}},
		"static power that is not known": {static: StaticUnknown, set: func(*run) {}, want: []string{
			"The static power of package is not available, so energy is split by utilization: the joules depend on what else runs. --baseline 10s measures it",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := explained(c.static)
			r.result.Zones[0].Missing = c.missing
			c.set(r)
			r.explainZones()
			r.explainBaseline()
			assert.Equal(t, c.want, r.result.Warnings)
		})
	}
}

func TestStaticPowerIsTrainedOnceItsModelIs(t *testing.T) {
	cfg := energyreceiver.NewFactory().CreateDefaultConfig().(*energyreceiver.Config)
	cfg.Attribution.Preset = energyreceiver.PresetKepler
	kind := power.Class{Zone: power.Package, Method: power.Measured}
	baseline := map[power.Class]float64{kind: 12}
	static := func(measured map[power.Class]float64, trained bool) Static {
		m := &meter{state: state{trained: map[power.Class]bool{kind: trained}}, meterOptions: meterOptions{cfg: cfg, static: measured}}
		return m.staticOf(kind)
	}
	assert.Equal(t, StaticUnknown, static(nil, false))
	assert.Equal(t, StaticBaseline, static(baseline, false))
	cfg.Attribution.StaticPower = map[power.Kind]energyreceiver.StaticPowerConfig{energyreceiver.AllZones: {Model: energyreceiver.StaticTrained}}
	assert.Equal(t, StaticTraining, static(baseline, false), "the baseline does not replace the model")
	assert.Equal(t, StaticTrained, static(baseline, true))
}
