// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/notes"
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// explained returns a run of ten seconds with a package.
func explained(static Static) *run {
	return &run{
		Options: &Options{Baseline: 10 * time.Second}, notes: notes.New(),
		result: &Result{Wall: 10 * time.Second, Zones: []Zone{{Name: "package", Source: "measured", Static: static}}},
	}
}

func TestTheBaselineTellsHowMuchTooLowTheFiguresAre(t *testing.T) {
	for want, c := range map[string]struct{ before, during float64 }{
		"(50.0% during the command)":       {0.001, 0.5},
		"joules are about 10% too low":     {0.05, 0.5},
		"joules are too low, and mean not": {0.5, 0.5},
	} {
		r := explained(StaticBaseline)
		r.baseline = &Baseline{watts: map[power.Class]float64{packages: 12}, utilization: c.before}
		r.busy = c.during * r.result.Wall.Seconds()
		r.explainBaseline()
		assert.Len(t, r.notes.Lines(), 1)
		assert.Contains(t, r.notes.Lines()[0], "Static power is that of the 10s before: package 12.0 W")
		assert.Contains(t, r.notes.Lines()[0], want)
	}
}

func TestAMeterThatToldNothingInTheBaselineIsNoted(t *testing.T) {
	r := explained(StaticUnknown)
	r.baseline = &Baseline{unknown: []power.Class{packages}}
	r.explainBaseline()
	assert.Equal(t, []string{"The baseline of 10s is too short for the meter of package"}, r.notes.Lines())
}

func TestWhatIsMissingIsNoted(t *testing.T) {
	r := explained(StaticConfiguration)
	r.result.Zones[0].Missing = 2500 * time.Millisecond
	r.late = map[power.Class]time.Time{packages: {}, platform: {}}
	r.notes.Logger().Warn("Collection degraded", zap.String("condition", "energy sensor"), zap.Error(fs.ErrPermission))
	r.explainZones()
	assert.Equal(t, []string{
		"energy sensor: permission denied",
		"Only root may read the energy counters since Linux 5.10: run energy with sudo, or permit it to read them",
		"The meter of package has not reported the energy of the last 2.500 s, so the figures lack it",
		"The meter of platform has not answered: what was used of it is not known",
	}, r.notes.Lines())
}

func TestAStaticPowerThatIsNotLearnedYetIsNoted(t *testing.T) {
	r := explained(StaticLearning)
	r.explainZones()
	assert.Equal(t, []string{
		"The static power of package is not learned yet, so energy is split by utilization or by a first estimate: the joules may be far off",
	}, r.notes.Lines())
}

func TestStaticPowerIsLearnedOnceItsModelIsTrained(t *testing.T) {
	cfg := energyreceiver.NewFactory().CreateDefaultConfig().(*energyreceiver.Config)
	cfg.Attribution.Preset = energyreceiver.PresetKepler
	kind := power.Class{Zone: power.Package, Method: power.Measured}
	baseline := map[power.Class]float64{kind: 12}
	assert.Equal(t, StaticUnknown, staticOf(cfg, nil, kind, false))
	assert.Equal(t, StaticBaseline, staticOf(cfg, baseline, kind, false))
	cfg.Attribution.StaticPower = map[power.Kind]energyreceiver.StaticPowerConfig{energyreceiver.AllZones: {Model: energyreceiver.StaticTrained}}
	assert.Equal(t, StaticLearning, staticOf(cfg, baseline, kind, false), "the baseline does not replace the model")
	assert.Equal(t, StaticLearned, staticOf(cfg, baseline, kind, true))
}
