// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// cheap reports whether every test run measures the setting: it does not learn, and there are not too many windows.
func (s *simSetting) cheap() bool {
	window := s.config().Window
	return s.learns == 0 && (window == 0 || window >= time.Second)
}

// run identifies everything that active energy depends on, so that settings with the same run are measured once. It
// leaves out the idle allocation, which the idle tables measure.
func (s *simSetting) run() string {
	cfg := s.config()
	a := cfg.Attribution
	if !s.counts {
		a.Machine.Uncounted = errors.New("not counted")
	}
	rules := []any{
		a.SelectedScope(), a.WeightOf(power.Package), a.WeightOf(power.DRAM), a.SelectedSMTWeight(), a.SelectedInterrupts(), a.MissedUnattributed(),
		a.KnowsStaticPower(power.Package),
	}
	a.StaticPower, a.Preset, a.Idle = allStatic(a.StaticModelOf(power.Package)), "", ""
	return fmt.Sprintf("%v %v %v %+v %+v", s.source, s.learns, cfg.WindowLength(), a, rules)
}
