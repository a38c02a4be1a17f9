package receiver

import (
	"context"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// acceptance is the next consumer, and the one place where the receiver learns whether it took what was
// scraped: the final values of what ended are kept until then. The scraper's controller calls it right
// after the scrape, on the same goroutine.
type acceptance struct {
	consumer.Metrics
	accepted func()
}

func (a acceptance) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	if err := a.Metrics.ConsumeMetrics(ctx, md); err != nil {
		return err
	}
	a.accepted()
	return nil
}
