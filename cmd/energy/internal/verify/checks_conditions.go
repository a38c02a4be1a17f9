// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
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
		j.fail(Fault, "%s %s is too old: scraping requires %s, OTLP %s", b.Name, b.Version, least.scrape, least.otlp)
	case older(b.Version, least.otlp):
		j.fail(Note, "%s %s is too old for OTLP, which requires %s: let it scrape the collector", b.Name, b.Version, least.otlp)
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

// load checks that the loads ran and that the machine rested in between. Steps that did not are not
// evaluated.
func load(j *judgment) {
	var restless, slow []string
	for _, s := range j.Steps {
		run, busy, all := 0., 100*j.busy(s, s.CPUs), 100*j.busy(s, j.Machine.all())
		for _, p := range s.Programs {
			run += 100 * p.Waited / (s.To - s.From) / float64(len(s.CPUs))
		}
		j.blamed[s] = true
		switch {
		case s.Load == Idle && all > 10:
			restless = append(restless, fmt.Sprintf("%.0f %% in step %q", all, s.Name))
		case s.Load != Idle && busy < 90:
			j.say(Fault, "The load of step %q got only %.0f %% of its CPUs, which were busy for %.0f %% of the time: "+
				"a CPU limit or the hypervisor throttles it", s.Name, run, busy)
		case s.Load != Idle && run < 90:
			slow = append(slow, fmt.Sprintf("%.0f %% in step %q", run, s.Name))
		default:
			j.blamed[s] = false
		}
	}
	if len(restless) > 0 {
		j.say(Note, "The machine was not idle between the loads: other programs kept CPUs busy, %s", strings.Join(restless, ", "))
	}
	if len(slow) > 0 {
		j.say(Note, "The loads got only a part of their CPUs, because other programs ran: %s. "+
			"Repeat the check on an idle machine", strings.Join(slow, ", "))
	}
	if all, used := j.Machine.Threads, len(j.Machine.CPUs); used < all {
		j.say(Note, "This process may use only %d of %d CPUs; the others are not loaded", used, all)
	}
	if len(j.steps(Idle)) == 0 {
		j.say(Note, "No step shows the machine at rest, so idle power is not checked")
	}
	loads := len(j.steps(Spin, Memory))
	if j.known = loads > 0; !j.known {
		j.say(Unchecked, "No load kept its CPUs busy: checks under load are not possible")
	}
	j.list("%d steps", loads)
}
