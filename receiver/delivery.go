// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"iter"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/ledger"
)

// nextConsumer sends collections to the next consumer, and reports the outcome of each. The
// scraper's controller calls it right after the scrape, on the same goroutine. The final values of
// ended series are kept until the next consumer acknowledges them.
type nextConsumer struct {
	consumer.Metrics
	delivered func(delivery)
}

// delivery is the outcome of one collection: whether all or some of its parts were acknowledged,
// and whether a part was rejected permanently.
type delivery struct{ all, some, forGood bool }

// outcome returns the outcome for the ledger.
func (d delivery) outcome() ledger.Outcome {
	switch {
	case d.all:
		return ledger.Acknowledged
	case d.some:
		return ledger.PartlyAcknowledged
	case d.forGood:
		return ledger.RefusedForGood
	default:
		return ledger.Refused
	}
}

// ConsumeMetrics sends a collection in parts of bounded size. The collection is acknowledged only
// when all parts are; otherwise the next collection repeats all of it. Series are cumulative, so
// sending a part twice has no effect. After a part is rejected, the remaining parts are not sent,
// unless the error is permanent, because a permanent error may concern only this part.
func (a nextConsumer) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	var d delivery
	var refused error
	for part := range parts(md) {
		err := a.Metrics.ConsumeMetrics(ctx, part)
		refused = errors.Join(refused, err)
		d.some = d.some || err == nil
		permanent := consumererror.IsPermanent(err)
		if d.forGood = d.forGood || permanent; err != nil && !permanent {
			break
		}
	}
	d.all = refused == nil
	a.delivered(d)
	return refused
}

const (
	// maxPart is the maximum size of a part, in bytes of OTLP protobuf before compression. It is
	// half of the maximum message size of gRPC servers by default. Exporters permanently drop
	// larger messages.
	maxPart = 2 << 20
	// resourceRoom is added to the size of each resource, for attributes that processors add later,
	// such as the names of pods and nodes.
	resourceRoom = 1 << 10
)

// parts splits a collection between resources, in their order. A collection that fits into one part
// is yielded unchanged; otherwise its resources move into the parts. A resource that is larger than
// a part is a part of its own.
func parts(md pmetric.Metrics) iter.Seq[pmetric.Metrics] {
	return func(yield func(pmetric.Metrics) bool) {
		if partSize(md) <= maxPart {
			yield(md)
			return
		}
		all := md.ResourceMetrics()
		part, size := pmetric.NewMetrics(), 0
		for i := range all.Len() {
			next := pmetric.NewMetrics()
			all.At(i).MoveTo(next.ResourceMetrics().AppendEmpty())
			more := partSize(next)
			if size > 0 && size+more > maxPart {
				if !yield(part) {
					return
				}
				part, size = pmetric.NewMetrics(), 0
			}
			next.ResourceMetrics().MoveAndAppendTo(part.ResourceMetrics())
			size += more
		}
		yield(part)
	}
}

func partSize(md pmetric.Metrics) int {
	var m pmetric.ProtoMarshaler
	return m.MetricsSize(md) + md.ResourceMetrics().Len()*resourceRoom
}
