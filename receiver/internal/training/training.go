// SPDX-License-Identifier: Apache-2.0

package training

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/filter"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// Zones are the zones of a ledger with the models of their static power.
type Zones struct {
	Rules   *attribution.Rules
	Kinds   []power.Class  // by their index in the ledger
	Domains []units.Domain // by their index in the ledger
	// Weights are the power models of attribution weights.
	Weights map[window.Key]*ridge.Model
}

// Training saves the trained static power models to the state and restores them.
type Training struct {
	cfg     *config.Config
	logger  *zap.Logger
	Trained Models
	gpus    map[units.Domain][]string // the hardware of GPUs whose models were restored
}

// New returns a training without models.
func New(cfg *config.Config, logger *zap.Logger) *Training {
	return &Training{cfg: cfg, logger: logger}
}

// Models are the trained models of a state.
type Models struct {
	// Hardware is the hardware of Zones.
	Hardware []string
	// Zones has the models of the zones of a kind in a domain, by trainedName, and the power models
	// of attribution weights, by the key of the weight.
	Zones map[string]trainedZone
	// GPUs has the models of GPUs, which are not part of Hardware.
	GPUs map[string]trainedZone
}

// trainedZone is the model of the zones of a kind in a domain.
type trainedZone struct {
	// Rule is the static power model with its settings.
	Rule string
	// Hardware is the hardware of a GPU, and empty for other zones.
	Hardware []string
	static.State
}

// trainedName names the zones of a kind in a domain. Measured zones of the node's CPUs have the
// name of their zone kind.
func trainedName(domain units.Domain, kind power.Class) string {
	name := string(kind.Zone)
	if domain != units.NodeCPUs {
		name = string(domain) + " " + name
	}
	if kind.Method != power.Measured {
		name += " " + string(kind.Method)
	}
	return name
}

// Restore restores the static power models that were trained on this machine, and sets the kind of
// their meters. It has no effect before a meter has returned a zone. RestoreGPUs restores the
// models of GPUs.
func (t *Training) Restore(z Zones, readings []power.Reading) {
	if len(z.Weights) == 0 && !t.cfg.Attribution.Trains(t.cfg.Zones) {
		return
	}
	hardware := hardwareOf(t.cfg.RootPath, readings)
	if hardware == nil {
		return
	}
	if !sameHardware(t.Trained.Hardware, hardware) {
		if t.Trained.Hardware != nil {
			t.logger.Info("Static power is trained again: the hardware, its firmware or the kernel has changed",
				zap.Strings("before", t.Trained.Hardware), zap.Strings("now", hardware))
			for _, model := range z.Weights {
				*model = ridge.Model{}
			}
		}
		t.Trained.Zones = nil
	}
	t.Trained.Hardware = hardware
	for i, kind := range z.Kinds {
		model, ok := z.Rules.Models[i].(*static.Model)
		if !ok || kind.Zone == power.GPU {
			continue
		}
		if t.cfg.Attribution.StaticModelOf(kind.Zone) == config.StaticTrained {
			setMeter(model, readings, kind)
		}
		for domain, name := range z.Domains {
			if zone, ok := t.Trained.Zones[trainedName(name, kind)]; ok && zone.Rule == t.rule(kind.Zone) {
				model.Restore(domain, zone.State)
			}
		}
	}
	for key, model := range z.Weights {
		if stored, ok := t.Trained.Zones[string(key)]; ok {
			model.Restore(stored.Estimator)
		}
	}
}

// setMeter sets the kind of the meter that reads the zones of a kind: prompt energy counters, or
// power sensors. RAPL's psys is neither.
func setMeter(model *static.Model, readings []power.Reading, kind power.Class) {
	zones, prompt := 0, 0
	for _, r := range readings {
		if r.Zone.Kind != kind.Zone || r.Zone.Method != kind.Method {
			continue
		}
		zones++
		if r.Zone.Prompt {
			prompt++
		}
	}
	switch {
	case zones == 0 || kind.Zone == power.PSys || kind.Method != power.Measured:
	case prompt == zones:
		model.TakeShortSamples()
	default:
		model.TakePowerSensors()
	}
}

// Note records the trained models, which are stored later.
func (t *Training) Note(z Zones) {
	t.noteGPUs(z)
	if t.Trained.Hardware == nil {
		return
	}
	zones := map[string]trainedZone{}
	for i, kind := range z.Kinds {
		model, ok := z.Rules.Models[i].(*static.Model)
		if !ok || kind.Zone == power.GPU {
			continue
		}
		for domain, name := range z.Domains {
			if state, ok := model.State(domain); ok {
				zones[trainedName(name, kind)] = trainedZone{Rule: t.rule(kind.Zone), State: state}
			}
		}
	}
	for key, model := range z.Weights {
		if state := model.State(); slices.Max(state) > 0 {
			zones[string(key)] = trainedZone{Rule: string(key), State: static.State{Estimator: state}}
		}
	}
	if len(zones) > 0 { // otherwise no zone could be read
		t.Trained.Zones = zones
	}
}

// rule names the static power model of a zone kind together with the exclusions, because the energy
// of excluded workloads is static.
func (t *Training) rule(kind power.Kind) string {
	c := &t.cfg.Attribution
	rule := string(c.StaticModelOf(kind))
	if c.PresetRules().ControlPlaneExcluded {
		rule += " exclude control plane"
	}
	for _, list := range []struct {
		name    string
		filters []filter.Config
	}{
		{"cgroup", c.Exclude.Cgroup},
		{"namespace", c.Exclude.Namespace},
		{"executable_name", c.Exclude.ExecutableName},
	} {
		for _, f := range list.filters {
			rule += fmt.Sprintf(" exclude %s %q %q", list.name, f.Strict, f.Regex)
		}
	}
	return rule
}

// hardwareOf describes the hardware and software that determine static power, except for GPUs: the
// kind of meter, the zones, the processors, their microcode and the kernel. It omits values that
// cannot be read. It returns nil before a meter has returned a zone.
func hardwareOf(root string, readings []power.Reading) (hardware []string) {
	for _, r := range readings {
		if r.Zone.Kind == power.GPU {
			continue
		}
		if hardware == nil {
			hardware = []string{"source " + string(r.Zone.Method)}
		}
		hardware = append(hardware, zoneLine(&r))
	}
	if hardware == nil {
		return nil
	}
	slices.Sort(hardware[1:])
	return append(hardware, processorsOf(root)...)
}

// zonePrefix is the start of the lines of zones.
const zonePrefix = "zone "

// zoneLine describes a zone and the correction of its power.
func zoneLine(r *power.Reading) string {
	line := zonePrefix + r.Zone.ID + " " + r.Zone.Name
	if c := r.Correction; c.Scales() {
		line += fmt.Sprintf(" factor %d offset %d", c.Factor, c.Offset)
	}
	return line
}

// sameHardware reports whether models that were trained on the hardware before apply to the
// hardware now. Zones may have been added, for example by a driver that is loaded late: a model
// whose kind and domain have more zones than in training starts over.
func sameHardware(before, now []string) bool {
	added := func(line string) bool { return strings.HasPrefix(line, zonePrefix) && !slices.Contains(before, line) }
	return slices.Equal(before, slices.DeleteFunc(slices.Clone(now), added))
}
