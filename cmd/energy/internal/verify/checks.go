// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// checks are all checks, those first that others depend on.
var checks = []check{
	{"permissions", false, machine, permissions, "No permission is missing", ""},
	{"backend", false, machine, backend, "OTLP and scraping are supported",
		"No metrics database was named: --backend URL checks its version"},
	{"load", false, loads, load, "Each load kept its CPUs busy", "No load ran"},
	{"reads", true, zones(isMeasured), reads, "Reads do not fail", "No meter was read"},
	{"zero", true, zones(counts), zero, "Every meter reports energy", "No meter was read"},
	{"standstill", true, zones(counts), standstill, "Readings change all the time", "No readings that always change"},
	{"unit", true, zones(isMeasured), unit, "All powers are possible", "No step is long enough"},
	{"temperature", true, zones(isPower), temperature, "No power equals a temperature",
		"No power sensor was compared with a temperature sensor"},
	{"wrap", true, zones(hasCounter), wrap,
		"Counters do not step back other than by a wrap, and the range fits the resolution", "No meter has a counter"},
	{"lag", true, zones(followsCPUs), lag, "No meter is late", "The load did not change long enough to measure a lag"},
	{"load following", true, zones(followsCPUs), following, "Power follows the load",
		"The machine was not at rest and under full load"},
	{"noise", true, zones(followsCPUs), noise, "Readings are steady under a constant load",
		"The steps of constant load are too short"},
	{"sockets", true, packages, sockets, "Each socket is read, by its own meter", "No meter reads sockets one by one"},
	{"agreement", true, pairs, agreement, "Meters of the same thing agree", "No two meters read the same thing"},
	{"parts and whole", true, partsAndWholes, parts, "No part exceeds its whole",
		"No meter reads both a whole and its parts"},
	{"dram", true, memory, dram, "DRAM is plausible", "No meter reads DRAM"},
	{"closure", true, platforms, closure, "The balance closes", "No meters read both the whole machine and its parts"},
	{"sums", false, classes, sums, "The receiver's sums hold to the microjoule", "The receiver reported no energy"},
	{"totals", true, measuredClasses, totals, "The receiver and the meters count the same energy",
		"The receiver reads no meter"},
	{"symmetry", false, classesInSteps, symmetry, "Equal programs get equal energy per CPU second",
		"No step that can be evaluated has two equal programs with energy"},
	{"static power", true, measuredClasses, staticPower, "Trained static power is the power at rest",
		"The receiver separates no static power of a meter"},
	{"standard error", true, measuredClasses, standardError, "The standard error covers the deviation",
		"The receiver reported no standard error in this time"},
	{"cpu time", false, timeSources, cpuTime, "CPU times of the sources agree with the kernel's own", "No load ran"},
	{"gpu", false, gpus, gpu, "GPU power follows GPU time", "This machine has no GPU that can be read"},
}

// machine returns the machine as a whole.
func machine(*analysis) []*subject { return []*subject{{}} }

// permissions reports missing permissions with the commands that grant them.
func permissions(j *judge) {
	for _, l := range j.Lacks {
		status := Fault
		if l.Optional {
			status = Note
		}
		j.say(status, "%s. To grant it: %s", l.What, l.Grant)
	}
	j.known = len(j.Lacks) == 0
	j.list("%d meters tried", len(j.Meters))
}

// minimal has the oldest version of each backend that works with OTLP, and with scraping.
var minimal = map[string]struct{ otlp, scrape string }{
	"Prometheus":      {"3.0", "2.48"},
	"VictoriaMetrics": {"1.137", "1.79"},
}

// backend compares the version of the backend with the supported ones.
func backend(j *judge) {
	b := j.Backend
	if b == nil {
		return
	}
	least := minimal[b.Name]
	switch {
	case b.Err != "":
		j.fail(Fault, "The backend does not report its version: %s", b.Err)
	case least.otlp == "":
		j.fail(Unchecked, "%s has no stated minimum version", b.Name)
	case older(b.Version, least.scrape):
		j.fail(Fault, "%s %s is too old: scraping needs %s, OTLP %s", b.Name, b.Version, least.scrape, least.otlp)
	case older(b.Version, least.otlp):
		j.fail(Note, "%s %s is too old for OTLP, which needs %s: let it scrape the collector", b.Name, b.Version, least.otlp)
	}
	j.known = true
	j.list("%s %s", b.Name, b.Version)
}

// older reports whether a version such as 2.45.3 is older than another one.
func older(version, than string) bool {
	numbers := func(version string) (of []int) {
		for number := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
			n, _ := strconv.Atoi(number) // 0 for other text
			of = append(of, n)
		}
		return of
	}
	return slices.Compare(numbers(version), numbers(than)) < 0
}

// loads returns all steps, and then the machine as a whole.
func loads(a *analysis) []*subject {
	return append(inSteps(a, &subject{}, Spin, Memory, Idle), &subject{})
}

// load checks that the loads ran and that the machine rested in between. Steps that did not are not
// evaluated.
func load(j *judge) {
	if s := j.step; s == nil {
		if all, used := j.Machine.Threads, len(j.Machine.CPUs); used < all {
			j.say(Note, "This process may use %d of %d CPUs only: the others are not loaded", used, all)
		}
		if len(j.steps(Idle)) == 0 {
			j.say(Note, "No step shows the machine at rest: checks of idle power are left out")
		}
		if len(j.steps(Spin, Memory)) == 0 {
			j.say(Unchecked, "No load kept its CPUs busy: checks under load are not possible")
		}
		return
	} else if s.Load == Idle {
		if busy := 100 * j.busy(s, j.Machine.all()); busy > 10 {
			j.fail(Note, "The machine did not rest in step %q: other programs kept %.0f %% of its CPUs busy", s.Name, busy)
		}
		return
	}
	run, busy := 0., 100*j.busy(j.step, j.step.CPUs)
	for _, p := range j.step.Programs {
		run += 100 * p.Waited / (j.step.To - j.step.From) / float64(len(j.step.CPUs))
	}
	j.atLeast(busy, 90, "The load of step %q got only %.0f %% of its CPUs, which were busy for %.0f %% of the time: "+
		"a CPU limit or the hypervisor holds it back", j.step.Name, run, busy)
	if run < 90 {
		j.fail(Note, "The load of step %q got only %.0f %% of its CPUs, because other programs ran: "+
			"check the machine while it rests", j.step.Name, run)
	}
	j.list("%s", j.step.Name)
}

// inSteps returns a subject in each step with one of these loads that can be evaluated.
func inSteps(a *analysis, s *subject, loads ...Load) (found []*subject) {
	for _, step := range a.steps(loads...) {
		at := *s
		at.step = step
		found = append(found, &at)
	}
	return found
}

// zones returns a function that returns the measured zones that satisfy is.
func zones(is func(*Zone) bool) func(*analysis) []*subject {
	return func(a *analysis) (found []*subject) {
		for _, z := range a.Zones {
			if isMeasured(z) && is(z) {
				found = append(found, &subject{name: fmt.Sprintf("%s %s", z.Meter, z.ID), zones: []*Zone{z}})
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

func hasCounter(z *Zone) bool { return len(z.Raw) > 1 }

func isPower(z *Zone) bool { return len(z.Raw) == 0 }

func reads(j *judge) {
	z := j.zones[0]
	j.atMost(100*float64(z.Failed)/float64(z.Reads), 1, "%d of %d reads of %s failed", z.Failed, z.Reads, j.name)
}
