// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Reasons for dropping samples of energy profiles.
const (
	dropForeign = "foreign"
	dropExcess  = "excess"
	dropValue   = "value"
)

// foreignFor is how long the degraded state lasts after foreign energy was dropped. A sender
// therefore causes at most two log messages in this time.
const foreignFor = 10 * time.Minute

var errForeign = errors.New("dropped energy profiles that did not come from energyprofile in this collector: remove " +
	"components between energyprofile and energyspans that add energy or do not pass on the context, and receivers of " +
	"profiles of the type energy")

// report counts dropped samples by reason, and sets or clears the condition "foreign".
func (e *energySpans) report(ctx context.Context, dropped map[string]int64) {
	for reason, n := range dropped {
		e.telemetry.ConnectorEnergyspansDroppedSamples.Add(ctx, n,
			metric.WithAttributeSet(attribute.NewSet(e.id, attribute.String("drop.reason", reason))))
	}
	now := e.tracker.now
	if dropped[dropForeign]+dropped[dropExcess] > 0 {
		e.foreign = now
	}
	var err error
	if !e.foreign.IsZero() && now.Sub(e.foreign) < foreignFor {
		err = errForeign
	}
	e.conditions.Set("foreign", err)
}
