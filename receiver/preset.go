// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// presetRules are the settings that a preset selects. A field with its zero value selects what the receiver does without a preset.
type presetRules struct {
	split SplitRule
	idle  IdleRule
	among IdleAmong

	scope      Scope
	key        claims.Key // of all zone kinds but dram
	dram       claims.Key
	exponent   int // of the clock rate
	smt        float64
	interrupts InterruptRule
	// knowsStatic takes the static power of modeled and reported energy from where it is known. split is for what is measured.
	knowsStatic bool
	// window is the length of the windows with an exact CPU time source, and tickWindow with another one.
	window, tickWindow time.Duration
}

// presets is the only place that knows what a preset selects.
var presets = map[Preset]presetRules{
	PresetAccurate: {
		split: SplitLearned, idle: IdleNone, among: AmongProcesses,
		scope: ScopeZone, key: claims.KeyFrequency, dram: claims.KeyMemoryCPUTime, exponent: 2, smt: 0.6, interrupts: InterruptsUnattributed,
		knowsStatic: true, window: 100 * time.Millisecond, tickWindow: cpu.TickWindow,
	},
	PresetKepler:     {split: SplitUtilization, idle: IdleNone, among: AmongProcesses},
	PresetKepler09:   {split: SplitMinimum, idle: IdleEqual, among: AmongProcesses},
	PresetScaphandre: {split: SplitUtilization, idle: IdleUsed, among: AmongProcesses}, // active + idle = energy * CPU time / all CPU time
	PresetSmartWatts: {split: SplitResting, idle: IdleNone, among: AmongProcesses},
	PresetKubeWatt:   {split: SplitRegression, idle: IdleNone, among: AmongProcesses},
	PresetKavanagh:   {split: SplitBase, idle: IdleEqual, among: AmongContainers},
}

// splitOf returns the static power model of a zone kind that is measured.
func (c *AttributionConfig) splitOf(kind power.Kind) SplitRule {
	return cmp.Or(c.Splits[kind], c.Split, presets[c.Preset].split)
}

// splitOfKind returns the static power model of a kind of the ledger. It is utilization where knows has something better.
func (c *AttributionConfig) splitOfKind(kind claims.Kind) SplitRule {
	if kind.Source != power.Measured && c.knows(kind.Zone) {
		return SplitUtilization
	}
	return c.splitOf(kind.Zone)
}

// knows reports whether the static power of a zone kind is taken from where it is known, if its energy is modeled or reported.
func (c *AttributionConfig) knows(kind power.Kind) bool {
	return presets[c.Preset].knowsStatic && c.Splits[kind] == "" && c.Split == ""
}

func (c *AttributionConfig) idle() IdleRule { return cmp.Or(c.Idle, presets[c.Preset].idle) }

func (c *AttributionConfig) idleAmong() IdleAmong {
	return cmp.Or(c.IdleAmong, presets[c.Preset].among)
}

func (c *AttributionConfig) interrupts() InterruptRule {
	return cmp.Or(c.Interrupts, presets[c.Preset].interrupts, InterruptsShared)
}

func (c *AttributionConfig) scope() Scope { return cmp.Or(c.Scope, presets[c.Preset].scope, ScopeNode) }

// keyOf returns the allocation key of a zone kind. Users of a GPU have GPU time only, which takes the place of CPU time.
func (c *AttributionConfig) keyOf(kind power.Kind) claims.Key {
	switch {
	case kind == power.GPU:
		return claims.KeyCPUTime
	case c.Keys[kind] != "" || c.Key != "":
		return cmp.Or(c.Keys[kind], c.Key)
	case kind == power.DRAM:
		return cmp.Or(presets[c.Preset].dram, claims.KeyCPUTime)
	case c.unclocked && presets[c.Preset].key == claims.KeyFrequency:
		return claims.KeyCPUTime
	}
	return cmp.Or(presets[c.Preset].key, claims.KeyCPUTime)
}

// presetHasKey reports whether the allocation key of a zone kind is the preset's, on a machine that lacks nothing.
func (c *AttributionConfig) presetHasKey(kind power.Kind, key claims.Key) bool {
	clocked := *c
	clocked.unclocked = false
	return c.Key == "" && c.Keys[kind] == "" && clocked.keyOf(kind) == key
}

func (c *AttributionConfig) frequencyExponent() int {
	return cmp.Or(c.FrequencyExponent, presets[c.Preset].exponent, 1)
}

func (c *AttributionConfig) smtWeight() float64 {
	if c.unshared {
		return cmp.Or(c.SMTWeight, 1)
	}
	return cmp.Or(c.SMTWeight, presets[c.Preset].smt, 1)
}

// presetWindow returns the length of the windows that the preset selects, with an exact CPU time source or another one. 0 is one
// window per collection.
func (c *Config) presetWindow(exact bool) time.Duration {
	rules := presets[c.Attribution.Preset]
	window := rules.tickWindow
	if exact {
		window = rules.window
	}
	if window >= c.CollectionInterval {
		return 0
	}
	return window
}

// usesClocks reports whether the preset selects the key frequency, where the machine counts the clock rates.
func (c *Config) usesClocks() bool {
	return slices.ContainsFunc(c.Zones, func(kind power.Kind) bool { return c.Attribution.presetHasKey(kind, claims.KeyFrequency) })
}

// presetPart is a setting that the preset accurate selects.
type presetPart struct {
	setting, value string
	// lacks is why the machine or the configuration does without it, nil if it is in effect.
	lacks error
}

// String returns the setting with its value, and why it is not in effect.
func (p *presetPart) String() string {
	switch {
	case p.lacks == nil:
		return p.setting + ": " + p.value
	case p.value == "":
		return fmt.Sprintf("%s: %v", p.setting, p.lacks)
	default:
		return fmt.Sprintf("%s: %s (%v)", p.setting, p.value, p.lacks)
	}
}

// presetFound is what the start of the receiver found out about the machine, for the line of the log about the preset accurate.
type presetFound struct {
	undivided error     // why the node's CPUs are not divided by package
	inexact   error     // why the CPU time source is not BPF; nil if it is, or if it was not asked for
	unclocked error     // why the clock rate over an interval is not known
	unshared  error     // why no threads share a core
	began     time.Time // when the parts could be told at first
	logged    bool
}

// presetGrace is how long meters that have not answered yet are waited for before the preset's parts are told.
const presetGrace = time.Minute

var (
	errProcfs  = errors.New("cpu_time is procfs")
	errShort   = errors.New("collection_interval is not longer")
	errNoIRQ   = errors.New("the kernel does not measure the time of interrupts: the irq column of /proc/stat is 0")
	errNoDRAM  = errors.New("no meter reads a zone of memory")
	errUnsaved = errors.New("not set: static power is trained again after each start")
)

// presetParts returns the parts of the preset accurate that no setting overrides. It is called after the first window.
func (s *energyScraper) presetParts() (parts []presetPart) {
	c, a, rules, found := s.cfg, &s.cfg.Attribution, presets[s.cfg.Attribution.Preset], &s.found
	add := func(selected bool, setting, value string, lacks error) {
		if selected {
			parts = append(parts, presetPart{setting, value, lacks})
		}
	}
	var coarse error
	switch exact := s.cpu.Source().Exact(); {
	case !exact:
		coarse = fmt.Errorf("%v with procfs: %w", rules.tickWindow, cmp.Or(found.inexact, errProcfs))
	case c.presetWindow(exact) == 0:
		coarse = errShort
	}
	add(c.SamplingInterval == 0 && s.container == "", "sampling_interval", rules.window.String(), coarse)
	add(a.Scope == "", "attribution::scope", string(rules.scope), found.undivided)
	add(a.Split == "", "attribution::split", string(rules.split), s.untrained())
	add(c.usesClocks(), "attribution::key", string(rules.key), found.unclocked)
	add(a.SMTWeight == 0 && slices.ContainsFunc(c.Zones, s.isOfCores), "attribution::smt_weight", fmt.Sprint(rules.smt), found.unshared)
	add(a.Interrupts == "", "attribution::interrupts", string(rules.interrupts), countsNoInterrupts(c.RootPath))
	add(slices.Contains(c.Zones, power.DRAM) && a.presetHasKey(power.DRAM, rules.dram), "attribution::keys::dram", string(rules.dram), s.withoutDRAM())
	if learns := a.learns(c.Zones) && c.Storage == ""; learns && s.untrained() == nil {
		add(true, "storage", "", errUnsaved)
	}
	return parts
}

// untrained returns why no static power is learned, nil if it may be: that of all energy of CPUs and memory is known.
func (s *energyScraper) untrained() error {
	known := ""
	for i := range s.meters.readings {
		switch zone := s.meters.readings[i].Zone; {
		case zone.Kind == power.GPU || !slices.Contains(s.meters.attributed(), zone.Kind):
		case !s.cfg.Attribution.knows(zone.Kind):
			return nil
		case zone.Source == power.Modeled:
			known = "energy is modeled, and the model states the power at rest"
		case zone.Source == power.Reported:
			known = "the hypervisor reports active energy, so nothing is taken off"
		default:
			return nil
		}
	}
	if known == "" {
		return nil
	}
	return errors.New(known)
}

// isOfCores reports whether CPU time would count for less in a zone kind where threads share a core.
func (s *energyScraper) isOfCores(kind power.Kind) bool {
	shared := s.cfg.Attribution
	shared.unshared = false
	return shared.weighsCores(kind)
}

// withoutDRAM returns errNoDRAM if no meter reads a zone of memory.
func (s *energyScraper) withoutDRAM() error {
	if slices.ContainsFunc(s.meters.readings, func(r power.Reading) bool { return r.Zone.Kind == power.DRAM }) {
		return nil
	}
	return errNoDRAM
}

// logPreset logs once, as soon as all meters have answered, what the preset accurate selects here, and which of its parts are not in
// effect.
func (s *energyScraper) logPreset() {
	if s.found.logged || s.cfg.Attribution.Preset != PresetAccurate {
		return
	}
	now := s.now()
	if s.found.began.IsZero() {
		s.found.began = now
	}
	waits := slices.ContainsFunc(s.meters.set.Status(), func(m power.Status) bool { return isWaiting(&m) })
	if waits && now.Sub(s.found.began) < presetGrace {
		return
	}
	s.found.logged = true
	var selected, lacking []string
	for _, part := range s.presetParts() {
		if part.lacks != nil {
			lacking = append(lacking, part.String())
		} else {
			selected = append(selected, part.String())
		}
	}
	s.set.Logger.Info("Preset selected", zap.String("preset", string(PresetAccurate)), zap.Strings("selected", selected),
		zap.Strings("lacking", lacking))
}
