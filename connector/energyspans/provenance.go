// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Reasons for which samples of energy profiles are dropped.
const (
	dropForeign = "foreign"
	dropExcess  = "excess"
	dropValue   = "value"
)

// foreignFor is how long foreign energy is a reason for a degraded state. A sender then causes two log messages in that
// time at most.
const foreignFor = 10 * time.Minute

var errForeign = errors.New("dropped energy profiles that did not come from energyprofile in this collector: remove " +
	"components between energyprofile and energyspans that add energy or do not pass on the context, and receivers of " +
	"profiles of the type energy")

// report counts dropped samples by reason, and sets the condition of foreign energy.
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
