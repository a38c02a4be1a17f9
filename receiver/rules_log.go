// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
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
func (l *ruleLog) log(s *energyScraper) {
	now, m := s.machine.Now(), s.meters
	if l.logged || s.cfg.Attribution.Preset != "" {
		return
	}
	if l.began.IsZero() {
		l.began = now
	}
	if m.Waits() && now.Sub(l.began) < rulesGrace {
		return
	}
	l.logged = true
	var zones []power.Class
	for _, r := range m.AttributedReadings() {
		zones = append(zones, power.Class{Zone: r.Zone.Kind, Method: r.Zone.Method})
	}
	var enabled, unavailable []string
	for _, n := range s.node.Notes(zones) {
		switch {
		case n.Warning != "":
		case n.Reason != "":
			unavailable = append(unavailable, n.String())
		default:
			enabled = append(enabled, n.String())
		}
	}
	s.set.Logger.Info("Attribution rules selected", zap.Strings("enabled", enabled), zap.Strings("unavailable", unavailable))
}
