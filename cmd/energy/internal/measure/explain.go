// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

func zoneKind(z *Zone) power.Class {
	return power.Class{Zone: power.Kind(z.Name), Method: power.Method(z.Source)}
}

// list returns words as people write them.
func list(words []string) string {
	n := len(words)
	if n < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
}

// explain fills the notes: what of the figures is not known, or not exact, and what to do about it.
func (r *run) explain() {
	r.explainZones()
	r.explainBaseline()
	if err := r.group.Lost(); err != nil {
		r.note("CPU time and energy are too low: %v", err)
	}
	r.result.Notes = r.notes.Lines()
}

func (r *run) explainZones() {
	if len(r.result.Zones) == 0 {
		r.note("No joules are known: no meter can be read, and there is no model. --model auto estimates the energy of CPUs and memory")
	}
	if r.notes.Denied() {
		r.note("Only root may read the energy counters since Linux 5.10: run energy with sudo, or permit it to read them")
	}
	var unknown, learning []string
	for i := range r.result.Zones {
		z := &r.result.Zones[i]
		switch z.Static {
		case StaticUnknown:
			unknown = append(unknown, z.Name)
		case StaticLearning:
			learning = append(learning, z.Name)
		}
		if z.Missing > 0 {
			r.note("The meter of %s has not reported the energy of the last %s, so the figures lack it", z.Name, figure.Seconds(z.Missing))
		}
	}
	for kind := range r.late {
		if !slices.ContainsFunc(r.result.Zones, func(z Zone) bool { return zoneKind(&z) == kind }) {
			r.note("The meter of %s has not answered: what was used of it is not known", kind.Zone)
		}
	}
	if len(unknown) > 0 {
		r.note("The static power of %s is not known, so energy is split by utilization: the joules depend on what else runs. "+
			"--baseline 10s measures it", list(unknown))
	}
	if len(learning) > 0 {
		r.note("The static power of %s is not learned yet, so energy is split by utilization or by a first estimate: the joules may be far off", list(learning))
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
		r.note("The baseline of %v is too short for the meter of %s", r.Baseline, kind.Zone)
	}
	var before []string
	for i := range r.result.Zones {
		if kind := zoneKind(&r.result.Zones[i]); r.result.Zones[i].Static == StaticBaseline {
			before = append(before, fmt.Sprintf("%s %s", kind.Zone, figure.Watts(b.watts[kind])))
		}
	}
	if len(before) == 0 && len(b.unknown) == 0 && len(r.result.Zones) > 0 {
		r.note("The baseline has no effect: the static power of each zone is known without it")
	}
	if len(before) == 0 {
		return
	}
	during := r.busy / r.result.Wall.Seconds()
	text := fmt.Sprintf("Static power is that of the %v before: %s, with %.1f%% of the CPUs busy (%.1f%% during the command)",
		r.Baseline, list(before), 100*b.utilization, 100*during)
	switch short := b.utilization / during; {
	case b.utilization < 0 || during < 0 || short < negligible:
	case short < 1:
		text += fmt.Sprintf(". What others drew then counts as static: joules are about %.0f%% too low", 100*short)
	default:
		text += ". The CPUs were as busy before: joules are too low, and mean nothing"
	}
	r.note("%s", text)
}
