// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"

	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/energyreceiver/energyreceiver/processor/energyprofile/internal/metadata"
)

// telemetry reports the processor's own metrics.
type telemetry struct {
	builder *metadata.TelemetryBuilder
	id      attribute.KeyValue
	own     metric.MeasurementOption
}

func newTelemetry(set processor.Settings) (*telemetry, error) {
	builder, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	id := attribute.String("processor", set.ID.String())
	return &telemetry{builder: builder, id: id, own: metric.WithAttributeSet(attribute.NewSet(id))}, nil
}

// drop counts samples that were dropped.
func (t *telemetry) drop(ctx context.Context, of dropped) {
	for reason, n := range of {
		t.builder.ProcessorEnergyprofileDroppedSamples.Add(ctx, n,
			metric.WithAttributeSet(attribute.NewSet(t.id, attribute.String("drop.reason", reason))))
	}
}

// send counts energy, in µJ, that is sent.
func (t *telemetry) send(ctx context.Context, energy uint64) {
	t.builder.ProcessorEnergyprofileEnergy.Add(ctx, float64(energy)/1e6, t.own)
}

// notSampled counts energy, in µJ, of processes without samples.
func (t *telemetry) notSampled(ctx context.Context, energy uint64) {
	t.builder.ProcessorEnergyprofileNotSampledEnergy.Add(ctx, float64(energy)/1e6, t.own)
}
