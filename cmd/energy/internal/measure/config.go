// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// embeddedConfig returns the configuration by which a command is measured, and what of it is left out.
//
// It is the given one without what a collector does for others, and with the metrics that this package reads.
func embeddedConfig(o *Options) (cfg *energyreceiver.Config, notes []string) {
	defaults, own := energyreceiver.DefaultConfig(), *o.Config
	own.CollectionInterval, own.InitialDelay = o.Interval, 0
	if own.SamplingInterval >= o.Interval {
		own.SamplingInterval = 0
	}
	own.ResourceAttributes = defaults.ResourceAttributes
	var metrics energyreceiver.Config
	own.Metrics = metrics.Metrics
	own.Metrics.SystemEnergy.Enabled = true
	own.Metrics.ContainerEnergy.Enabled = true
	own.Metrics.SystemCPUUtilization.Enabled = true
	own.Metrics.SystemEnergySplitLearned.Enabled = true

	attribution := &own.Attribution
	if (attribution.Key != "" && attribution.Key != claims.KeyCPUTime) || len(attribution.Keys) > 0 {
		notes = append(notes, "The allocation key is CPU time: of other processes nothing else is read")
	}
	attribution.Key, attribution.Keys, attribution.SMTWeight = claims.KeyCPUTime, nil, 1
	attribution.Idle = energyreceiver.IdleNone
	return &own, notes
}

// staticOf returns what the static power of a zone kind is known from. measured has that of measured zones, and learned reports whether
// the kind's static power model is trained.
func staticOf(cfg *energyreceiver.Config, measured map[claims.Kind]float64, kind claims.Kind, learned bool) Static {
	_, ok := measured[kind]
	switch split := cfg.Split(kind); {
	case split == energyreceiver.SplitFixed:
		return StaticConfiguration
	case split != energyreceiver.SplitUtilization && learned:
		return StaticLearned
	case split != energyreceiver.SplitUtilization:
		return StaticLearning
	case kind.Source == power.Modeled:
		return StaticModel
	case kind.Source == power.Reported:
		return StaticHypervisor
	case ok:
		return StaticBaseline
	}
	return StaticUnknown
}
