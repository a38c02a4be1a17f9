// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// zeroDelay is the time between the start timestamp of a series and its zero-value point. If both
// were equal, OTLP would treat the start timestamp as unknown
// (https://opentelemetry.io/docs/specs/otel/metrics/data-model/#cumulative-streams-handling-unknown-start-time).
// The point could also have the time of the last point of an earlier series with the same
// attributes.
const zeroDelay = time.Millisecond

// zeroPoint returns the time of the zero point of a series. It returns 0 if the series is settled
// or if zero points are disabled. A series begins at the latest of the times of began.
//
// If the series began before the last settled emission, its zero point is after that emission,
// because an earlier series with the same attributes may have a point at that time.
func (m *emission) zeroPoint(settled bool, began ...time.Time) pcommon.Timestamp {
	if settled || !m.zeros {
		return 0
	}
	latest := m.ledger.SettledAt
	for _, t := range began {
		if t.After(latest) {
			latest = t
		}
	}
	return pcommon.NewTimestampFromTime(latest.Add(zeroDelay))
}
