// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// DefaultRule is a rule that applies because the configuration does not override it.
type DefaultRule struct {
	Setting, Value string
	// Lacks is the reason why the setting is not in effect, nil if it is.
	Lacks error
}

// String returns the setting with its value, and the reason if it is not in effect.
func (r *DefaultRule) String() string {
	switch {
	case r.Lacks == nil:
		return r.Setting + ": " + r.Value
	case r.Value == "":
		return fmt.Sprintf("%s: %v", r.Setting, r.Lacks)
	default:
		return fmt.Sprintf("%s: %s (%v)", r.Setting, r.Value, r.Lacks)
	}
}

var (
	errShort   = errors.New("collection_interval is not longer")
	errNoIRQ   = errors.New("the kernel does not measure the time of interrupts: the irq column of /proc/stat is 0")
	errNoDRAM  = errors.New("no meter reads a zone of memory")
	errUnsaved = errors.New("not set: static power is trained again after each start")
)

// DefaultRules returns the rules of the preset that the configuration does not override. The
// readings are those after the first window, and attributed are the zone kinds whose energy is
// attributed.
func (c *Config) DefaultRules(readings []power.Reading, attributed []power.Kind) (rules []DefaultRule) {
	a, selected := &c.Attribution, presets[c.Attribution.Preset]
	add := func(applies bool, setting, value string, lacks error) {
		if applies {
			rules = append(rules, DefaultRule{setting, value, lacks})
		}
	}
	var short error
	if c.WindowLength() == 0 {
		short = errShort
	}
	untrained := a.untrained(readings, attributed)
	add(c.Window == 0, "window", selected.window.String(), short)
	add(a.Scope == "", "attribution::scope", string(selected.scope), a.Machine.Undivided)
	add(a.StaticPower[AllZones].Model == "", "attribution::static_power", string(selected.static), untrained)
	add(c.UsesClocks(), "attribution::weight", string(selected.weight), a.Machine.Unclocked)
	add(a.SMTWeight == 0 && slices.ContainsFunc(c.Zones, a.wouldWeighCores), "attribution::smt_weight",
		fmt.Sprint(selected.smt), a.Machine.Unshared)
	add(a.Interrupts == "", "attribution::interrupts", string(selected.interrupts), countsNoInterrupts(c.RootPath))
	add(slices.Contains(c.Zones, power.DRAM) && a.presetHasWeight(power.DRAM, selected.dram), "attribution::weight::dram",
		string(selected.dram), withoutDRAM(readings))
	add(a.Trains(c.Zones) && c.Storage == "" && untrained == nil, "storage", "", errUnsaved)
	return rules
}

// untrained returns the reason why no static power is trained: the static power of all zones of
// CPUs and memory is known. It returns nil if static power may be trained.
func (c *AttributionConfig) untrained(readings []power.Reading, attributed []power.Kind) (reason error) {
	for i := range readings {
		switch zone := readings[i].Zone; {
		case zone.Kind == power.GPU || !slices.Contains(attributed, zone.Kind):
		case !c.KnowsStaticPower(zone.Kind):
			return nil
		case zone.Method == power.Modeled:
			reason = errors.New("energy is modeled, and the model states the power at rest")
		case zone.Method == power.Reported:
			reason = errors.New("the hypervisor reports active energy, so nothing is taken off")
		default:
			return nil
		}
	}
	return reason
}

// wouldWeighCores reports whether the SMT weight applies to a zone kind if threads share a core.
func (c *AttributionConfig) wouldWeighCores(kind power.Kind) bool {
	shared := *c
	shared.Machine.Unshared = nil
	return shared.WeighsCores(kind)
}

// withoutDRAM returns errNoDRAM if no meter reads a zone of memory.
func withoutDRAM(readings []power.Reading) error {
	if slices.ContainsFunc(readings, func(r power.Reading) bool { return r.Zone.Kind == power.DRAM }) {
		return nil
	}
	return errNoDRAM
}
