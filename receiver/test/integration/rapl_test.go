// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// raplRun holds the data that a guest has sent of its run: see guest/rapl.go.
type raplRun struct {
	dir   string
	truth []truth
	facts struct {
		Kernel             string
		Zones, Modes       map[string]string
		Powered, Granted   time.Time
		Moved, Back        time.Time
		CPUMasks           []string
		Paranoid           string
		Failing, Recovered time.Time
		Groups             map[string]uint64
		Measured           map[string]int
		Left               []string
		Exits              map[string]string
	}
	// by the collector's name: root, capability, plain, perf
	emissions map[string][]emission
	logs      map[string][]logLine
}

// truth is the module's true energy at one time.
type truth struct {
	at     time.Time
	joules map[string]float64 // by zone: package number/kind
	wraps  map[string]int
}

type logLine struct {
	Msg, Source, Rejected, Error, What, Condition string
}

// zones are the zones that the driver makes of the registers of two packages.
var zones = []string{"0/package", "0/core", "0/dram", "1/package", "1/core", "1/dram", "0/psys"}

// raplSeconds is how long the guest is measured at least, before the fault.
func raplSeconds(t *testing.T) int {
	text := os.Getenv("RAPL_SECONDS")
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "RAPL_SECONDS")
	return n
}

// The kernel's own RAPL driver, on registers whose true energy is known, and collectors that read
// it side by side: as root, as a user with CAP_DAC_READ_SEARCH alone, and as a user without. One
// more reads the same energy by perf events, as a user with CAP_PERFMON alone.
func TestRAPLDriverInAGuest(t *testing.T) {
	need(t)
	qemu := program(t, "qemu-system-x86_64", "qemu-system-x86")
	k := debianKernel(t)
	r := runGuest(t, qemu, k)
	t.Logf("Linux %s, %d samples of the true energy", r.facts.Kernel, len(r.truth))

	t.Run("CountersAreReadableForRootOnly", r.testModes)
	t.Run("EveryCounterWrapsWhileItIsRead", r.testWraps)
	t.Run("EnergyIsTheTrueOneWhileItIsUsed", r.testRates)
	t.Run("EnergyIsTheTrueOneInAll", r.testTotals)
	t.Run("PerfEventsAreThatEnergyToo", r.testPerf)
	t.Run("EnergyOfAZoneThatFailsIsLateNotLost", r.testReadError)
	t.Run("WithoutTheCapabilityNothingIsReportedUntilItIsGranted", r.testGrant)
	t.Run("CPUTimesComeByBPFWhereAllowed", r.testSources)
	t.Run("ProcessesAndUnattributedAreActive", r.testBalance)
	t.Run("ContainersHaveTheCPUTimeOfTheirCgroups", r.testContainers)
	t.Run("ACommandHasTheEnergyOfItsCPUTime", r.testMeasure)
	t.Run("CollectorsEndInOrder", func(t *testing.T) {
		for name, err := range r.facts.Exits {
			assert.Empty(t, err, name)
		}
		assert.Len(t, r.facts.Exits, 4)
	})
}

func (r *raplRun) testModes(t *testing.T) {
	assert.Len(t, r.facts.Modes, len(zones))
	for id, mode := range r.facts.Modes {
		assert.Equal(t, "0400", mode, id)
	}
}

func (r *raplRun) testWraps(t *testing.T) {
	for _, name := range []string{"root", "capability"} {
		for _, zone := range zones {
			p := r.points(t, name, zone)
			before, after := r.wraps(zone, p[0].start), r.wraps(zone, p[len(p)-1].at)
			assert.Zero(t, before, "wraps of %s before %s read it", zone, name)
			assert.NotZero(t, after, "wraps of %s while %s read it", zone, name)
		}
	}
}

// The energy between two times is compared with the true one, so the collector's time stamps are tested too. A reader
// that is interrupted between the clock and the counter has an error of that length. The test therefore takes the
// median of many pairs of times, and the first and the last of a minute.
func (r *raplRun) testRates(t *testing.T) {
	for _, name := range []string{"root", "capability", "plain", "perf"} {
		for _, zone := range zones {
			var within []sentPoint
			for _, p := range r.points(t, name, zone) {
				if p.at.After(r.facts.Granted) && p.at.Before(r.facts.Failing) {
					within = append(within, p)
				}
			}
			n := len(within)
			require.Greater(t, n, 8, "%s, %s", name, zone)
			var ratios []float64
			for i, a := range within[:n/2] {
				b := within[i+n/2]
				ratios = append(ratios, (b.value-a.value)/(r.energy(zone, b.at)-r.energy(zone, a.at)))
			}
			slices.Sort(ratios)
			what := fmt.Sprintf("%s, %s", name, zone)
			bound := 0.01
			if name == "perf" && strings.HasPrefix(zone, "1/") {
				bound = 0.05 // most pairs have the time in between in which no CPU counted
			}
			r.within(t, what+", median of reported/true", bound, 1, ratios[len(ratios)/2])

			a, b := within[0], within[n-1]
			if b.at.Sub(a.at) < time.Minute {
				bound = math.Inf(1)
			}
			r.within(t, fmt.Sprintf("%s, first and last in %.1f s", what, b.at.Sub(a.at).Seconds()), bound,
				r.energy(zone, b.at)-r.energy(zone, a.at), b.value-a.value)
		}
	}
}

// No power is drawn before the baselines and after the last collections, so time stamps do not matter. What remains are
// the arithmetic and the units of the driver (61.035 instead of 61.035156 µJ).
func (r *raplRun) testTotals(t *testing.T) {
	for _, name := range []string{"root", "capability"} {
		for _, zone := range zones {
			p := r.points(t, name, zone)
			r.within(t, name+", "+zone, 0.0001, r.truth[len(r.truth)-1].joules[zone], p[len(p)-1].value)
		}
	}
}

// Perf events count from 0 in 2^-32 J, so nothing is lost to the driver's units. One CPU of the
// second package goes offline meanwhile, and the other takes over its counters. For some
// milliseconds of that, an RCU grace period, none counts (perf_pmu_migrate_context). Psys is a zone
// from when it has counted, so its first interval is missing.
func (r *raplRun) testPerf(t *testing.T) {
	assert.Equal(t, []string{"0,2", "0,3", "0,3"}, r.facts.CPUMasks)
	for _, zone := range zones {
		p := r.points(t, "perf", zone)
		toTruth, toPowercap := 0.00001, 0.0001
		switch {
		case strings.HasPrefix(zone, "1/"):
			toTruth, toPowercap = 0.005, 0.005
		case zone == "0/psys":
			toTruth, toPowercap = 0.05, 0.05
		}
		r.within(t, "perf, "+zone, toTruth, r.truth[len(r.truth)-1].joules[zone], p[len(p)-1].value)
		powercap := r.points(t, "root", zone)
		r.within(t, "perf against powercap, "+zone, toPowercap, powercap[len(powercap)-1].value, p[len(p)-1].value)

		moved := 0
		for i := 1; i < len(p); i++ {
			if p[i-1].at.After(r.facts.Moved) && p[i].at.Before(r.facts.Back) {
				moved++
				if !strings.HasSuffix(zone, "/core") { // the module's cores use nothing until the CPU is back
					assert.Greater(t, p[i].value, p[i-1].value, "%s while another CPU counts it", zone)
				}
			}
		}
		assert.NotZero(t, moved)
	}
	assert.Equal(t, "3", r.facts.Paranoid, "Debian's own level")
	degraded := 0
	for _, l := range r.logs["perf"] {
		if l.Msg == "Collection degraded" {
			degraded++
			assert.Contains(t, l.Error, "permission denied: it takes CAP_PERFMON and kernel.perf_event_paranoid below 3, which is 3")
		}
	}
	assert.Equal(t, 1, degraded, "until the level is 2; nothing is opened anew")
}

func (r *raplRun) testReadError(t *testing.T) {
	second := r.id(t, "root", "1/package")
	for _, name := range []string{"root", "capability", "plain"} {
		log := r.logs[name]
		var degraded []string
		for _, l := range log {
			// powercap_sys.c returns EINVAL whatever the driver's error is.
			if l.Msg == "Collection degraded" && strings.Contains(l.Error, "invalid argument") {
				degraded = append(degraded, l.Error)
			}
		}
		if assert.NotEmpty(t, degraded, name) {
			want := fmt.Sprintf("cannot read %s, %[1]s:0, %[1]s:1: ", second)
			assert.Contains(t, degraded[len(degraded)-1], want, name)
		}
		assert.Equal(t, "Collection recovered", lastCondition(log), name)
		var last time.Time // emission while the socket fails
		for _, e := range r.emissions[name] {
			if e.at().Before(r.facts.Recovered) {
				last = e.at()
			}
		}
		for _, zone := range zones {
			var before, after sentPoint
			var meanwhile []sentPoint
			for _, p := range r.points(t, name, zone) {
				switch {
				case p.sent.Before(r.facts.Failing):
					before = p
				case p.sent.Before(last): // the counters are read a little later than the emission's time
					meanwhile = append(meanwhile, p)
				case p.sent.After(r.facts.Recovered):
					after = p
				}
			}
			if strings.HasPrefix(zone, "1/") {
				for _, p := range meanwhile {
					assert.InDelta(t, meanwhile[0].value, p.value, 0, "%s, %s while it fails", name, zone)
				}
			} else if assert.Greater(t, len(meanwhile), 2, "%s, %s", name, zone) {
				assert.Greater(t, meanwhile[len(meanwhile)-1].value, meanwhile[0].value, "%s, %s while the other socket fails", name, zone)
			}
			// At the end nothing is missing. The energy used during the failure is at least a third of it.
			late := r.energy(zone, r.facts.Recovered) - r.energy(zone, r.facts.Failing)
			r.within(t, fmt.Sprintf("%s, %s from before the error, %.1f J of it meanwhile", name, zone, late), 0.1,
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

func (r *raplRun) testGrant(t *testing.T) {
	var first logLine
	for _, l := range r.logs["plain"] {
		if l.Msg == "Collection degraded" {
			first = l
			break
		}
	}
	assert.Contains(t, first.Error, "permission denied")
	assert.Contains(t, first.Error, "CAP_DAC_READ_SEARCH")
	for _, l := range r.logs["capability"] {
		assert.NotContains(t, l.Error, "permission denied")
	}
	for _, zone := range zones {
		others := 0
		for _, p := range r.points(t, "root", zone) {
			if p.at.After(r.facts.Powered) && p.at.Before(r.facts.Granted) {
				others++
			}
		}
		assert.Greater(t, others, 3, "points of root before the grant")
		// Counting begins with the first read after the grant.
		var ratios []float64
		p := r.points(t, "plain", zone)
		end := p[len(p)-1]
		for i, a := range p {
			// The scrape that found them readable may have begun before they were.
			assert.True(t, i == 0 || a.at.After(r.facts.Granted), "%s is reported before the grant, at %v", zone, a.at)
			if a.at.Before(r.facts.Failing) {
				ratios = append(ratios, (end.value-a.value)/(r.truth[len(r.truth)-1].joules[zone]-r.energy(zone, a.at)))
			}
		}
		slices.Sort(ratios)
		r.within(t, "plain, "+zone+", median of reported/true", 0.01, 1, ratios[len(ratios)/2])
		r.within(t, "plain, "+zone+", since the grant", 0.1, r.truth[len(r.truth)-1].joules[zone]-r.energy(zone, p[0].start), end.value)
	}
}

func (r *raplRun) testSources(t *testing.T) {
	for name, want := range map[string]string{"root": "bpf (task stream)", "capability": "clocks", "plain": "clocks", "perf": "clocks"} {
		said := ""
		for _, l := range r.logs[name] {
			if l.Msg == "CPU time source selected" {
				said = l.Source
				t.Logf("%s: %s, rejected: %q", name, l.Source, l.Rejected)
				assert.Equal(t, want == "clocks", l.Rejected != "", "%s logs why it did not use BPF", name)
			}
		}
		assert.Equal(t, want, said, name)
	}
}

func (r *raplRun) testBalance(t *testing.T) {
	for name, emissions := range r.emissions {
		requireBalance(t, emissions, "package", "dram", "core", "psys")
		active := total(emissions, "system.energy", "energy.zone=package", "energy.state=active")
		t.Logf("%s: active %.6f J, of which unattributed %.6f J", name, active,
			total(emissions, "system.unattributed.energy", "energy.zone=package"))
	}
}

func (r *raplRun) testContainers(t *testing.T) {
	require.Len(t, r.facts.Groups, 3)
	for group, usage := range r.facts.Groups {
		id := group[strings.LastIndexByte(group, '/')+1:]
		id = strings.TrimSuffix(strings.TrimPrefix(id, "docker-"), ".scope")
		// Both count from the container's start to its end. A tick of /proc is 10 ms.
		cgroup := float64(usage) / 1e6
		bounds := map[string]float64{"root": 0.01, "capability": 0.02}
		if strings.HasPrefix(id, "c3") {
			// Threads are added up before they have left their CPU, which takes long on an emulated one.
			bounds = map[string]float64{"root": 0.1, "capability": 0.1}
		}
		for name, bound := range bounds {
			r.within(t, fmt.Sprintf("%s, CPU seconds of %.2s", name, id), bound, cgroup,
				total(r.emissions[name], "container.cpu.time", "container.id="+id))
		}
	}
	// The two steady loads ran side by side all the time: energy is shared like CPU time.
	var energy, cpu []float64
	for _, id := range []string{strings.Repeat("a1", 32), strings.Repeat("b2", 32)} {
		energy = append(energy, total(r.emissions["root"], "container.energy", "container.id="+id, "energy.zone=package"))
		cpu = append(cpu, total(r.emissions["root"], "container.cpu.time", "container.id="+id))
	}
	r.within(t, "energy of two containers by their CPU time", 0.1, cpu[0]/cpu[1], energy[0]/energy[1])
	pod := total(r.emissions["root"], "k8s.pod.energy", "k8s.pod.uid=0f7e4c3a-5b1d-4e62-9c8f-2a6d1b3c4d5e", "energy.zone=package")
	assert.InDelta(t, energy[0], pod, 1e-3, "the pod has the energy of its container")
}

// A busy CPU adds 30 W to its package and 3 W to its memory, whatever keeps it busy. The module
// knows that by ticks, which on an emulated CPU differ by some percent from the time that the
// scheduler counts for a process.
func (r *raplRun) testMeasure(t *testing.T) {
	const seconds, starts, ticks = 3, 1.2, 0.25
	assert.Equal(t, map[string]int{"root": 124, "user": 0}, r.facts.Measured, "exit statuses; root has a limit of 10 J")
	assert.Empty(t, r.facts.Left, "cgroups that are left")
	for name, by := range map[string]string{"root": "cgroup v2", "user": "child times"} {
		m := readMeasured(t, filepath.Join(r.dir, "measure-"+name+".json"))
		m.requireSums(t)
		assert.Equal(t, by, m.CPUTimeSource, name)
		assert.Zero(t, m.ExitStatus, name)
		assert.InDelta(t, seconds+starts/2, m.CPUSeconds, starts/2, "%s: a start takes long on an emulated CPU", name)
		watts := map[string]float64{"package": 30, "core": 30, "dram": 3}
		require.Len(t, m.Zones, len(watts), name)
		for _, z := range m.Zones {
			what := name + ", " + z.Zone
			assert.Equal(t, "measured", z.Source, what)
			assert.Equal(t, z.Zone != "core", z.Added, what)
			r.within(t, what+" of a command", ticks, watts[z.Zone]*m.CPUSeconds, z.Joules)
			// The counters are read right before and after it, which takes long, too.
			const around = 4 * time.Second
			ended := m.Started.Add(time.Duration(m.Seconds * float64(time.Second)))
			node := z.NodeActive + z.NodeIdle
			t.Logf("%s of the node: %.3f J", what, node)
			assert.GreaterOrEqual(t, node, 0.98*r.nodeEnergy(z.Zone, m.Started, ended), what)
			assert.LessOrEqual(t, node, r.nodeEnergy(z.Zone, m.Started.Add(-around), ended.Add(around)), what)
		}
	}
}

// nodeEnergy returns the true energy of a zone kind of both sockets between two times.
func (r *raplRun) nodeEnergy(kind string, from, until time.Time) (joules float64) {
	for _, socket := range []string{"0/", "1/"} {
		joules += r.energy(socket+kind, until) - r.energy(socket+kind, from)
	}
	return joules
}

// within compares a figure with the true one and logs the result.
func (*raplRun) within(t *testing.T, what string, bound, want, got float64) {
	t.Helper()
	off := math.Abs(got-want) / math.Abs(want)
	t.Logf("%s: true %.6f, reported %.6f, off by %.4f %%", what, want, got, 100*off)
	assert.LessOrEqual(t, off, bound, what)
}

// sentPoint is a point and when its emission was.
type sentPoint struct {
	point
	sent time.Time
}

// points returns the points that a collector has sent of a zone.
func (r *raplRun) points(t *testing.T, name, zone string) []sentPoint {
	t.Helper()
	id := r.id(t, name, zone)
	var found []sentPoint
	for _, e := range r.emissions[name] {
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
	require.NotEmpty(t, found, "hw.energy of %s (%s) by %s", id, zone, name)
	return found
}

// id returns a collector's id of a zone. Of powercap's, those outside of packages are numbered in
// order of registration: psys comes between the packages.
func (r *raplRun) id(t *testing.T, collector, zone string) string {
	t.Helper()
	socket, kind, _ := strings.Cut(zone, "/")
	if collector == "perf" {
		event := map[string]string{"package": "pkg", "core": "cores", "dram": "ram", "psys": "psys"}[kind]
		return "power:energy-" + event + ":" + socket
	}
	within, name := "", kind
	switch kind {
	case "package":
		name = "package-" + socket
	case "core", "dram":
		within = r.id(t, collector, socket+"/package") + ":"
	}
	for id, called := range r.facts.Zones {
		if called == name && strings.HasPrefix(id, within) {
			return id
		}
	}
	t.Fatalf("the driver made no zone %s: %v", zone, r.facts.Zones)
	return ""
}

// energy returns the true energy of a zone at a time, interpolated between two samples.
func (r *raplRun) energy(zone string, at time.Time) float64 {
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

// wraps returns how often a zone's register had certainly wrapped at a time.
func (r *raplRun) wraps(zone string, at time.Time) int {
	n := 0
	for _, s := range r.truth {
		if s.at.After(at) {
			break
		}
		n = s.wraps[zone]
	}
	return n
}

// runGuest boots the guest and returns what it has sent.
func runGuest(t *testing.T, qemu string, k kernel) *raplRun {
	t.Helper()
	dir := filepath.Join(cache(t), "rapl") // kept for inspection
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	initramfs := filepath.Join(t.TempDir(), "initramfs")
	writeInitramfs(t, initramfs, map[string]string{
		"init":                 build(t, "guest"),
		"load":                 build(t, "load"),
		"otelcol-energy":       collectorBinary(t),
		"energy":               energyBinary(t),
		"intel_rapl_common.ko": k.raplDriver(),
		"emulated_rapl.ko":     k.buildModule(t, "rapl", "emulated_rapl"),
	})
	seconds := raplSeconds(t)
	// The driver knows CPUs by their model. With tsc=unstable the guest's clock is not the emulated TSC, whose rate a busy
	// host makes the kernel measure wrongly.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute+2*time.Duration(seconds)*time.Second)
	defer cancel()
	sent, console := filepath.Join(dir, "results.tar.gz"), filepath.Join(dir, "console.log")
	cmd := exec.CommandContext(ctx, qemu,
		"-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "Skylake-Server", "-smp", "4,sockets=2,cores=2", "-m", "1G",
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "file:"+console, "-serial", "file:"+sent,
		"-kernel", k.image(), "-initrd", initramfs,
		"-append", "console=ttyS0 quiet panic=-1 tsc=unstable guest.seconds="+strconv.Itoa(seconds))
	out, err := cmd.CombinedOutput()
	said, _ := os.ReadFile(console)
	require.NoErrorf(t, err, "%s\n%s\n%s", cmd, out, said)
	unpack(t, sent, dir, string(said))

	r := &raplRun{dir: dir, emissions: map[string][]emission{}, logs: map[string][]logLine{}}
	if why, err := os.ReadFile(filepath.Join(dir, "failed")); err == nil {
		t.Fatalf("the guest failed, see %s: %s", dir, why)
	}
	text, err := os.ReadFile(filepath.Join(dir, "facts.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r.facts))
	r.truth = readTruth(t, filepath.Join(dir, "truth.txt"))
	for _, name := range []string{"root", "capability", "plain", "perf"} {
		r.emissions[name] = readEmissions(t, filepath.Join(dir, name+".json"))
		r.logs[name] = readLog(t, filepath.Join(dir, name+".log"))
	}
	return r
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

func unpack(t *testing.T, from, to, console string) {
	t.Helper()
	file, err := os.Open(from)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewReader(file)
	require.NoErrorf(t, err, "the guest sent nothing:\n%s", console)
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		out, err := os.Create(filepath.Join(to, filepath.Base(header.Name)))
		require.NoError(t, err)
		_, err = io.Copy(out, archive)
		require.NoError(t, err)
		require.NoError(t, out.Close())
	}
}
