// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// Note is a remark on a setting: a warning, or a default rule that is or is not in effect.
type Note struct {
	// Warning is the message of a warning, and empty for a default rule.
	Warning string
	Setting string
	// Value is the value of a default rule.
	Value string
	// Reason is the reason why the setting has no effect, or why the default rule is not in effect.
	Reason string
	// Alternative is a better value of the setting.
	Alternative string
}

// String returns the setting with its value, and the reason if the default rule is not in effect.
func (n *Note) String() string {
	switch {
	case n.Reason == "":
		return n.Setting + ": " + n.Value
	case n.Value == "":
		return n.Setting + ": " + n.Reason
	default:
		return fmt.Sprintf("%s: %s (%s)", n.Setting, n.Value, n.Reason)
	}
}

// Messages of warnings.
const (
	noEffect   = "Setting has no effect"
	insecure   = "Exclusion by executable name is not secure: any user can give a program an excluded name"
	splitAgain = "The hypervisor reports active energy, and the static power model utilization divides it again: most of it becomes idle"
)

// noter collects the notes on a configuration.
type noter struct {
	*config.Config
	rules   *Rules
	machine *Machine
	notes   []Note
}

// notesOf returns the notes on the settings and the default rules.
func notesOf(r *Rules, m *Machine) []Note {
	n := &noter{Config: r.cfg, rules: r, machine: m}
	n.noteMeters()
	n.noteAttribution()
	n.noteMetrics()
	n.noteZones()
	if len(n.Attribution.Exclude.ExecutableName) > 0 {
		n.notes = append(n.notes, Note{Warning: insecure, Setting: "attribution::exclude::executable_name"})
	}
	byUtilization := func(kind power.Kind) bool { return n.Attribution.StaticModelOf(kind) == config.StaticUtilization }
	if n.Meters.AreReported() && slices.ContainsFunc(n.Zones, byUtilization) {
		n.notes = append(n.notes, Note{Warning: splitAgain, Setting: "attribution::static_power", Alternative: "{model: fixed, power: 0}"})
	}
	if n.Attribution.Preset == "" {
		n.noteDefaults()
	}
	return n.notes
}

// effect adds a warning if a setting is changed from its default and has no effect.
func (n *noter) effect(isSet, works bool, setting, reason string) {
	if isSet && !works {
		n.notes = append(n.notes, Note{Warning: noEffect, Setting: setting, Reason: reason})
	}
}

// noteMeters checks the settings of meters and of series.
func (n *noter) noteMeters() {
	p, gpus, defaults := &n.Series.Processes, &n.Meters.GPU, config.Default()
	for _, meter := range n.Meters.Unused() {
		n.effect(true, false, "meters::"+meter, "meters::use has no "+meter)
	}
	n.effect(gpus.PollInterval != defaults.Meters.GPU.PollInterval, len(gpus.Extensions) > 0, "meters::gpu::poll_interval", "meters::gpu::extensions is empty")
	hasOwn, reason := p.GroupBy != config.GroupByProgram, "series::processes::group_by is program"
	n.effect(p.Max != defaults.Series.Processes.Max, hasOwn, "series::processes::max", reason)
	n.effect(p.MinEnergy != defaults.Series.Processes.MinEnergy, hasOwn, "series::processes::min_energy", reason)
}

// noteAttribution checks the settings of attribution that do not depend on a zone kind.
func (n *noter) noteAttribution() {
	a, m, cores := &n.Attribution, n.machine, n.rules.hasCores()
	n.effect(n.Window > 0 && n.Window < cpu.TickWindow, !m.Inexact, "window", fmt.Sprintf(
		"/proc counts the CPU time of the node in ticks of 10 ms, so windows of %v are attributed as windows of %v", n.Window, cpu.TickWindow))
	n.effect(a.Scope == config.ScopeZone || errors.Is(m.Undivided, divide.ErrTooManyDomains), m.Undivided == nil, "attribution::scope", text(m.Undivided))
	discounts := a.SMTWeight > 0 && a.SMTWeight < 1
	n.effect(discounts && cores, m.Unshared == nil, "attribution::smt_weight", text(m.Unshared))
	n.effect(discounts, cores, "attribution::smt_weight", "no zone of cores has the weight cpu_time or frequency")
	isSmartWatts := func(kind power.Kind) bool { return a.WeightOf(kind) == config.WeightSmartWatts }
	n.effect(a.SmartWatts != config.Default().Attribution.SmartWatts,
		slices.ContainsFunc(n.Zones, isSmartWatts), "attribution::smartwatts", "no zone has the weight of the preset smartwatts")
	n.effect(a.Interrupts == config.InterruptsUnattributed, m.Untimed == nil, "attribution::interrupts", text(m.Untimed))
}

// noteMetrics checks metrics that are missing under some rules.
func (n *noter) noteMetrics() {
	on := &n.Metrics
	isUncertain := slices.ContainsFunc(n.Zones, func(kind power.Kind) bool {
		model := n.Attribution.StaticModelOf(kind)
		return model.IsTrained() && model != config.StaticMinimum
	})
	for _, of := range []struct {
		entity  string
		enabled bool
	}{
		{"system", on.SystemPowerUncertainty.Enabled}, {"process", on.ProcessPowerUncertainty.Enabled},
		{"container", on.ContainerPowerUncertainty.Enabled}, {"k8s.pod", on.K8sPodPowerUncertainty.Enabled}, {"vm", on.VMPowerUncertainty.Enabled},
	} {
		n.effect(of.enabled, isUncertain, "metrics::"+of.entity+".power.uncertainty", "no zone has the static power model trained, base, resting or regression")
	}
}

// noteZones checks the settings of attribution for each zone kind.
func (n *noter) noteZones() {
	const reason = "the zone is not among zones"
	for _, kind := range power.Kinds {
		_, static := n.Attribution.StaticPower[kind]
		_, weight := n.Attribution.Weight[kind]
		attributed := slices.Contains(n.Zones, kind)
		n.effect(static, attributed || mayStandIn(n.Config, kind), "attribution::static_power::"+string(kind), reason)
		n.effect(weight, attributed, "attribution::weight::"+string(kind), reason)
	}
}

var (
	errNoDRAM  = errors.New("no meter reads a zone of memory")
	errShort   = errors.New("collection_interval is not longer")
	errUnsaved = errors.New("not set: static power is trained again after each start")
)

// noteDefaults notes each default rule that the settings do not override.
func (n *noter) noteDefaults() {
	a, m, preset := &n.Attribution, n.machine, n.Attribution.PresetRules()
	rule := func(applies bool, setting, value string, lacks error) {
		if applies {
			n.notes = append(n.notes, Note{Setting: setting, Value: value, Reason: text(lacks)})
		}
	}
	var short error
	if n.rules.Window == 0 {
		short = errShort
	}
	untrained := n.untrained()
	rule(n.Window == 0, "window", preset.Window.String(), short)
	rule(a.Scope == "", "attribution::scope", string(preset.Scope), m.Undivided)
	rule(a.StaticPower[config.AllZones].Model == "", "attribution::static_power", string(preset.Static), untrained)
	rule(n.rules.Clocks, "attribution::weight", string(preset.Weight), m.Unclocked)
	rule(a.SMTWeight == 0 && n.rules.hasCores(), "attribution::smt_weight", fmt.Sprint(preset.SMT), m.Unshared)
	rule(a.Interrupts == "", "attribution::interrupts", string(preset.Interrupts), m.Untimed)
	rule(slices.Contains(n.Zones, power.DRAM) && a.SetWeight(power.DRAM) == "", "attribution::weight::dram", string(config.WeightCacheMisses), n.uncountedDRAM())
	rule(a.Trains(n.Zones) && n.Storage == "" && untrained == nil, "storage", "", errUnsaved)
}

// uncountedDRAM returns the reason if the energy of memory is not attributed by cache misses.
func (n *noter) uncountedDRAM() error {
	if !slices.ContainsFunc(n.machine.Zones, func(zone power.Class) bool { return zone.Zone == power.DRAM }) {
		return errNoDRAM
	}
	if lacks := n.machine.lacks(n.Attribution.WeightOf(power.DRAM)); lacks != nil {
		return fmt.Errorf("%s is used instead: %w", n.rules.Weight(power.DRAM), lacks)
	}
	return nil
}

// untrained returns the reason why no static power is trained: the meter states the static power of
// all zones of CPUs and memory. It returns nil if static power may be trained.
func (n *noter) untrained() (reason error) {
	for _, zone := range n.machine.Zones {
		switch {
		case zone.Zone == power.GPU:
		case !n.Attribution.KnowsStaticPower(zone.Zone):
			return nil
		case zone.Method == power.Modeled:
			reason = errors.New("energy is modeled, and the model defines the idle power")
		case zone.Method == power.Reported:
			reason = errors.New("the hypervisor reports active energy, so no idle energy is subtracted")
		default:
			return nil
		}
	}
	return reason
}

// text returns the text of an error, or "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
