// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// logSettings logs consequences of the settings that do not depend on the machine.
func (s *energyScraper) logSettings() {
	s.warnOfSharedSeries()
	s.logNames()
}

// warnOfSettings warns of settings that have no effect on this machine, or an unexpected effect.
func (s *energyScraper) warnOfSettings() {
	for _, n := range s.node.Notes(nil) {
		if n.Warning == "" {
			continue
		}
		fields := []zap.Field{zap.String("setting", n.Setting)}
		if n.Reason != "" {
			fields = append(fields, zap.String("reason", n.Reason))
		}
		if n.Alternative != "" {
			fields = append(fields, zap.String("alternative", n.Alternative))
		}
		s.set.Logger.Warn(n.Warning, fields...)
	}
}

// warnOfSharedSeries warns of disabled resource attributes without which series are not distinct.
func (s *energyScraper) warnOfSharedSeries() {
	for _, shared := range emit.FindSharedSeries(s.cfg.MetricsBuilderConfig) {
		without := map[config.GroupBy]identity.Entity{config.GroupByPID: identity.ProgramEntity, config.GroupByProgram: identity.ProcessEntity}
		if entity, ok := without[s.cfg.Series.Processes.GroupBy]; ok && shared.Entity == entity.String() {
			continue
		}
		s.set.Logger.Warn("Resource attribute disabled: without it several series cannot be distinguished",
			zap.String("attribute", shared.Attribute), zap.String("series", shared.Entity))
	}
}

// logNames logs the sources of names that can be read.
func (s *energyScraper) logNames() {
	if s.embedded.Container != "" {
		return // no enabled metric has names
	}
	o := s.cfg.NameOptions()
	readable, denied := o.Readable()
	if len(readable)+len(denied) == 0 {
		return
	}
	fields := []zap.Field{zap.Any("from", readable)}
	if len(denied) > 0 {
		fields = append(fields, zap.Any("unreadable", denied))
	}
	s.set.Logger.Info("Names of containers selected", fields...)
}
