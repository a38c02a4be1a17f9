// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"strconv"
	"strings"
)

// permissions reports missing permissions with the commands that grant them.
func (a *analysis) permissions() {
	for _, l := range a.Lacks {
		status := Fault
		if l.Optional {
			status = Note
		}
		a.add(status, "%s. To grant it: %s", l.What, l.Grant)
	}
	if len(a.Lacks) > 0 {
		return
	}
	a.conclude([]string{fmt.Sprintf("%d meters tried", len(a.Meters))}, "No permission is missing", "No meter was tried")
}

// minimal has the oldest version of each backend that works with OTLP, and with scraping.
var minimal = map[string]struct{ otlp, scrape string }{
	"Prometheus":      {"3.0", "2.48"},
	"VictoriaMetrics": {"1.137", "1.79"},
}

// backend compares the version of the backend with the supported ones.
func (a *analysis) backend() {
	b := a.Backend
	switch {
	case b == nil:
		a.add(Unchecked, "No metrics database was named: --backend URL checks its version")
		return
	case b.Err != "":
		a.add(Fault, "The backend does not report its version: %s", b.Err)
		return
	}
	least := minimal[b.Name]
	switch {
	case least.otlp == "":
		a.add(Unchecked, "No minimum version of %s is known", b.Name)
	case older(b.Version, least.scrape):
		a.add(Fault, "%s %s is too old: scraping needs %s, OTLP %s", b.Name, b.Version, least.scrape, least.otlp)
	case older(b.Version, least.otlp):
		a.add(Note, "%s %s is too old for OTLP, which needs %s: let it scrape the collector", b.Name, b.Version, least.otlp)
	default:
		a.add(OK, "%s %s supports OTLP and scraping", b.Name, b.Version)
	}
}

// older reports whether a version such as 2.45.3 is older than another one.
func older(version, than string) bool {
	v, t := strings.Split(strings.TrimPrefix(version, "v"), "."), strings.Split(than, ".")
	for i := range t {
		want, _ := strconv.Atoi(t[i])
		have := 0
		if i < len(v) {
			have, _ = strconv.Atoi(v[i])
		}
		if have != want {
			return have < want
		}
	}
	return false
}

const (
	leastBusy = 0.9 // of the CPUs of a load
	mostIdle  = 0.1 // of all CPUs, at rest
)

// load checks that the loads ran and that the machine rested in between. Steps that did not are not
// evaluated.
func (a *analysis) load() {
	var done []string
	rested := 0
	if all, used := a.Machine.Threads, len(a.Machine.CPUs); used < all {
		a.add(Note, "This process may use %d of %d CPUs only: the others are not loaded", used, all)
	}
	for _, s := range a.Steps {
		if s.Load == Idle {
			busy := a.busy(s.From+settle, s.To, a.Machine.all()) / float64(len(a.Machine.CPUs))
			if busy > mostIdle {
				a.unusable[s] = true
				a.add(Note, "The machine did not rest in step %q: other programs kept %.0f %% of its CPUs busy", s.Name, 100*busy)
			} else {
				rested++
			}
			continue
		}
		run := 0.
		for _, p := range s.Programs {
			run += p.Waited / (s.To - s.From) / float64(len(s.CPUs))
		}
		switch busy := a.busy(s.From+settle, s.To, s.CPUs) / float64(len(s.CPUs)); {
		case run >= leastBusy && busy >= leastBusy:
		case busy >= leastBusy:
			a.unusable[s] = true
			a.add(Note, "The load of step %q got only %.0f %% of its CPUs, because other programs ran: check the machine while it rests", s.Name, 100*run)
			continue
		default:
			a.unusable[s] = true
			a.add(Fault, "The load of step %q got only %.0f %% of its CPUs, which were busy for %.0f %% of the time: a CPU limit or the hypervisor holds it back", s.Name, 100*run, 100*busy)
			continue
		}
		done = append(done, s.Name)
	}
	if rested == 0 && len(a.Steps) > 0 {
		a.add(Note, "No step shows the machine at rest: checks of idle power are left out")
	}
	a.conclude(done, "Each load kept its CPUs busy", "No load kept its CPUs busy: checks under load are not possible")
}
