// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// embeddedConfig returns the configuration by which a command is measured, and what of it is left out.
//
// It is the given one without what a collector does for others, and with the metrics that this package reads.
func embeddedConfig(o *Options) (cfg *energyreceiver.Config, notes []string) {
	defaults, own := energyreceiver.DefaultConfig(), *o.Config
	own.CollectionInterval, own.InitialDelay = o.Interval, 0
	if own.Window >= o.Interval {
		own.Window = 0
	}
	own.ResourceAttributes = defaults.ResourceAttributes
	own.ResourceAttributes.ProcessOwner.Enabled = false
	own.Series.Processes = defaults.Series.Processes
	own.Series.Processes.GroupBy = energyreceiver.GroupByProgram
	var metrics energyreceiver.Config
	own.Metrics = metrics.Metrics
	own.Metrics.SystemEnergy.Enabled = true
	own.Metrics.ContainerEnergy.Enabled = true
	own.Metrics.ProcessEnergy.Enabled = true
	own.Metrics.SystemCPUBusy.Enabled = true

	attribution := &own.Attribution
	for _, weight := range attribution.Weight {
		if weight != energyreceiver.WeightCPUTime {
			notes = append(notes, "The attribution weight is CPU time: nothing else is read of other processes")
			break
		}
	}
	attribution.Weight = map[power.Kind]energyreceiver.Weight{energyreceiver.AllZones: energyreceiver.WeightCPUTime}
	attribution.SMTWeight = 1
	attribution.Idle = energyreceiver.IdleNone
	return &own, notes
}

// staticOf returns what the static power of a zone kind is known from. measured has that of measured zones,
// and trained reports whether the kind's static power model is trained.
func staticOf(cfg *energyreceiver.Config, measured map[power.Class]float64, kind power.Class, trained bool) Static {
	_, ok := measured[kind]
	switch model := cfg.StaticModel(kind); {
	case model == energyreceiver.StaticFixed:
		return StaticConfiguration
	case model != energyreceiver.StaticUtilization && trained:
		return StaticLearned
	case model != energyreceiver.StaticUtilization:
		return StaticLearning
	case kind.Method == power.Modeled:
		return StaticModel
	case kind.Method == power.Reported:
		return StaticHypervisor
	case ok:
		return StaticBaseline
	}
	return StaticUnknown
}
