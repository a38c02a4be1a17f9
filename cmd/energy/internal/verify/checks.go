// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// checks are all checks, those first that others depend on.
var checks = []check{
	{name: "permissions", on: machine, ok: "No permission is missing", judge: func(j *judgment) {
		for _, l := range j.Lacks {
			status := Fault
			if l.Optional {
				status = Note
			}
			j.say(status, "%s. To grant it: %s", l.What, l.Grant)
		}
		j.known = len(j.Lacks) == 0
		j.list("%d meters tried", len(j.Meters))
	}},

	{name: "backend", on: machine, judge: versionOfBackend, ok: "OTLP and scraping are supported",
		otherwise: "No metrics database was named: --backend URL checks its version"},

	{name: "load", on: machine, judge: load, ok: "Each load kept its CPUs busy"},

	{name: "reads", meter: true, on: zones(isMeasured), ok: "Reads do not fail", judge: func(j *judgment) {
		z := j.zones[0]
		j.atMost(100*float64(z.Failed)/float64(z.Reads), 1, "%d of %d reads of %s failed", z.Failed, z.Reads, j.name)
	}},

	{name: "zero", meter: true, on: zones(counts), judge: zero, ok: "Every meter reports energy"},

	{name: "standstill", meter: true, on: zones(alwaysChanges), ok: "Readings change all the time", judge: func(j *judgment) {
		changed := append(changes(j.zones[0].Points), Point{At: j.Steps[len(j.Steps)-1].To})
		longest, since := 0., 0.
		for i := 1; i < len(changed); i++ {
			if gap := changed[i].At - changed[i-1].At; gap > longest {
				longest, since = gap, changed[i-1].At
			}
		}
		j.atMost(longest, max(8, 5*period(j.zones[0].Points)), "%s stood still for %.0f s, from %.0f s after the start",
			j.name, longest, since)
	}},

	{name: "unit", meter: true, on: zones(isMeasured), judge: unit, ok: "All powers are possible",
		otherwise: "No step is long enough"},

	{name: "temperature", meter: true, on: zones(func(z *Zone) bool { return len(z.Raw) == 0 }), judge: temperature, ok: "No power equals a temperature",
		otherwise: "No power sensor was compared with a temperature sensor"},

	{name: "wrap", meter: true, on: zones(func(z *Zone) bool { return len(z.Raw) > 1 }), judge: wrap, otherwise: "No meter has a counter",
		ok: "Counters step back only by wraparound, and the range fits the resolution"},

	{name: "lag", meter: true, on: zones(followsCPUs), judge: lag, ok: "No meter lags",
		otherwise: "The load did not change long enough to measure a lag"},

	{name: "load following", meter: true, on: zones(followsCPUs), ok: "Power follows the load",
		otherwise: "The machine was not at rest and under full load", judge: func(j *judgment) {
			idle, busy := j.rest(j.zones...), j.mean(j.full(), j.zones...)
			wrong := j.name + " does not follow the load: "
			j.atLeast(100*(busy/idle-1), 5, wrong+"%s at rest, %s with all CPUs busy", figure.Watts(idle), figure.Watts(busy))
			for _, s := range j.steps(Spin) {
				w := j.watts(s, j.zones...)
				j.between(w, 0.9*idle, 1.25*busy, wrong+"%s in step %q, %s at rest and %s with all CPUs busy",
					figure.Watts(w), s.Name, figure.Watts(idle), figure.Watts(busy))
			}
		}},

	{name: "noise", meter: true, on: zones(followsCPUs), ok: "Readings are steady under a constant load",
		otherwise: "The steps of constant load are too short", judge: func(j *judgment) {
			z := j.zones[0]
			z.Noise = j.noiseOf(z)
			j.atMost(100*z.Noise, 5, "%s has a noise of %.0f %% under a constant load", j.name, 100*z.Noise)
		}},

	{name: "sockets", meter: true, on: func(a *analysis) []*judgment { return a.groups(power.Package) },
		judge: sockets, ok: "Each socket is read by its own meter",
		otherwise: "No meter reads sockets one by one"},

	{name: "agreement", meter: true, on: pairs, ok: "Meters of the same thing agree",
		otherwise: "No two meters read the same thing", judge: func(j *judgment) {
			own, other := j.both(j.Steps, j.zones, j.other.zones)
			ratio, most := stat.Mean(own, nil)/stat.Mean(other, nil), 3.
			if j.zones[0].Kind == power.Platform {
				most = 20 // one may be before the power supply, the other one after it
			}
			j.between(ratio, 1/(1+most/100), 1+most/100, "Two meters disagree: %s reads %.3g times as much as %s",
				j.name, ratio, j.other.name)
			j.list("%s against %s: %+.1f %%", j.name, j.other.name, 100*(ratio-1))
		}},

	{name: "parts and whole", meter: true, on: partsAndWholes, ok: "No part exceeds its whole",
		otherwise: "No meter reads both a whole and its parts", judge: func(j *judgment) {
			for _, s := range j.steps(Idle, Spin, Memory) {
				whole, parts := j.watts(s, j.zones...), j.watts(s, j.other.zones...)
				j.atMost(100*(parts/whole-1), 3, "The parts exceed the whole: %s reads %s in step %q, %s read %s",
					j.name, figure.Watts(whole), s.Name, j.other.name, figure.Watts(parts))
			}
			j.list("%s ≥ %s", j.name, j.other.name)
		}},

	{name: "dram", meter: true, on: func(a *analysis) []*judgment { return a.preferred(power.DRAM) },
		judge: dram, ok: "DRAM is plausible", otherwise: "No meter reads DRAM"},

	// Supplies and regulators lose energy, and fans turn faster.
	{name: "closure", meter: true, on: partsAndWholes, ok: "The balance closes",
		otherwise: "No meters read both the whole machine and its parts", judge: func(j *judgment) {
			if j.zones[0].Kind != power.Platform || j.other.zones[0].Kind != power.Package {
				return
			}
			slope, unexplained := line(j.both(j.steps(Idle, Spin, Memory), j.other.zones, j.zones))
			j.between(slope, 0.9, 2, "The balance does not close: if %s rises by 1 W, %s rises by %.2f W "+
				"(0.9 to 2.0 is possible)", j.other.name, j.name, slope)
			j.atMost(100*unexplained, 50, "The balance does not close: %s does not explain %.0f %% of the changes of %s",
				j.other.name, 100*unexplained, j.name)
			j.list("%s rises by %.2f W for 1 W of %s", j.name, slope, j.other.name)
		}},

	{name: "sums", on: classes, ok: "The receiver's sums hold to the microjoule",
		otherwise: "The receiver reported no energy", judge: func(j *judgment) {
			for _, k := range j.Sums[j.class] {
				off := int64(k.Processes + k.Unattributed - k.Active)
				j.between(float64(off), 0, 0, "%s: processes and unattributed energy are %+.6f J off the active energy, "+
					"%.0f s after the start", j.name, float64(off)/1e6, k.At)
				off = int64(k.Active + k.Idle - k.Zones)
				j.between(float64(off), -float64(k.Deferred), 0, "%s: active and idle energy are %+.6f J off the energy of "+
					"the zones, %.0f s after the start", j.name, float64(off)/1e6, k.At)
			}
			j.list("%s: %d sums", j.name, 2*len(j.Sums[j.class]))
		}},

	{name: "totals", meter: true, on: classes, judge: totals, otherwise: "The receiver reads no meter",
		ok: "The receiver and the meters count the same energy"},

	{name: "symmetry", on: classes, judge: symmetry, ok: "Equal programs get equal energy per CPU second",
		otherwise: "No step that can be evaluated has two equal programs with energy"},

	{name: "weights", meter: true, on: weighedClasses, judge: compareWeights, ok: "No other attribution weight is better than the default",
		otherwise: "The compared programs have no energy"},

	{name: "static power", meter: true, on: classes, ok: "Trained static power matches the power at rest",
		otherwise: "The receiver has no static power model of a meter", judge: func(j *judgment) {
			static, idle, _ := j.static()
			off := 100 * (static/idle - 1)
			if !j.Trained[j.class] && !math.IsNaN(off) {
				j.say(Unchecked, "The run was too short to train the static power model. %s: the receiver assumes %s, "+
					"the machine draws %s at rest", j.name, figure.Watts(static), figure.Watts(idle))
				return
			}
			j.between(off, -10, 10, "The trained static power of %s is %s, but the machine draws %s at rest (%+.0f %%)",
				j.name, figure.Watts(static), figure.Watts(idle), off)
			j.list("%s %s, at rest %s", j.name, figure.Watts(static), figure.Watts(idle))
		}},

	{name: "standard error", meter: true, on: classes, ok: "The standard error covers the deviation",
		otherwise: "The receiver reported no standard error in this time", judge: func(j *judgment) {
			static, idle, uncertainty := j.static()
			if off := math.Abs(static - idle); uncertainty > 0 && j.Trained[j.class] {
				j.atMost(off, 3*uncertainty+0.02*idle, "The standard error of %s is too small: static power is off by %s, "+
					"the receiver reports %s", j.name, figure.Watts(off), figure.Watts(uncertainty))
				j.list("%s: off by %s, standard error %s", j.name, figure.Watts(off), figure.Watts(uncertainty))
			}
		}},

	{name: "cpu time", on: timeSources, judge: cpuTime, ok: "CPU times of the sources agree with the kernel's own",
		otherwise: "No load ran"},

	{name: "gpu", on: gpus, judge: usedGPU, ok: "GPU power follows GPU time",
		otherwise: "This machine has no GPU that can be read"},
}
