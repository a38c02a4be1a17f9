// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh/calibrated"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// Machine describes which rules a machine supports. Each error is the reason why the machine does
// not support a rule, or nil. The zero Machine supports all rules.
type Machine struct {
	Undivided error // the node's CPUs are not divided by package
	Unclocked error // the clock rate over an interval cannot be measured
	Uncounted error // hardware events of each process cannot be counted
	Unmissed  error // cache misses of each process cannot be counted
	NoDRAM    error // the machine has no sensor of memory
	Unshared  error // no two threads share a core
	Untimed   error // the kernel does not measure the time of interrupts
	Inexact   bool  // the CPU time source counts in ticks
	// Zones are the zones whose energy is attributed. Only notes on default rules depend on them.
	Zones []power.Class
}

// Rules are the rules in effect.
type Rules struct {
	Scope      config.Scope
	Idle       config.IdleRule
	Interrupts config.InterruptRule
	// SMTWeight is the weight of CPU time while the other thread of the core is busy.
	SMTWeight float64
	// WeighsCores reports whether SMTWeight is below 1 and applies to any zone.
	WeighsCores bool
	// MissedUnattributed reports whether the energy of short-lived processes that only the node's
	// counter shows is unattributed.
	MissedUnattributed bool
	// Window is the length of the windows, 0 for one window per collection.
	Window time.Duration
	// Kinds are the kinds that the ledger may have.
	Kinds []power.Class
	// Keys are the attribution weights other than plain CPU time, in the order of the engine's weights.
	Keys []window.Key
	// Clocks reports whether the preset selects a weight that requires clock rates. IsCounted
	// reports whether a weight of any zone requires hardware events of each process.
	Clocks, IsCounted bool

	cfg     *config.Config
	weights map[power.Kind]config.Weight
}

// Resolve returns the rules in effect for a valid configuration, and notes on its settings. With
// the zero Machine, the result contains all rules whose support by the machine must be examined.
func Resolve(cfg *config.Config, m Machine) (Rules, []Note) {
	a, preset := &cfg.Attribution, cfg.Attribution.PresetRules()
	r := Rules{
		Scope:              cmp.Or(a.Scope, preset.Scope),
		Idle:               cmp.Or(a.Idle, preset.Idle),
		Interrupts:         cmp.Or(a.Interrupts, preset.Interrupts),
		SMTWeight:          cmp.Or(a.SMTWeight, preset.SMT),
		MissedUnattributed: preset.MissedUnattributed,
		Window:             cfg.WindowLength(),
		Kinds:              kindsOf(cfg),
		cfg:                cfg,
		weights:            map[power.Kind]config.Weight{},
	}
	if m.Unshared != nil {
		r.SMTWeight = cmp.Or(a.SMTWeight, 1)
	}
	for _, kind := range power.Kinds {
		r.resolveWeight(kind, &m)
	}
	r.Keys = config.Keys(cfg.Zones, r.Weight, r.SMTWeight)
	r.WeighsCores = r.SMTWeight < 1 && r.hasCores()
	r.IsCounted = slices.ContainsFunc(cfg.Zones, func(kind power.Kind) bool { return r.Weight(kind).IsCounted() })
	return r, notesOf(&r, &m)
}

// resolveWeight selects the attribution weight of a zone kind. A weight of the preset that the
// machine cannot measure is replaced by CPU time, or by memory and CPU time. A weight of the
// settings stays.
func (r *Rules) resolveWeight(kind power.Kind, m *Machine) {
	a := &r.cfg.Attribution
	w := a.WeightOf(kind)
	r.weights[kind] = w
	if a.SetWeight(kind) != "" {
		return
	}
	switch {
	case m.lacks(w) == nil:
	case w == config.WeightMissesOrMemory:
		r.weights[kind] = config.WeightMemoryCPUTime
	default:
		r.weights[kind] = config.WeightCPUTime
	}
	r.Clocks = r.Clocks || w.Exponent() > 0 && slices.Contains(r.cfg.Zones, kind)
}

// lacks returns the reason if the machine does not measure a weight.
func (m *Machine) lacks(w config.Weight) error {
	switch {
	case w.Exponent() > 0:
		return m.Unclocked
	case w == config.WeightMissesOrMemory:
		return cmp.Or(m.Uncounted, m.Unmissed, m.NoDRAM)
	case w.CountsMisses():
		return cmp.Or(m.Uncounted, m.Unmissed)
	case w.IsCounted():
		return m.Uncounted
	}
	return nil
}

// SetCounted returns a configured weight that requires hardware events, or "".
func (r *Rules) SetCounted() config.Weight {
	for _, kind := range r.cfg.Zones {
		if w := r.cfg.Attribution.SetWeight(kind); w.IsCounted() {
			return w
		}
	}
	return ""
}

// Weight returns the attribution weight of a zone kind.
func (r *Rules) Weight(kind power.Kind) config.Weight { return r.weights[kind] }

// hasCores reports whether smt_weight applies to the weight of any zone.
func (r *Rules) hasCores() bool {
	return slices.ContainsFunc(r.cfg.Zones, func(kind power.Kind) bool { return r.Weight(kind).WeighsCores(kind) })
}

// KeyOptions returns the options of window.NewKeys.
func (r *Rules) KeyOptions(cgroups *cgroup.Tree) window.KeyOptions {
	o := window.KeyOptions{Cgroups: cgroups, Keys: r.Keys, FrequencyExponent: 1}
	for _, kind := range r.cfg.Zones { // Validate allows one exponent
		o.FrequencyExponent = max(o.FrequencyExponent, r.Weight(kind).Exponent())
	}
	o.SmartWatts = smartWatts(&r.cfg.Attribution.SmartWatts)
	return o
}

// smartWatts returns the parameters of the SmartWatts models of packages and DRAM.
func smartWatts(c *config.SmartWattsConfig) map[window.Key]weigh.SmartWattsOptions {
	packages := weigh.SmartWattsOptions{BaseClock: c.BaseClock, Options: calibrated.Options{
		Fewest: c.MinSamples, History: c.HistoryWindow, Threshold: c.CPUErrorThreshold, MaxStatic: c.TDP,
	}}
	dram := packages
	dram.Threshold = c.DRAMErrorThreshold
	return map[window.Key]weigh.SmartWattsOptions{window.KeySmartWatts: packages, window.KeyDRAMSmartWatts: dram}
}

// Attribution returns the rules of a Sharer, with new static power models.
func (r *Rules) Attribution() (rules attribution.Rules) {
	rules.Idle = map[config.IdleRule]attribution.IdleAllocation{
		config.IdleEqual: attribution.IdleEqual, config.IdleEqualContainers: attribution.IdleEqualContainers,
		config.IdleRequested: attribution.IdleRequested, config.IdleRequestedLinear: attribution.IdleRequested, config.IdleUsed: attribution.IdleUsed,
	}[r.Idle]
	for i, kind := range r.Kinds {
		rules.Models[i] = newStaticModel(r.cfg, kind)
		if keys := config.Keys([]power.Kind{kind.Zone}, r.Weight, r.SMTWeight); len(keys) > 0 && slices.Contains(r.Keys, keys[0]) {
			rules.Keys[i] = attribution.ByFirstWeight + attribution.Weight(slices.Index(r.Keys, keys[0]))
		}
	}
	return rules
}
