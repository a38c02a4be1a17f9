// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// zones returns a function that returns the measured zones that satisfy is.
func zones(is func(*Zone) bool) func(*analysis) []*judgment {
	return func(a *analysis) (found []*judgment) {
		for _, z := range a.Zones {
			if isMeasured(z) && is(z) {
				found = append(found, &judgment{name: fmt.Sprintf("%s %s", z.Meter, z.ID), zones: []*Zone{z}})
			}
		}
		return found
	}
}

func isMeasured(z *Zone) bool { return z.Method == power.Measured }

// followsCPUs reports whether the power of a zone rises with the load of the CPUs.
func followsCPUs(z *Zone) bool {
	return slices.Contains([]power.Kind{power.Package, power.Core, power.Platform, power.PSys}, z.Kind)
}

// counts reports whether a zone always uses energy, other than graphics.
func counts(z *Zone) bool { return followsCPUs(z) || z.Kind == power.DRAM }

// alwaysChanges reports whether a zone uses energy all the time: cores at rest may use no energy.
func alwaysChanges(z *Zone) bool {
	return counts(z) && z.Kind != power.Core && len(changes(z.Points)) > 2
}

// zero checks that counters count. Many servers have a psys without a sensor.
func zero(j *judgment) {
	z, hint := j.zones[0], ""
	n := len(z.Points)
	if n < 2 {
		return
	}
	still := z.Points[n-1].Value <= z.Points[0].Value
	switch {
	case still && z.Kind == power.PSys:
		j.fail(Note, "%s did not change: this machine has no sensor for it", j.name)
	case still && !drivers.Lookup(z.Meter).Local:
		j.fail(Note, "%s did not change: its counter may be too coarse for this time", j.name)
	case still && z.Meter == "perf":
		hint = ". Before Linux 7.0 some reads of the power PMU silently give 0 (this is " + j.Machine.Kernel + "): use powercap"
		fallthrough
	case still:
		j.fail(Fault, "%s reads a constant 0 W%s", j.name, hint)
	}
	j.known = true
}

// unit checks that the highest power is possible.
func unit(j *judgment) {
	z := j.zones[0]
	watts := j.powers(j.Steps, z)
	if len(watts) == 0 {
		return
	}
	highest, hint := slices.Max(watts), ""
	least, most, hardware := j.possible(z)
	for _, factor := range []float64{1e6, 1e3, 1e-3, 1e-6} {
		if w := highest * factor; w >= 2*least && w <= most/2 {
			hint = fmt.Sprintf(". The unit may be swapped: it would be %s if it read %g times as much", figure.Watts(w), factor)
		}
	}
	j.between(highest, least, most, "%s reads %s at most, which %s cannot draw%s", j.name, figure.Watts(highest), hardware, hint)
}

// possible returns the range of possible powers of a zone under the highest load, and its hardware.
func (a *analysis) possible(z *Zone) (least, most float64, hardware string) {
	threads, memory := float64(max(a.Machine.Threads, len(a.Machine.CPUs))), a.Machine.MemoryGiB
	if z.Socket >= 0 {
		sockets := float64(max(a.Machine.Sockets, 1))
		threads, memory = math.Floor(threads/sockets), memory/sockets
	}
	switch {
	case z.Kind == power.Package:
		return 0.05 * threads, 60 * threads, fmt.Sprintf("a package of %.0f threads", threads)
	case z.Kind == power.DRAM && memory > 0:
		return 0.002 * memory, 10 * memory, fmt.Sprintf("%.0f GiB of memory", memory)
	case z.Kind == power.Platform || z.Kind == power.PSys:
		return 0.5, 60*threads + 10_000, fmt.Sprintf("a machine of %.0f threads", threads)
	}
	return 0, 60*threads + 10_000, "this zone"
}

// temperature checks that no power in W is a temperature in °C.
func temperature(j *judgment) {
	changed := changes(j.zones[0].Points)
	for _, celsius := range j.Temperatures {
		var off, values []float64
		for i := 1; i < len(changed); i++ {
			p, q := changed[i-1], changed[i]
			if c := valueAt(celsius, (p.At+q.At)/2); c > 0 {
				off, values = append(off, 100*math.Abs((q.Value-p.Value)/(q.At-p.At)/c-1)), append(values, c)
			}
		}
		if len(off) >= 5 {
			j.atLeast(stats.Median(off), 3, "%s reads a temperature in °C as a power: "+
				"it equals a temperature sensor of this machine (about %.0f °C)", j.name, stats.Median(values))
		}
	}
}

// wrap checks the range of a counter, and each step back.
func wrap(j *judgment) {
	z := j.zones[0]
	unit := unitOf(z.Raw)
	z.Unit = unit
	wrong := j.name + " wraps at the wrong range: "
	highest := slices.MaxFunc(z.Raw, func(p, q Point) int { return cmp.Compare(p.Value, q.Value) }).Value
	if z.Range > 0 {
		j.atMost(highest, z.Range*(1+1e-6), wrong+"it reads %.0f J, above its stated range of %.0f J", highest, z.Range)
	}
	switch last, now, register := backstep(z); {
	case register > 0:
		j.fail(Fault, wrong+"it wrapped at about %.0f J, but states %.0f J", register, z.Range)
	case last > now:
		j.fail(Fault, "%s stepped back from %.0f J to %.0f J, which is not a wraparound: the counter was reset", j.name, last, now)
	}
	if full := unit * (1 << 32); z.Range > 0 {
		j.between(100*(z.Range/full-1), -0.1, 0.1, wrong+"its unit of %.1f µJ gives a range of %.0f J, "+
			"but it states %.0f J. Energy is wrong after each wrap", 1e6*unit, full, z.Range)
	}
	j.known = true
}

// lag checks when a change of load shows. A prompt meter reads the moment of the read.
func lag(j *judgment) {
	z, most := j.zones[0], 3.
	z.Lag, z.Average = j.delay(z)
	if z.Prompt {
		most = 1.5
	}
	switch j.known = !math.IsNaN(z.Lag); {
	case z.Lag > most:
		j.say(Fault, "%s lags by %.1f s%s", j.name, z.Lag, lagSetting(z.Meter, z.Lag))
	case z.Average >= 5:
		j.say(Note, "%s averages over about %.0f s: load changes appear late and smoothed%s", j.name, z.Average,
			lagSetting(z.Meter, z.Average/2))
	}
}

// lagSetting returns the setting that corrects a lag.
func lagSetting(meter string, lag float64) string {
	switch driver := drivers.Lookup(meter); {
	case !driver.Corrected:
		return ""
	case driver.Decode != nil:
		return fmt.Sprintf(". To correct it: lag: %.0fs in the section of the meter", lag)
	}
	return fmt.Sprintf(". To correct it: meters::%s::lag: %.0fs", meter, lag)
}

// sockets checks that each package is read once and follows the load of its own socket.
func sockets(j *judgment) {
	if j.zones[0].Socket < 0 {
		return
	}
	missing, hint := slices.Sorted(maps.Keys(j.Machine.sockets())), ""
	missing = slices.DeleteFunc(missing, func(socket int) bool { return j.of(socket) != nil })
	if j.zones[0].Meter == "perf" {
		hint = ": its CPU is not in the cpumask of the power PMU"
	}
	j.atMost(float64(len(missing)), 0, "%s lacks socket %v of %d%s", j.name, missing, j.Machine.Sockets, hint)
	var rises []float64
	for _, s := range j.steps(Spin) {
		socket := j.Machine.cpu(s.CPUs[0]).Socket
		single := j.Machine.Sockets > 1 && slices.Equal(s.CPUs, j.Machine.sockets()[socket])
		if single && !j.failed && len(j.zones) == j.Machine.Sockets {
			rises = append(rises, j.loadedSocket(s, j.of(socket)))
		}
	}
	if len(rises) > 0 {
		least, most := slices.Min(rises), slices.Max(rises)
		j.atMost(most/max(least, 1e-9), 1.67, "%s: the counters of the sockets disagree: the same load raised one by %s "+
			"and another by %s", j.name, figure.Watts(least), figure.Watts(most))
	}
}

// of returns the zone of a socket, or nil.
func (j *judgment) of(socket int) *Zone {
	if i := slices.IndexFunc(j.zones, func(z *Zone) bool { return z.Socket == socket }); i >= 0 {
		return j.zones[i]
	}
	return nil
}

// loadedSocket compares the rises of all sockets in a step that loads one. It returns the rise of
// its own.
func (j *judgment) loadedSocket(s *Step, loaded *Zone) (own float64) {
	own = j.watts(s, loaded) - j.rest(loaded)
	for _, z := range j.zones {
		switch r := j.watts(s, z) - j.rest(z); {
		case z == loaded:
		case r > 2*own && r > 0.05*j.rest(z):
			j.fail(Fault, "%s: sockets %d and %d are swapped: the load of socket %d raised %s by %s and %s by %s",
				j.name, loaded.Socket, z.Socket, loaded.Socket, loaded.ID, figure.Watts(own), z.ID, figure.Watts(r))
		case r > 0.97*own && own > 0.05*j.rest(loaded):
			j.fail(Fault, "%s: %s and %s are the same counter: the load of socket %d raised both by %s",
				j.name, loaded.ID, z.ID, loaded.Socket, figure.Watts(own))
		}
	}
	return own
}

// pairs returns the meters of each kind with the preferred meter of the kind.
func pairs(a *analysis) (found []*judgment) {
	for _, kind := range power.Kinds {
		groups := a.groups(kind)
		for i := 1; i < len(groups) && kind != power.GPU; i++ {
			found = append(found, &judgment{name: groups[i].name, zones: groups[i].zones, other: groups[0]})
		}
	}
	return found
}

// partsAndWholes returns groups with the parts that they include. Not every psys includes the memory.
func partsAndWholes(a *analysis) (found []*judgment) {
	add := func(whole *judgment, parts ...*judgment) {
		all := &judgment{}
		var names []string
		for _, p := range parts {
			names, all.zones = append(names, p.name), append(all.zones, p.zones...)
		}
		if all.name = strings.Join(names, " + "); len(parts) > 0 {
			found = append(found, &judgment{name: whole.name, zones: whole.zones, other: all})
		}
	}
	for _, g := range a.groups(power.Package) {
		isOfAnother := func(part *judgment) bool { return part.zones[0].Meter != g.zones[0].Meter }
		add(g, slices.DeleteFunc(slices.Concat(a.groups(power.Core), a.groups(power.Uncore)), isOfAnother)...)
	}
	for _, g := range a.groups(power.PSys) {
		add(g, a.preferred(power.Package)...)
	}
	for _, g := range a.groups(power.Platform) {
		add(g, slices.Concat(a.preferred(power.Package), a.preferred(power.DRAM))...)
	}
	return found
}

// dram checks that DRAM follows memory accesses, and that the package does not include its energy.
func dram(j *judgment) {
	idle, spinning := j.rest(j.zones...), j.mean(j.full(), j.zones...)
	accessed := j.mean(j.steps(Memory), j.zones...)
	j.atLeast(min(accessed/idle/1.05, accessed/spinning/1.03), 1, "%s does not follow memory accesses: "+
		"%s at rest, %s with spinning CPUs, %s with memory-bound programs", j.name,
		figure.Watts(idle), figure.Watts(spinning), figure.Watts(accessed))
	j.list("it follows memory accesses")
	share, deviation := j.dramShare(j.zones)
	if !j.failed && (math.IsNaN(share) || deviation > 0.25) {
		j.say(Unchecked, "Whether the package includes DRAM was not checked: this requires a prompt meter of the whole machine")
		return
	}
	const wrongUnit = ", by the meter of the whole machine: its energy unit is wrong"
	j.atLeast(share, 0.12, "DRAM is counted inside the package: the power of the whole machine rises only by the power of the package. "+
		"Do not add %s to the package", j.name)
	j.atLeast(share, 0.5, "%s counts about %.0f times too much"+wrongUnit, j.name, 1/share)
	j.atMost(share, 2, "%s counts about %.0f times too little"+wrongUnit, j.name, share)
	j.list("it follows memory accesses, and the package does not include it")
}
