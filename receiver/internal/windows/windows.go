// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"cmp"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// Windows paces the attribution windows. The zero windows is ready to use.
type Windows struct {
	Timeline timeline
	Sampler  sampler
	Rest     Rest
	Demand   demand
}

// ChooseLength returns the length of the windows, and the reason. 0 means one window per
// collection. configured is the configured length. exact reports whether the CPU time source is
// exact. wrap is the minimum time in which an energy counter can wrap, or 0.
func ChooseLength(configured, collection time.Duration, exact bool, wrap time.Duration) (window time.Duration, reason string) {
	window, reason = configured, "configured, or the default"
	if window > 0 && window < cpu.TickWindow && !exact {
		window, reason = cpu.TickWindow, "the source of CPU times is too coarse for a shorter window"
	}
	longest := cmp.Or(window, collection)
	if wrap /= 2; wrap > 0 && longest > wrap {
		window, reason = max(wrap, config.MinWindow), "an energy counter could wrap unnoticed in a longer one"
	}
	return window, reason
}
