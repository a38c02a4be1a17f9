// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// raplGuest is a guest with emulated RAPL registers, and collectors that read them through the
// kernel's driver.
type raplGuest struct {
	*guest
	// root, capability and plain read powercap: as root, as a user with the required capability,
	// and as a user without it.
	root, capability, plain *guestCollector
	perf                    *guestCollector // as a user with the capability for perf events
	truth                   []truth         // of the whole run, after its end

	zones      map[string]string // names of powercap's zones by their IDs
	cpuMasks   []string          // of the power PMU: before, during and after counting by another CPU
	used       map[string]float64
	powered    time.Time            // by the guest's clock: power is drawn
	granted    time.Time            // the counters are readable for every user
	moved      between              // the CPU that counts the second package's events is offline
	failing    between              // the second package cannot be read
	calculated map[string]*measured // results of energy measure by user
}

type between struct{ from, to time.Time }

// truth is the module's true energy at one time.
type truth struct {
	at     time.Time
	joules map[string]float64 // by zone: package number/kind
	wraps  map[string]int
}

type logLine struct {
	Msg, Source, Rejected, Error, What, Condition string
}

// zones are the driver's zones for the registers of two packages.
var zones = []string{"0/package", "0/core", "0/dram", "1/package", "1/core", "1/dram", "0/psys"}

// raplSeconds is the minimum duration of the measurement before the fault.
func raplSeconds(t *testing.T) time.Duration {
	text := os.Getenv("RAPL_SECONDS")
	if text == "" {
		return 10 * time.Second
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "RAPL_SECONDS")
	return time.Duration(n) * time.Second
}

// The kernel's RAPL driver on registers with a true energy, and collectors that read it side by
// side: as root, as a user with CAP_DAC_READ_SEARCH alone, and as a user without capabilities. One
// more reads the same energy from perf events, as a user with CAP_PERFMON alone.
func TestRAPLDriverInAGuest(t *testing.T) {
	need(t)
	k := guestKernel(t, "6.1.", "amd64")
	r := &raplGuest{used: map[string]float64{}, calculated: map[string]*measured{}, zones: map[string]string{}, guest: startGuest(t, &guestOptions{
		name: "rapl", kernel: k, modules: []string{"intel_rapl_common"}, // detects CPUs by model
		files: map[string]string{
			"load": build(t, "load"), "otelcol-energy": collectorBinary(t), "energy": energyBinary(t),
			"emulated_rapl.ko": k.buildModule(t, "rapl", "emulated_rapl"),
		},
		qemu: []string{"-smp", "4,sockets=2,cores=2"},
	})}
	r.runs(t)
	t.Logf("Linux %s, %d samples of the true energy", k.release, len(r.truth))

	t.Run("EveryCounterWrapsWhileItIsRead", r.testWraps)
	t.Run("EnergyIsTrueWhilePowerIsDrawn", r.testRates)
	t.Run("TotalEnergyIsTrue", r.testTotals)
	t.Run("PerfEventsHaveTheSameEnergy", r.testPerf)
	t.Run("EnergyOfAFailingZoneIsLateNotLost", r.testReadError)
	t.Run("EnergyIsReportedOnlyAfterTheCapabilityIsGranted", r.testGrant)
	t.Run("CPUTimesAreFromBPFIfAllowed", r.testSources)
	t.Run("ProcessesAndUnattributedAreActive", r.testBalance)
	t.Run("ContainersHaveTheCPUTimeOfTheirCgroups", r.testContainers)
	t.Run("ACommandHasTheEnergyOfItsCPUTime", r.testMeasure)
}

// raplContainers use the CPU, by cgroup. The receiver identifies them by their IDs.
var raplContainers = []struct{ id, group, load string }{
	{"a1", "/kubepods/burstable/pod0f7e4c3a-5b1d-4e62-9c8f-2a6d1b3c4d5e/" + strings.Repeat("a1", 32), "burn 60 0"},
	{"b2", "/system.slice/docker-" + strings.Repeat("b2", 32) + ".scope", "burn 20 0"},
	{"c3", "/system.slice/docker-" + strings.Repeat("c3", 32) + ".scope", "fork 100000"},
}

// all returns the collectors. powercap returns the collectors of powercap.
func (r *raplGuest) all() []*guestCollector { return append(r.powercap(), r.perf) }

func (r *raplGuest) powercap() []*guestCollector {
	return []*guestCollector{r.root, r.capability, r.plain}
}

// sets sets a parameter of the module that emulates the registers.
func (r *raplGuest) sets(t *testing.T, parameter, value string) {
	t.Helper()
	r.writes(t, "/sys/module/emulated_rapl/parameters/"+parameter, value)
}

// emit waits until each of the collectors has emitted more.
func emit(t *testing.T, more int, collectors ...*guestCollector) {
	t.Helper()
	want := map[*guestCollector]int{}
	for _, c := range collectors {
		want[c] = c.sent(t) + more
	}
	for c, n := range want {
		c.until(t, fmt.Sprintf("emits %d times more", more), func() bool { return c.sent(t) >= n })
	}
}

// runs runs the collectors side by side while power is drawn, counters become readable, the second
// package fails, and another CPU counts the second package's events. No power is drawn before the
// baselines and during the last collections.
func (r *raplGuest) runs(t *testing.T) {
	t.Helper()
	r.loads(t, "/emulated_rapl.ko package_room_mj=100000 core_room_mj=20000 dram_room_mj=16000 psys_room_mj=250000")
	counters := r.finds(t, "/sys/class/powercap/intel-rapl:*/energy_uj")
	require.Len(t, counters, len(zones))
	for _, c := range counters {
		r.zones[filepath.Base(filepath.Dir(c))] = r.text(t, filepath.Dir(c)+"/name")
	}
	r.starts(t, "truth", "", "/load", "follow", "/proc/emulated_rapl")
	r.startsCollectors(t)
	r.powered = r.now(t)
	r.sets(t, "powered", "1")
	emit(t, 3, r.root, r.capability)
	for _, c := range raplContainers {
		r.starts(t, c.id, c.group, append([]string{"/load"}, strings.Fields(c.load)...)...)
	}
	emit(t, 2, r.root)
	r.granted = r.now(t)
	for _, c := range counters {
		r.call(t, "Chmod", struct {
			Path string
			Mode os.FileMode
		}{c, 0o444}, &struct{}{})
	}
	r.plain.says(t, recovered, 0)
	emit(t, 1, r.plain)
	began := time.Now()
	emit(t, 12, r.powercap()...) // enough to compare, however slow the machine
	eventually(t, "every counter wraps", func() bool {
		return time.Since(began) > raplSeconds(t) && !strings.Contains(r.text(t, "/proc/emulated_rapl")+" ", ",0 ")
	})
	r.movesCounters(t)
	r.fails(t)
	r.measures(t)
	for _, c := range raplContainers {
		r.call(t, "Stop", c.id, &struct{}{})
		// A child that the load has just started ends by itself.
		eventually(t, "no process is in "+c.group, func() bool { return r.text(t, "/sys/fs/cgroup"+c.group+"/cgroup.procs") == "" })
		r.used[c.id] = r.cpuTime(t, c.group)
	}
	emit(t, 3, r.all()...)
	// From now on the counters are constant, so the last values contain all energy.
	r.sets(t, "powered", "0")
	emit(t, 3, r.all()...)
	for _, c := range r.all() { // before reading files, which the collectors would slow down
		c.call(t, "Stop", c.name, &struct{}{})
	}
	for _, c := range r.all() {
		c.takes(t)
	}
	r.call(t, "Stop", "truth", &struct{}{})
	r.truth = readTruth(t, r.keeps(t, "truth.log"))
	r.powersOff(t)
}

// text returns the content of a file without surrounding space.
func (g *guest) text(t *testing.T, path string) string {
	t.Helper()
	text, err := g.reads(t, path)
	require.NoError(t, err)
	return strings.TrimSpace(text)
}

// startsCollectors starts the collectors. Collectors whose containers are tested give every process
// a series, so that wrong shares are visible.
func (r *raplGuest) startsCollectors(t *testing.T) {
	t.Helper()
	start := func(name, meter string, as user, more ...string) *guestCollector {
		return r.startsCollectorAs(t, as, name, append(more, "meters: {use: ["+meter+"]}", "zones: [package, dram, core, psys]")...)
	}
	const each = "series: {processes: {group_by: pid, min_energy: 0, max: 0}}"
	const id = 1000 // an unprivileged user
	r.root = start("root", "powercap", user{}, each)
	r.capability = start("capability", "powercap", user{id, []uintptr{unix.CAP_DAC_READ_SEARCH}}, each)
	r.plain = start("plain", "powercap", user{id, nil})
	r.perf = start("perf", "perf", user{id, []uintptr{unix.CAP_PERFMON}})
	emit(t, 1, r.root, r.capability)
	const paranoid = "/proc/sys/kernel/perf_event_paranoid"
	require.Equal(t, "3", r.text(t, paranoid), "Debian's own level")
	r.perf.says(t, degraded, 0)
	r.writes(t, paranoid, "2")
	r.perf.says(t, recovered, 0)
	emit(t, 1, r.perf)
	r.plain.says(t, degraded, 0)
}

// movesCounters takes the CPU that counts the second package's events offline for some collections.
func (r *raplGuest) movesCounters(t *testing.T) {
	t.Helper()
	const online, mask = "/sys/devices/system/cpu/cpu2/online", "/sys/bus/event_source/devices/power/cpumask"
	r.cpuMasks = append(r.cpuMasks, r.text(t, mask))
	r.moved.from = r.now(t)
	r.writes(t, online, "0")
	emit(t, 4, r.all()...)
	r.cpuMasks = append(r.cpuMasks, r.text(t, mask))
	r.moved.to = r.now(t)
	r.writes(t, online, "1")
	emit(t, 3, r.all()...)
	r.cpuMasks = append(r.cpuMasks, r.text(t, mask))
}

// fails makes the second package fail for some collections.
func (r *raplGuest) fails(t *testing.T) {
	t.Helper()
	r.failing.from = r.now(t)
	r.sets(t, "failing", "2")
	for _, c := range r.powercap() {
		c.says(t, "invalid argument", 0) // for every error of the driver (powercap_sys.c)
	}
	emit(t, 4, r.powercap()...)
	r.failing.to = r.now(t)
	r.sets(t, "failing", "0")
	emit(t, 3, r.powercap()...)
}

// measureConfiguration has the module's constant powers, of both packages together.
const measureConfiguration = `
meters: {use: [powercap]}
zones: [package, dram, core]
attribution: {preset: kepler, static_power: {package: {model: fixed, power: 40}, dram: {model: fixed, power: 8}, core: {model: fixed, power: 0}}}
`

// measures measures a command that uses seconds of CPU time, next to the loads: as root with a
// limit that it exceeds, and as a user that can read the counters and cannot create a cgroup.
func (r *raplGuest) measures(t *testing.T) {
	t.Helper()
	r.writes(t, "/tmp/measure.yaml", measureConfiguration)
	for name, c := range map[string]struct {
		as     user
		limit  []string
		status string
	}{
		"root": {user{}, []string{"--max-joules", "10"}, "exit status 124"},
		"user": {user{1000, nil}, nil, ""},
	} {
		result := "measure-" + name + ".json"
		args := append([]string{"/energy", "measure", "--config", "/tmp/measure.yaml", "--json", "-o", "/tmp/" + result}, c.limit...)
		r.startsAs(t, c.as, "measure-"+name, "", append(args, "/load", "child", fmt.Sprint(measureSeconds))...)
		if err := r.try(t, "Wait", "measure-"+name, &struct{}{}); c.status == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.status, name)
		}
		r.calculated[name] = readMeasured(t, r.keeps(t, result))
	}
	assert.Empty(t, r.finds(t, "/sys/fs/cgroup/energy-measure-*"), "no remaining cgroups")
}

func (r *raplGuest) testWraps(t *testing.T) {
	for _, c := range []*guestCollector{r.root, r.capability} {
		for _, zone := range zones {
			p := r.points(t, c, zone)
			before, after := r.wraps(zone, p[0].start), r.wraps(zone, p[len(p)-1].at)
			assert.Zero(t, before, "wraps of %s before %s read it", zone, c.name)
			assert.NotZero(t, after, "wraps of %s while %s read it", zone, c.name)
		}
	}
}

// The energy between two times is compared with the true energy, which also tests the collector's
// time stamps. A reader that is interrupted between the clock and the counter has an error of that
// length. The test therefore uses the median of many pairs of times, and the first and the last of
// a minute.
func (r *raplGuest) testRates(t *testing.T) {
	for _, c := range r.all() {
		for _, zone := range zones {
			var within []sentPoint
			for _, p := range r.points(t, c, zone) {
				if p.at.After(r.granted) && p.at.Before(r.failing.from) {
					within = append(within, p)
				}
			}
			n := len(within)
			require.Greater(t, n, 8, "%s, %s", c.name, zone)
			var ratios []float64
			for i, a := range within[:n/2] {
				b := within[i+n/2]
				ratios = append(ratios, (b.value-a.value)/(r.energy(zone, b.at)-r.energy(zone, a.at)))
			}
			slices.Sort(ratios)
			what := fmt.Sprintf("%s, %s", c.name, zone)
			bound := 0.01
			if c == r.perf && strings.HasPrefix(zone, "1/") {
				bound = 0.05 // no CPU counted in a part of most pairs
			}
			r.within(t, what+", median of reported/true", bound, 1, ratios[len(ratios)/2])

			a, b := within[0], within[n-1]
			bound += r.stall(a.at, b.at).Seconds() / b.at.Sub(a.at).Seconds()
			if b.at.Sub(a.at) < time.Minute {
				bound = math.Inf(1)
			}
			r.within(t, fmt.Sprintf("%s, first and last in %.1f s", what, b.at.Sub(a.at).Seconds()), bound,
				r.energy(zone, b.at)-r.energy(zone, a.at), b.value-a.value)
		}
	}
}

// No power is drawn before the baselines and after the last collections, so time stamps do not
// matter. The remaining errors are in the arithmetic and the units of the driver (61.035 instead of
// 61.035156 µJ).
func (r *raplGuest) testTotals(t *testing.T) {
	for _, c := range []*guestCollector{r.root, r.capability} {
		for _, zone := range zones {
			p := r.points(t, c, zone)
			r.within(t, c.name+", "+zone, 0.0001, r.truth[len(r.truth)-1].joules[zone], p[len(p)-1].value)
		}
	}
}

// Perf events count from 0 in 2^-32 J, so the driver's units lose no energy. One CPU of the second
// package goes offline, and the other CPU continues its counters. For some milliseconds, an RCU
// grace period, no CPU counts (perf_pmu_migrate_context). Psys becomes a zone after its first
// count, so its first interval is missing.
func (r *raplGuest) testPerf(t *testing.T) {
	assert.Equal(t, []string{"0,2", "0,3", "0,3"}, r.cpuMasks)
	for _, zone := range zones {
		p := r.points(t, r.perf, zone)
		toTruth, toPowercap := 0.00001, 0.0001
		switch {
		case strings.HasPrefix(zone, "1/"):
			toTruth, toPowercap = 0.005, 0.005
		case zone == "0/psys":
			toTruth, toPowercap = 0.05, 0.05
		}
		r.within(t, "perf, "+zone, toTruth, r.truth[len(r.truth)-1].joules[zone], p[len(p)-1].value)
		powercap := r.points(t, r.root, zone)
		r.within(t, "perf against powercap, "+zone, toPowercap, powercap[len(powercap)-1].value, p[len(p)-1].value)

		moved := 0
		for i := 1; i < len(p); i++ {
			if p[i-1].at.After(r.moved.from) && p[i].at.Before(r.moved.to) {
				moved++
				if !strings.HasSuffix(zone, "/core") { // the module's cores use no energy until the CPU is back
					assert.Greater(t, p[i].value, p[i-1].value, "%s while another CPU counts it", zone)
				}
			}
		}
		assert.NotZero(t, moved)
	}
	degraded := 0
	for _, l := range r.perf.log {
		if l.Msg == "Collection degraded" && strings.Contains(l.Error, "permission denied") {
			degraded++
			assert.Contains(t, l.Error, "permission denied: requires CAP_PERFMON and kernel.perf_event_paranoid below 3, which is 3")
		}
	}
	assert.Equal(t, 1, degraded, "until the level is 2; without new perf events")
}

func (r *raplGuest) testReadError(t *testing.T) {
	second := r.id(t, r.root, "1/package")
	for _, c := range r.powercap() {
		name, log := c.name, c.log
		var degraded []string
		for _, l := range log {
			// powercap_sys.c returns EINVAL for every error of the driver.
			if l.Msg == "Collection degraded" && strings.Contains(l.Error, "invalid argument") {
				degraded = append(degraded, l.Error)
			}
		}
		if assert.NotEmpty(t, degraded, name) {
			want := fmt.Sprintf("cannot read %s, %[1]s:0, %[1]s:1: ", second)
			assert.Contains(t, degraded[len(degraded)-1], want, name)
		}
		assert.Equal(t, "Collection recovered", lastCondition(log), name)
		var last time.Time // emission during the failure
		for _, e := range c.emissions {
			if e.at().Before(r.failing.to) {
				last = e.at()
			}
		}
		for _, zone := range zones {
			var before, after sentPoint
			var meanwhile []sentPoint
			for _, p := range r.points(t, c, zone) {
				switch {
				case p.sent.Before(r.failing.from):
					before = p
				case p.sent.Before(last): // the counters are read shortly after the emission's time
					meanwhile = append(meanwhile, p)
				case p.sent.After(r.failing.to):
					after = p
				}
			}
			if strings.HasPrefix(zone, "1/") {
				for _, p := range meanwhile {
					assert.InDelta(t, meanwhile[0].value, p.value, 0, "%s, %s during its failure", name, zone)
				}
			} else if assert.Greater(t, len(meanwhile), 2, "%s, %s", name, zone) {
				assert.Greater(t, meanwhile[len(meanwhile)-1].value, meanwhile[0].value, "%s, %s during the other socket's failure", name, zone)
			}
			// At the end no energy is missing. At least a third of the compared energy was used
			// during the failure.
			late := r.energy(zone, r.failing.to) - r.energy(zone, r.failing.from)
			r.within(t, fmt.Sprintf("%s, %s since before the error, %.1f J of it during the error", name, zone, late), 0.1,
				r.energy(zone, after.at)-r.energy(zone, before.at), after.value-before.value)
		}
	}
}

// lastCondition returns the last logged condition.
func lastCondition(log []logLine) string {
	last := ""
	for _, l := range log {
		if l.Msg == "Collection degraded" || l.Msg == "Collection recovered" {
			last = l.Msg
		}
	}
	return last
}

func (r *raplGuest) testGrant(t *testing.T) {
	assert.Regexp(t, "permission denied.*CAP_DAC_READ_SEARCH", r.plain.degraded())
	assert.NotContains(t, r.capability.degraded(), "permission denied")
	for _, zone := range zones {
		others := 0
		for _, p := range r.points(t, r.root, zone) {
			if p.at.After(r.powered) && p.at.Before(r.granted) {
				others++
			}
		}
		assert.Greater(t, others, 3, "points of root before the grant")
		// Counting begins with the first read after the grant.
		var ratios []float64
		p := r.points(t, r.plain, zone)
		end := p[len(p)-1]
		for i, a := range p {
			// The scrape that found the counters readable may have begun before the grant.
			assert.True(t, i == 0 || a.at.After(r.granted), "%s is reported before the grant, at %v", zone, a.at)
			if a.at.Before(r.failing.from) {
				ratios = append(ratios, (end.value-a.value)/(r.truth[len(r.truth)-1].joules[zone]-r.energy(zone, a.at)))
			}
		}
		slices.Sort(ratios)
		r.within(t, "plain, "+zone+", median of reported/true", 0.01, 1, ratios[len(ratios)/2])
		r.within(t, "plain, "+zone+", since the grant", 0.1, r.truth[len(r.truth)-1].joules[zone]-r.energy(zone, p[0].start), end.value)
	}
}

func (r *raplGuest) testSources(t *testing.T) {
	for _, c := range r.all() {
		want := "clocks"
		if c == r.root {
			want = "bpf (task stream)" // Linux 6.1 has no open-coded task iterators
		}
		assert.Equal(t, want, c.source(), c.name)
		rejected := slices.ContainsFunc(c.log, func(l logLine) bool { return l.Msg == "CPU time source selected" && l.Rejected != "" })
		assert.Equal(t, want == "clocks", rejected, "%s logs the reason for not using BPF", c.name)
	}
}

func (r *raplGuest) testBalance(t *testing.T) {
	for _, c := range r.all() {
		requireBalance(t, c.emissions, "package", "dram", "core", "psys")
		t.Logf("%s: active %.6f J, of which unattributed %.6f J", c.name, total(c.emissions, "system.energy", "energy.zone=package", "energy.state=active"),
			total(c.emissions, "system.unattributed.energy", "energy.zone=package"))
	}
}

func (r *raplGuest) testContainers(t *testing.T) {
	for id, used := range r.used {
		// Both values cover the container's whole life. A tick of /proc is 10 ms.
		bounds := map[*guestCollector]float64{r.root: 0.01, r.capability: 0.02}
		if id == "c3" {
			// Threads are added up before they leave their CPU, which takes long on an emulated
			// CPU.
			bounds = map[*guestCollector]float64{r.root: 0.1, r.capability: 0.1}
		}
		for c, bound := range bounds {
			r.within(t, fmt.Sprintf("%s, CPU seconds of %s", c.name, id), bound, used,
				total(c.emissions, "container.cpu.time", "container.id="+strings.Repeat(id, 32)))
		}
	}
	// The two steady loads ran side by side all the time, so their energy is proportional to CPU
	// time.
	var energy, cpu []float64
	for _, id := range []string{strings.Repeat("a1", 32), strings.Repeat("b2", 32)} {
		energy = append(energy, total(r.root.emissions, "container.energy", "container.id="+id, "energy.zone=package"))
		cpu = append(cpu, total(r.root.emissions, "container.cpu.time", "container.id="+id))
	}
	r.within(t, "energy of two containers by their CPU time", 0.1, cpu[0]/cpu[1], energy[0]/energy[1])
	pod := total(r.root.emissions, "k8s.pod.energy", "k8s.pod.uid=0f7e4c3a-5b1d-4e62-9c8f-2a6d1b3c4d5e", "energy.zone=package")
	assert.InDelta(t, energy[0], pod, 1e-3, "the pod has the energy of its container")
}

// measureSeconds is the CPU time of the measured command.
const measureSeconds = 10

// A busy CPU adds 30 W to its package and 3 W to its memory, for any load. The module counts busy
// time in ticks. On an emulated CPU they differ by some percent from the scheduler's CPU time of a
// process.
func (r *raplGuest) testMeasure(t *testing.T) {
	const starts, ticks = 0.15, 0.25
	for name, by := range map[string]string{"root": "cgroup v2", "user": "child times"} {
		m := r.calculated[name]
		m.requireSums(t)
		assert.Equal(t, by, m.CPUTimeSource, name)
		assert.Zero(t, m.ExitStatus, name)
		assert.InDelta(t, measureSeconds*(1+starts), m.CPUSeconds, measureSeconds*starts, "%s: a start takes long on an emulated CPU", name)
		watts := map[string]float64{"package": 30, "core": 30, "dram": 3}
		require.Len(t, m.Zones, len(watts), name)
		for _, z := range m.Zones {
			what := name + ", " + z.Zone
			assert.Equal(t, "measured", z.Source, what)
			assert.Equal(t, z.Zone != "core", z.Added, what)
			r.within(t, what+" of a command", ticks, watts[z.Zone]*m.CPUSeconds, z.Joules)
			// The counters are read directly before and after the command, which also takes long.
			const around = 4 * time.Second
			ended := m.Started.Add(time.Duration(m.Seconds * float64(time.Second)))
			stall := r.stall(m.Started, ended)
			node := z.NodeActive + z.NodeIdle
			t.Logf("%s of the node: %.3f J; the guest stalls for %v", what, node, stall)
			assert.GreaterOrEqual(t, node, r.nodeEnergy(z.Zone, m.Started.Add(stall), ended.Add(-stall)), what)
			assert.LessOrEqual(t, node, r.nodeEnergy(z.Zone, m.Started.Add(-around), ended.Add(around)), what)
		}
	}
}

// nodeEnergy returns the true energy of a zone kind of both sockets between two times.
func (r *raplGuest) nodeEnergy(kind string, from, until time.Time) (joules float64) {
	for _, socket := range []string{"0/", "1/"} {
		joules += r.energy(socket+kind, until) - r.energy(socket+kind, from)
	}
	return joules
}

// stall returns the longest time between two samples of the truth. A reader in the guest may have
// been interrupted for as long between the clock and a counter.
func (r *raplGuest) stall(from, until time.Time) (longest time.Duration) {
	for i := 1; i < len(r.truth); i++ {
		if a, b := r.truth[i-1].at, r.truth[i].at; b.After(from) && a.Before(until) {
			longest = max(longest, b.Sub(a))
		}
	}
	return longest
}

// within compares a value with the true value and logs the result.
func (*raplGuest) within(t *testing.T, what string, bound, want, got float64) {
	t.Helper()
	off := math.Abs(got-want) / math.Abs(want)
	t.Logf("%s: true %.6f, reported %.6f, off by %.4f %%", what, want, got, 100*off)
	assert.LessOrEqual(t, off, bound, what)
}

// sentPoint is a point with the time of its emission.
type sentPoint struct {
	point
	sent time.Time
}

// points returns the points of a zone that a collector has sent.
func (r *raplGuest) points(t *testing.T, c *guestCollector, zone string) []sentPoint {
	t.Helper()
	id := r.id(t, c, zone)
	var found []sentPoint
	for _, e := range c.emissions {
		points := e.filter("hw.energy", "hw.id="+id)
		if len(points) == 2 { // the series begins
			require.Zero(t, points[0].value)
			points = points[1:]
		}
		require.LessOrEqual(t, len(points), 1, "hw.energy of %s", id)
		for _, p := range points {
			found = append(found, sentPoint{p, e.at()})
		}
	}
	require.NotEmpty(t, found, "hw.energy of %s (%s) by %s", id, zone, c.name)
	return found
}

// id returns a collector's ID of a zone. Powercap's zones outside packages are numbered in order of
// registration: psys comes between the packages.
func (r *raplGuest) id(t *testing.T, c *guestCollector, zone string) string {
	t.Helper()
	socket, kind, _ := strings.Cut(zone, "/")
	if c == r.perf {
		event := map[string]string{"package": "pkg", "core": "cores", "dram": "ram", "psys": "psys"}[kind]
		return "power:energy-" + event + ":" + socket
	}
	within, name := "", kind
	switch kind {
	case "package":
		name = "package-" + socket
	case "core", "dram":
		within = r.id(t, c, socket+"/package") + ":"
	}
	for id, called := range r.zones {
		if called == name && strings.HasPrefix(id, within) {
			return id
		}
	}
	t.Fatalf("the driver made no zone %s: %v", zone, r.zones)
	return ""
}

// energy returns the true energy of a zone at a time, interpolated between two samples.
func (r *raplGuest) energy(zone string, at time.Time) float64 {
	for i, b := range r.truth {
		if b.at.Before(at) {
			continue
		}
		if i == 0 {
			return b.joules[zone]
		}
		a := r.truth[i-1]
		share := float64(at.Sub(a.at)) / float64(b.at.Sub(a.at))
		return a.joules[zone] + share*(b.joules[zone]-a.joules[zone])
	}
	return r.truth[len(r.truth)-1].joules[zone]
}

// wraps returns a lower bound of the wraps of a zone's register until a time.
func (r *raplGuest) wraps(zone string, at time.Time) int {
	n := 0
	for _, s := range r.truth {
		if s.at.After(at) {
			break
		}
		n = s.wraps[zone]
	}
	return n
}

func readTruth(t *testing.T, path string) []truth {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	var all []truth
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		s := truth{joules: map[string]float64{}, wraps: map[string]int{}, at: unixNano(t, fields[0])}
		for _, field := range fields[1:] {
			zone, figures, _ := strings.Cut(field, "=")
			var microjoules uint64
			var wraps int
			_, err := fmt.Sscanf(figures, "%d,%d", &microjoules, &wraps)
			require.NoError(t, err, field)
			s.joules[zone], s.wraps[zone] = float64(microjoules)/1e6, wraps
		}
		require.Len(t, s.joules, len(zones))
		all = append(all, s)
	}
	require.NotEmpty(t, all)
	return all
}

func readLog(t *testing.T, path string) []logLine {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	var all []logLine
	for decoder := json.NewDecoder(file); ; {
		var l logLine
		err := decoder.Decode(&l)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, path)
		all = append(all, l)
	}
}
