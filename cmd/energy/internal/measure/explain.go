// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

func zoneKind(z *Zone) power.Class {
	return power.Class{Zone: power.Kind(z.Name), Method: power.Method(z.Source)}
}

// list returns words as an English list: "a, b and c".
func list(words []string) string {
	n := len(words)
	if n < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
}

// explain fills the warnings and notes.
func (r *run) explain() {
	if err := r.group.Lost(); err != nil {
		r.warn("CPU time and energy are too low: %v", err)
	}
	r.explainZones()
	r.explainBaseline()
	r.result.Notes = slices.Clone(r.result.Warnings)
	for _, note := range r.lines() {
		if !slices.Contains(r.result.Notes, note) {
			r.result.Notes = append(r.result.Notes, note)
		}
	}
}

// warn adds a warning that is less important than the warnings before.
func (r *run) warn(format string, args ...any) {
	r.result.Warnings = append(r.result.Warnings, figure.Line(fmt.Sprintf(format, args...)))
}

func (r *run) explainZones() {
	if len(r.result.Zones) == 0 {
		r.warn("No energy is measured: no meter can be read, and there is no model. --model auto estimates the energy of CPUs and memory")
	}
	for kind := range r.late {
		if !slices.ContainsFunc(r.result.Zones, func(z Zone) bool { return zoneKind(&z) == kind }) {
			r.warn("The meter of %s has not answered, so its energy is missing", kind.Zone)
		}
	}
	unknown := map[Static][]string{}
	for i := range r.result.Zones {
		z := &r.result.Zones[i]
		unknown[z.Static] = append(unknown[z.Static], z.Name)
		if z.Missing > 0 {
			r.warn("The meter of %s has not reported the energy of the last %s, so the figures lack it", z.Name, figure.Seconds(z.Missing))
		}
	}
	if slices.ContainsFunc(r.meter.notes, func(n energyreceiver.Note) bool { return n.Permission }) {
		r.warn("Only root may read the energy counters since Linux 5.10: run energy with sudo, or permit it to read them")
	}
	if zones := unknown[StaticUnknown]; zones != nil {
		r.warn("The static power of %s is not available, so energy is split by utilization: the joules depend on what else runs. "+
			"--baseline 10s measures it", list(zones))
	}
	if zones := unknown[StaticTraining]; zones != nil {
		r.warn("The static power of %s is not trained yet, so energy is split by utilization or by a first estimate: the joules may be far off", list(zones))
	}
}

// negligible is the share of the energy that is not worth a note.
const negligible = 0.01

func (r *run) explainBaseline() {
	b := r.baseline
	if b == nil {
		return
	}
	for _, kind := range b.unknown {
		r.warn("The baseline of %v is too short for the meter of %s", r.Baseline, kind.Zone)
	}
	var before []string
	for i := range r.result.Zones {
		if kind := zoneKind(&r.result.Zones[i]); r.result.Zones[i].Static == StaticBaseline {
			before = append(before, fmt.Sprintf("%s %s", kind.Zone, figure.Watts(b.watts[kind])))
		}
	}
	if len(before) == 0 {
		if len(b.unknown) == 0 && len(r.result.Zones) > 0 {
			r.note("The baseline has no effect: the static power of each zone is available without it")
		}
		return
	}
	during := r.busy / r.result.Wall.Seconds()
	r.note("The static power was measured in the %v before: %s, with %.1f%% of the CPUs busy (%.1f%% during the command)",
		r.Baseline, list(before), 100*b.utilization, 100*during)
	switch short := b.utilization / during; {
	case !(short >= negligible): // also if it is NaN
	case short < 1:
		r.warn("Other programs ran during the baseline, and their power counts as static: joules are about %.0f%% too low", 100*short)
	default:
		r.warn("The CPUs were as busy during the baseline as during the command: joules are too low, and meaningless")
	}
}
