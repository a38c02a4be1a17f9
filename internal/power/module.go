// SPDX-License-Identifier: Apache-2.0

package power

import (
	"fmt"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// module derives the energy of a GPU whose meter measures a module with a CPU socket. It subtracts
// the energy of the socket from the energy of the module, by the rules of Remainder. While the
// socket cannot be read, its energy counts as energy of the GPU.
type module struct {
	difference
	zone   *Zone     // zone of the GPU
	socket time.Time // sample time of the last reading of the socket, at first of the module
	err    error
}

// separateModules replaces readings of modules with derived readings of their GPUs.
func (s *Set) separateModules() {
	for _, m := range s.modules {
		m.err = nil
	}
	for i := range s.readings {
		if r := &s.readings[i]; r.Zone.Includes != "" && !r.At.IsZero() {
			s.moduleOf(r.Zone).derive(r, s.readings, s.hasOneModule(), s.sample.At)
		}
	}
}

// hasOneModule reports whether the machine has one module and one CPU socket, which then belong
// together, whatever the number of the socket. Of a machine with several, one GPU may be visible.
func (s *Set) hasOneModule() bool {
	modules, socket := 0, units.NodeCPUs
	for i := range s.readings {
		z := s.readings[i].Zone
		if z.Includes != "" {
			modules++
		}
		if !isPart(z.Kind, PSys) || z.Domain == units.NodeCPUs {
			continue
		}
		if socket != units.NodeCPUs && socket != z.Domain {
			return false
		}
		socket = z.Domain
	}
	return modules == 1
}

// moduleOf returns the module of a GPU.
func (s *Set) moduleOf(gpu *Zone) *module {
	i := slices.IndexFunc(s.modules, func(m *module) bool { return m.zone.ID == gpu.ID })
	switch {
	case i < 0:
		i = len(s.modules)
		s.modules = append(s.modules, &module{zone: gpu, socket: s.sample.At})
	case s.modules[i].zone != gpu:
		s.modules[i] = &module{zone: gpu, socket: s.sample.At}
	}
	return s.modules[i]
}

// ModuleErr returns an error if the energy of a GPU contains the energy of a CPU socket.
func (s *Set) ModuleErr() error {
	for _, m := range s.modules {
		if m.err != nil {
			return m.err
		}
	}
	return nil
}

// derive replaces the reading of a module. alone reports whether the machine has no other module or
// socket: then all CPUs are its socket.
func (m *module) derive(r *Reading, readings []Reading, alone bool, now time.Time) {
	for _, t := range m.tracks {
		t.present = false
	}
	whole := m.track(r, readings)
	whole.update(r)
	m.setWhole(whole, true)
	for i := range readings {
		z := readings[i].Zone
		if !isPart(z.Kind, PSys) || z.Method != Measured || readings[i].At.IsZero() || !alone && z.Domain != m.zone.Includes {
			continue
		}
		part := m.track(&readings[i], readings)
		part.update(&readings[i])
		part.part = true
		if readings[i].Err == nil {
			m.socket = now
		}
	}
	m.settle(now)
	if now.Sub(m.socket) > partPatience {
		m.err = fmt.Errorf("the energy of %s contains the energy of a CPU socket, because its meter measures a module and no meter reads the socket", m.zone.ID)
	}
	r.Total, r.At, r.Raw, r.since = m.total, m.settled, Raw{}, time.Time{}
}
