// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// zeroDelay is the time between the start timestamp of a series and its zero-value point. If both
// were equal, the start timestamp would count as unknown
// (https://opentelemetry.io/docs/specs/otel/metrics/data-model/#cumulative-streams-handling-unknown-start-time),
// and the point could have the time of the last point of an earlier series with the same
// attributes.
const zeroDelay = time.Millisecond

// zeroPoint returns the time of the zero point of a series. It returns 0 if the series is settled
// or if zero points are disabled. A series begins at the latest of the times of began.
//
// The zero point of a series that began before the last settled emission and was not in it is after
// that emission: an earlier series with the same attributes may have a point there.
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
