// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Measurement holds the readings of one window.
type Measurement struct {
	// ReadAt is the time of the measurement, with a monotonic clock reading for elapsed times.
	ReadAt time.Time
	// Stamp is the same moment as in data points. It never steps back.
	Stamp time.Time
	// Node is the total of the node's CPU time.
	Node cpu.Node
	// Domains is the total CPU time of each domain of the topology.
	Domains []cpu.Node
	// CPUs is the total busy time of each CPU, by number. If it is nil, the table is used instead.
	CPUs []units.CPUTime
	// Table is the scan. The Collector reads it in Collect and End only.
	Table *proc.Table
	// Readings holds the readings of all zones.
	Readings []power.Reading
	// GPUs is the usage of each GPU since the last measurement.
	GPUs []gpu.Usage
	// Attributed are the zone kinds whose energy is attributed. Zones of other kinds are only
	// reported.
	Attributed []power.Kind
	// EndsCollection reports whether the ledger is emitted next.
	EndsCollection bool
}

// usedUntilRead reports whether the usage of a GPU ends at ReadAt.
func (m *Measurement) usedUntilRead(domain units.Domain) bool {
	return slices.ContainsFunc(m.GPUs, func(u gpu.Usage) bool { return u.UntilRead && u.Domain == domain })
}
