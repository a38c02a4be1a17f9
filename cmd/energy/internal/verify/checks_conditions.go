// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"
	"strconv"
	"strings"
)

// machine returns the machine as a whole.
func machine(*analysis) []*judgment { return []*judgment{{}} }

// minimal has the oldest version of each backend that works with OTLP, and with scraping.
var minimal = map[string]struct{ otlp, scrape string }{
	"Prometheus":      {"3.0", "2.48"},
	"VictoriaMetrics": {"1.137", "1.79"},
}

// versionOfBackend compares the version of the backend with the supported ones.
func versionOfBackend(j *judgment) {
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
func loads(a *analysis) (found []*judgment) {
	for _, s := range a.Steps {
		found = append(found, &judgment{step: s})
	}
	return append(found, &judgment{})
}

// load checks that the loads ran and that the machine rested in between. Steps that did not are not
// evaluated.
func load(j *judgment) {
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
