// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
)

// Counter is a counter of a container or pod that is emitted next to its energy.
type Counter uint8

// The counters, in bytes.
const (
	DiskRead Counter = iota
	DiskWritten
	Received
	Transmitted
	numCounters
)

// counters has the metric of each counter, after the prefix of the entity, and the labels of its
// points. Counters of one metric follow each other.
var counters = [numCounters]struct {
	metric string
	labels []label
}{
	DiskRead:    {".disk.io", texts("disk.io.direction", "read")},
	DiskWritten: {".disk.io", texts("disk.io.direction", "write")},
	Received:    {".network.io", texts("network.io.direction", "receive")},
	Transmitted: {".network.io", texts("network.io.direction", "transmit")},
}

// Usage holds the counters of a container or pod.
type Usage [numCounters]Count

// Count is the value of a counter, and when it was 0. The zero Count is not available.
type Count struct {
	Value uint64
	Start time.Time
}

// Subject is the container or pod of a Usage.
type Subject struct {
	Entity identity.Entity
	Key    identity.Key
}

// emitUsage emits the counters of an account that has not ended.
func (m *emission) emitUsage(a *ledger.Account, e *entityMetrics, into pmetric.MetricSlice) {
	if m.usage == nil || a.Ended() || a.Other || a.IsGroup() {
		return
	}
	u := m.usage[Subject{a.Entity, a.Entity.Key(&a.Owner.Workload)}]
	if u == nil {
		return
	}
	var w writer
	for i, metric := range e.counters {
		if metric != w.metric {
			w = writer{metric: metric, into: into, most: 2}
		}
		if c := &u[i]; !c.Start.IsZero() {
			w.write(counters[i].labels, pcommon.NewTimestampFromTime(c.Start), m.at, float64(c.Value))
		}
	}
}
