// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
)

// ruleLog logs once which of the default rules this machine supports. The zero ruleLog is ready to
// use.
type ruleLog struct {
	began  time.Time // of the first call of log
	logged bool
}

// rulesGrace is the maximum time to wait for the first readings of all meters before the rules are
// logged.
const rulesGrace = time.Minute

// log logs the rules as soon as all meters have returned readings.
func (l *ruleLog) log(cfg *Config, m *meters.Meters, now time.Time, logger *zap.Logger) {
	if l.logged || cfg.Attribution.Preset != "" {
		return
	}
	if l.began.IsZero() {
		l.began = now
	}
	if m.Waits() && now.Sub(l.began) < rulesGrace {
		return
	}
	l.logged = true
	var selected, lacking []string
	for _, rule := range cfg.DefaultRules(m.Readings, m.Attributed()) {
		if rule.Lacks != nil {
			lacking = append(lacking, rule.String())
		} else {
			selected = append(selected, rule.String())
		}
	}
	logger.Info("Attribution rules selected", zap.Strings("selected", selected), zap.Strings("lacking", lacking))
}
