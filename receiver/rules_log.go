// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// rulePart is one of the default rules.
type rulePart struct {
	setting, value string
	// lacks is the reason why the setting is not in effect, nil if it is.
	lacks error
}

// String returns the setting with its value, and the reason if it is not in effect.
func (p *rulePart) String() string {
	switch {
	case p.lacks == nil:
		return p.setting + ": " + p.value
	case p.value == "":
		return fmt.Sprintf("%s: %v", p.setting, p.lacks)
	default:
		return fmt.Sprintf("%s: %s (%v)", p.setting, p.value, p.lacks)
	}
}

// rulesFound records what the receiver detected at start, for the log line about the default rules.
type rulesFound struct {
	undivided error     // why the node's CPUs are not divided by package
	unclocked error     // why the clock rate over an interval is unknown
	unshared  error     // why no threads share a core
	began     time.Time // when the parts could first be reported
	logged    bool
}

// rulesGrace is the maximum time to wait for the first readings of all meters before the rules are logged.
const rulesGrace = time.Minute

var (
	errShort   = errors.New("collection_interval is not longer")
	errNoIRQ   = errors.New("the kernel does not measure the time of interrupts: the irq column of /proc/stat is 0")
	errNoDRAM  = errors.New("no meter reads a zone of memory")
	errUnsaved = errors.New("not set: static power is trained again after each start")
)

// ruleParts returns the default rules that the configuration does not override. It is called after the first window.
func (s *energyScraper) ruleParts() (parts []rulePart) {
	c, a, rules, found := s.cfg, &s.cfg.Attribution, presets[s.cfg.Attribution.Preset], &s.found
	add := func(selected bool, setting, value string, lacks error) {
		if selected {
			parts = append(parts, rulePart{setting, value, lacks})
		}
	}
	var short error
	if c.windowLength() == 0 {
		short = errShort
	}
	add(c.Window == 0 && s.container == "", "window", rules.window.String(), short)
	add(a.Scope == "", "attribution::scope", string(rules.scope), found.undivided)
	add(a.StaticPower[AllZones].Model == "", "attribution::static_power", string(rules.static), s.untrained())
	add(c.usesClocks(), "attribution::weight", string(rules.weight), found.unclocked)
	add(a.SMTWeight == 0 && slices.ContainsFunc(c.Zones, s.isOfCores), "attribution::smt_weight", fmt.Sprint(rules.smt), found.unshared)
	add(a.Interrupts == "", "attribution::interrupts", string(rules.interrupts), countsNoInterrupts(c.RootPath))
	add(slices.Contains(c.Zones, power.DRAM) && a.presetHasWeight(power.DRAM, rules.dram), "attribution::weight::dram", string(rules.dram), s.withoutDRAM())
	if trains := a.trains(c.Zones) && c.Storage == ""; trains && s.untrained() == nil {
		add(true, "storage", "", errUnsaved)
	}
	return parts
}

// untrained returns the reason why no static power is trained: the static power of all zones of CPUs and
// memory is known. It returns nil if static power may be trained.
func (s *energyScraper) untrained() error {
	known := ""
	for i := range s.meters.readings {
		switch zone := s.meters.readings[i].Zone; {
		case zone.Kind == power.GPU || !slices.Contains(s.meters.attributed(), zone.Kind):
		case !s.cfg.Attribution.knows(zone.Kind):
			return nil
		case zone.Method == power.Modeled:
			known = "energy is modeled, and the model states the power at rest"
		case zone.Method == power.Reported:
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

// isOfCores reports whether the SMT weight would apply to a zone kind.
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

// logRules logs once, as soon as all meters have returned readings, which of the default rules this machine supports.
func (s *energyScraper) logRules() {
	if s.found.logged || s.cfg.Attribution.Preset != "" {
		return
	}
	now := s.now()
	if s.found.began.IsZero() {
		s.found.began = now
	}
	waits := slices.ContainsFunc(s.meters.set.Status(), func(m power.Status) bool { return isWaiting(&m) })
	if waits && now.Sub(s.found.began) < rulesGrace {
		return
	}
	s.found.logged = true
	var selected, lacking []string
	for _, part := range s.ruleParts() {
		if part.lacks != nil {
			lacking = append(lacking, part.String())
		} else {
			selected = append(selected, part.String())
		}
	}
	s.set.Logger.Info("Attribution rules selected", zap.Strings("selected", selected), zap.Strings("lacking", lacking))
}
