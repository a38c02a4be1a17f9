// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// chosenOf returns the meter that the receiver reads each zone kind from: the first in use that
// reads it.
func chosenOf(status []power.Status) map[power.Kind]string {
	took := map[power.Kind]string{}
	for i := range status {
		for _, r := range status[i].Readings {
			if took[r.Zone.Kind] == "" && status[i].InUse && !r.At.IsZero() {
				took[r.Zone.Kind] = status[i].Name
			}
		}
	}
	return took
}

// explain sets the zone kinds that the receiver reads from each meter, and the reason. took has the
// meter of each kind.
func explain(status []power.Status, took map[power.Kind]string, cfg *energyreceiver.Config) (meters []Meter) {
	for i := range status {
		s := &status[i]
		m := Meter{Name: s.Name}
		for _, kind := range power.Kinds {
			if took[kind] == s.Name {
				m.Chosen = append(m.Chosen, kind)
			}
		}
		leads := func(o power.Status) bool { return o.Family != "" && o.Family == s.Family && o.InUse }
		leader := slices.IndexFunc(status, leads)
		switch {
		case len(m.Chosen) > 0 && s.StandsIn:
			m.Why = fmt.Sprintf("it estimates %s, which no meter reads", names(m.Chosen))
		case len(m.Chosen) > 0:
			m.Why = fmt.Sprintf("it is the first of %s that reads %s", names(cfg.Meters.Use), names(m.Chosen))
		case s.Replaced && leader >= 0:
			m.Why = fmt.Sprintf("it reads the same registers as %s, which is preferred", status[leader].Name)
		case s.Err != nil && !drivers.Lookup(s.Name).Local && !s.StandsIn:
			m.Why = "it is configured but cannot be read"
		case s.Err != nil:
			m.Why, m.Absent = firstLine(s.Err), errors.Is(s.Err, fs.ErrNotExist)
		case s.StandsIn:
			m.Why = "meters read every zone that it could estimate"
		case s.Replaced || len(s.Readings) > 0:
			m.Why = "preferred meters read its zones"
		default:
			m.Why = "it has not responded"
		}
		meters = append(meters, m)
	}
	return meters
}

// names lists zone kinds or meters.
func names[T ~string](kinds []T) string {
	var texts []string
	for _, kind := range kinds {
		texts = append(texts, string(kind))
	}
	return strings.Join(texts, ", ")
}

// firstLine returns the first cause of an error.
func firstLine(err error) string {
	text, _, _ := strings.Cut(oneline.Text(err), "; ")
	return text
}

// lacks returns the missing permissions. bpf is the reason why BPF is not used, or nil.
func lacks(status []power.Status, bpf error, m *Machine) (found []Lack) {
	of := func(name string) (found power.Status) {
		if i := slices.IndexFunc(status, func(s power.Status) bool { return s.Name == name }); i >= 0 {
			found = status[i]
		}
		return found
	}
	denied := func(s power.Status) bool {
		return errors.Is(s.Err, fs.ErrPermission) ||
			slices.ContainsFunc(s.Readings, func(r power.Reading) bool { return errors.Is(r.Err, fs.ErrPermission) })
	}
	var capabilities []string // of this program
	need := func(optional bool, what string, capability ...string) {
		capabilities = append(capabilities, capability...)
		found = append(found, Lack{What: what, Optional: optional})
	}
	powercap, perf := of("powercap"), of("perf")
	absent := errors.Is(powercap.Err, fs.ErrNotExist) && errors.Is(perf.Err, fs.ErrNotExist)
	switch {
	case powercap.InUse && !denied(powercap) || perf.InUse && !denied(perf):
	case denied(powercap):
		need(false, "Only root can read the energy counters of powercap", "cap_dac_read_search")
	case denied(perf):
		need(false, "The energy counters of perf are not permitted "+
			"(kernel.perf_event_paranoid above 2 also denies them)", "cap_perfmon")
	case absent && !m.Virtual && m.Arch == "amd64":
		found = append(found, Lack{What: "The kernel's RAPL driver is not loaded", Grant: "sudo modprobe intel_rapl_msr"})
	}
	if errors.Is(bpf, fs.ErrPermission) {
		need(true, "BPF, which counts the CPU time of processes exactly, is not permitted", "cap_bpf", "cap_perfmon")
	}
	slices.Sort(capabilities)
	all := strings.Join(slices.Compact(capabilities), ",")
	for i := range found {
		if found[i].Grant == "" { // one command: setcap replaces the capabilities
			found[i].Grant = fmt.Sprintf(`sudo setcap %s+ep "$(command -v energy)"`, all)
		}
	}
	if denied(of("ipmi")) {
		found = append(found, Lack{"The device of the BMC cannot be opened", `sudo setfacl -m "u:$USER:r" /dev/ipmi0`, true})
	}
	return found
}
