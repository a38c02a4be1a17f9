// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// collectEvery is the time between collections while a command runs. They release the memory of
// workloads that ended and update the notes.
const collectEvery = 10 * time.Second

// embeddedConfig returns the configuration of the receiver, and notes on settings that are left out.
// It has the metrics that snapshots of this package need.
func embeddedConfig(o *Options) (cfg *energyreceiver.Config, notes []string) {
	defaults, own := energyreceiver.DefaultConfig(), *o.Config
	own.CollectionInterval, own.InitialDelay = max(collectEvery, 2*o.Interval), 0
	if window := own.WindowLength(); window == 0 || window > o.Interval {
		own.Window = o.Interval
	}
	own.ResourceAttributes = defaults.ResourceAttributes
	own.ResourceAttributes.ProcessOwner.Enabled = false
	own.Series.Processes = defaults.Series.Processes
	own.Series.Processes.GroupBy = energyreceiver.GroupByProgram
	var metrics energyreceiver.Config
	own.Metrics = metrics.Metrics
	own.Metrics.SystemEnergy.Enabled = true
	own.Metrics.ContainerEnergy.Enabled = o.By == ByContainer
	own.Metrics.ProcessEnergy.Enabled = true
	own.Metrics.SystemCPUBusy.Enabled = true

	attribution := &own.Attribution
	for _, weight := range attribution.Weight {
		if weight != energyreceiver.WeightCPUTime {
			notes = append(notes, "The attribution weight is CPU time, the only weight that is available for other processes")
			break
		}
	}
	attribution.Weight = map[power.Kind]energyreceiver.Weight{energyreceiver.AllZones: energyreceiver.WeightCPUTime}
	attribution.SMTWeight = 1
	attribution.Idle = energyreceiver.IdleNone
	return &own, notes
}

// staticOf returns the source of the static power of a zone kind.
func (m *meter) staticOf(kind power.Class) Static {
	_, ok := m.static[kind]
	switch model := m.cfg.StaticModel(kind); {
	case model == energyreceiver.StaticFixed:
		return StaticConfiguration
	case model != energyreceiver.StaticUtilization && m.trained[kind]:
		return StaticTrained
	case model != energyreceiver.StaticUtilization:
		return StaticTraining
	case kind.Method == power.Modeled:
		return StaticModel
	case kind.Method == power.Reported:
		return StaticHypervisor
	case ok:
		return StaticBaseline
	}
	return StaticUnknown
}
