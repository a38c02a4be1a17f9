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
	socket time.Time // sample time of the last reading of the socket, or of the first of the module
	err    error
}

// modules is the step of a Set that replaces the readings of modules (a CPU socket and its GPU)
// with readings of their GPUs.
type modules []*module

// separate derives the readings of the GPUs, and returns all readings.
func (ms *modules) separate(readings []Reading, now time.Time) []Reading {
	for _, m := range *ms {
		m.err = nil
	}
	for i := range readings {
		if r := &readings[i]; r.Zone.Includes != "" && !r.At.IsZero() {
			ms.of(r.Zone, now).derive(r, readings, hasOneModule(readings), now)
		}
	}
	return readings
}

// hasOneModule reports whether the machine has exactly one module and one CPU socket. They then
// belong together, regardless of the socket's ID. The number of sockets is checked because a
// machine with several modules may show only one GPU.
func hasOneModule(readings []Reading) bool {
	modules, socket := 0, units.NodeCPUs
	for i := range readings {
		z := readings[i].Zone
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

// of returns the module of a GPU.
func (ms *modules) of(gpu *Zone, now time.Time) *module {
	i := slices.IndexFunc(*ms, func(m *module) bool { return m.zone.ID == gpu.ID })
	if i < 0 {
		i = len(*ms)
		*ms = append(*ms, &module{zone: gpu, socket: now})
	} else if (*ms)[i].zone != gpu {
		(*ms)[i] = &module{zone: gpu, socket: now}
	}
	return (*ms)[i]
}

// err returns an error if the energy of a GPU contains the energy of a CPU socket.
func (ms modules) err() error {
	for _, m := range ms {
		if m.err != nil {
			return m.err
		}
	}
	return nil
}

// derive replaces the reading of a module. alone reports whether the machine has no other module or
// socket: then all CPUs are its socket.
func (m *module) derive(r *Reading, readings []Reading, alone bool, now time.Time) {
	m.setWhole(m.note(r, now), true)
	for i := range readings {
		z := readings[i].Zone
		if !isPart(z.Kind, PSys) || z.Method != Measured || readings[i].At.IsZero() || !alone && z.Domain != m.zone.Includes {
			continue
		}
		m.note(&readings[i], now).part = true
		if readings[i].Err == nil {
			m.socket = now
		}
	}
	m.forget(now)
	m.settle(now)
	if now.Sub(m.socket) > partPatience {
		m.err = fmt.Errorf("the energy of %s contains the energy of a CPU socket, because its meter measures a module and no meter reads the socket", m.zone.ID)
	}
	r.Total, r.At, r.Raw, r.since = m.total, m.settled, Raw{}, time.Time{}
}
