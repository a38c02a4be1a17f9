// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"
)

// gate forwards metrics to the next consumer until it is shut. The collector shuts that consumer
// down after the receiver.
type gate struct {
	consumer.Metrics
	shut *atomic.Bool
}

var errShut = errors.New("the receiver has been shut down")

// ConsumeMetrics implements consumer.Metrics.
func (g gate) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	if g.shut.Load() {
		return errShut
	}
	return g.Metrics.ConsumeMetrics(ctx, md)
}

// promptReceiver is a receiver whose Shutdown returns even while a collection hangs.
type promptReceiver struct {
	receiver.Metrics
	scraper *energyScraper
	shut    *atomic.Bool // of the gate
}

// shutdownTimeout is the maximum duration of the receiver's shutdown.
const shutdownTimeout = 4 * time.Second

// Shutdown shuts the receiver down. After shutdownTimeout it logs an error and returns, and no more
// metrics are sent to the next consumer. A goroutine that hangs ends with the collector's process.
// Shutdown does not return an error in this case, because the machine may only be slow.
func (r promptReceiver) Shutdown(ctx context.Context) error {
	r.scraper.stopStarting() // a collection may wait for the first scan
	done := make(chan error, 1)
	go func() { done <- r.Metrics.Shutdown(ctx) }()
	timer := time.NewTimer(shutdownTimeout)
	defer timer.Stop()
	defer r.shut.Store(true)
	select {
	case err := <-done:
		return err
	case <-timer.C:
		r.scraper.set.Logger.Error("Shutdown timed out", zap.Duration("timeout", shutdownTimeout),
			zap.Stringer("activity", r.scraper.watchdog.Current()))
		return nil
	}
}

// lastTimeout is the maximum time for which shutdown waits for the next consumer. It is shorter
// than shutdownTimeout, so that resources can be closed even if the consumer hangs.
const lastTimeout = 3 * time.Second

// collectLast makes the last collection, and sends it to the next consumer, which is shut down
// after its receivers.
func (s *energyScraper) collectLast(ctx context.Context) {
	if s.output.next == nil || !s.life.begun {
		return
	}
	md, err := s.collect(ctx, atLastCollection)
	if err != nil || md.ResourceMetrics().Len() == 0 {
		return // the conditions have the reason
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.output.next.ConsumeMetrics(ctx, md) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.set.Logger.Warn("Final collection rejected", zap.Error(err))
	}
}
