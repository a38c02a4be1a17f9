// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
)

// run identifies all options that affect active energy, so that settings with the same run are
// measured once. It leaves out the idle allocation, which the idle tables measure.
func (s *simSetting) run() string {
	cfg := s.config()
	a := cfg.Attribution
	var m rules.Machine
	if !s.counts {
		m.Uncounted = errors.New("not counted")
	}
	r, _ := rules.Resolve(cfg, m)
	selected := []any{
		r.Scope, r.Weight(power.Package), r.Weight(power.DRAM), r.SMTWeight, r.Interrupts, r.MissedUnattributed, a.KnowsStaticPower(power.Package),
	}
	a.StaticPower, a.Preset, a.Idle = allStatic(a.StaticModelOf(power.Package)), "", ""
	return fmt.Sprintf("%v %v %v %+v %+v", s.source, s.training, r.Window, a, selected)
}
