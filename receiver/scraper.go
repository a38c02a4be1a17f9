// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/conditions"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/attributor"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
	"github.com/energyreceiver/energyreceiver/receiver/internal/node"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// energyScraper measures and attributes once per window, and emits once per collection.
type energyScraper struct {
	watchdog windows.Watchdog
	mu       windows.Lock // guards all fields below, because the sampler and the controller have separate goroutines

	cfg        *Config
	set        receiver.Settings
	machine    machine.Machine
	embedded   attributor.Embedded
	conditions *conditions.Conditions
	telemetry  telemetry
	rules      ruleLog
	windows    windows.Windows

	state      *state.State
	node       *node.Node // nil until open, as meters and attributor
	meters     *meters.Meters
	attributor *attributor.Attributor
	output     output
	life       life
}

// life is the state of startup and shutdown.
type life struct {
	starting sync.WaitGroup          // waits for the first scan
	cancel   context.CancelCauseFunc // cancels the first scan; nil unless it is in the background
	begun    bool                    // set after the first scan, unless the scan was canceled
	closed   atomic.Bool             // set before the last collection: no reader ends a window from then on
}

// output records the delivery of collections.
type output struct {
	// next takes the last collection. It is nil in an Embedded, whose user collects.
	next consumer.Metrics
	// mayEmit reports whether the last collection could be measured and need not wait for the store.
	mayEmit bool
	// emitted is set until the outcome of the last collection is reported.
	emitted bool
}

// newEnergyScraper returns a scraper that has not started. It does not change the configuration or
// access the machine.
func newEnergyScraper(cfg *Config, set receiver.Settings, m machine.Machine, embedded attributor.Embedded) (*energyScraper, error) {
	s := &energyScraper{
		mu:         windows.NewLock(),
		cfg:        cfg,
		set:        set,
		machine:    m,
		embedded:   embedded,
		conditions: conditions.New("Collection", set.Logger),
		state:      state.New(cfg, set.Logger, m.Clocks, m.OpenStorage),
	}
	var err error
	s.telemetry, err = newTelemetry(s)
	return s, err
}

// start opens all parts and takes the baseline.
func (s *energyScraper) start(ctx context.Context, host component.Host) error {
	if err := s.open(ctx, host); err != nil {
		return err
	}
	s.begin(context.Background())
	return nil
}

// startCollector opens all parts and takes the baseline in the background, because a baseline of
// thousands of processes takes seconds. SIGTERM kills a collector before all its components have
// started.
func (s *energyScraper) startCollector(ctx context.Context, host component.Host) error {
	if err := s.open(ctx, host); err != nil {
		return err
	}
	ctx, s.life.cancel = context.WithCancelCause(context.Background())
	s.life.starting.Go(func() {
		s.begin(ctx)
		go debug.FreeOSMemory() // startup needs several times the heap of an idle node; the runtime would shrink it only after a minute
	})
	return nil
}

// open opens all parts. Missing or unreadable parts are reported and searched for again in each
// scrape. They do not prevent the collector from starting.
func (s *energyScraper) open(ctx context.Context, host component.Host) (err error) {
	s.conditions.Host = host
	s.watchdog.Enter(windows.Starting)
	defer s.watchdog.Enter(windows.Idle)
	if s.output.next != nil {
		s.watchdog.Start(s.cfg.InitialDelay, s.cfg.CollectionInterval, func(err error) { s.conditions.Set("collection", err) })
		defer func() {
			if err != nil {
				s.watchdog.Stop()
			}
		}()
	}
	if err = s.state.Open(host, s.set.ID); err != nil {
		return err
	}
	s.logSettings()
	opened, err := s.machine.OpenMeters(ctx, s.cfg, host, s.set.TelemetrySettings)
	if err != nil {
		return err
	}
	waits := kernfs.NewWaits()
	s.meters = meters.New(s.cfg, s.set.Logger, opened, waits)
	if s.node, err = node.Open(s.cfg, s.set.Logger, &s.machine, waits); err != nil {
		return err
	}
	s.attributor = attributor.New(attributor.Options{
		Config: s.cfg, Node: s.node, BuildInfo: s.set.BuildInfo, IdlePower: s.meters.IdlePower, Embedded: s.embedded,
	})
	s.warnOfSettings()
	s.attributor.OpenFeed(s.set.ID)
	s.restoreTotals(s.state.Restore(ctx, s.machine.Now()))
	return s.observeSelf()
}

// begin takes the baseline and starts the windows, unless stopStarting cancels ctx.
func (s *energyScraper) begin(ctx context.Context) {
	defer s.watchdog.Enter(windows.Idle)
	if s.takeBaseline(ctx); errors.Is(context.Cause(ctx), errShut) {
		return
	}
	s.adjustWindow()
	s.attributor.Serve(func(ctx context.Context) { s.endWindow(ctx) })
	s.life.begun = true
}

// takeBaseline attributes the time since a saved state, or takes the baseline of the first window.
// It reports problems at start, and which default rules are in effect.
func (s *energyScraper) takeBaseline(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(ctx, betweenCollections)
	s.rules.log(s)
	s.conditions.Observe("storage", s.state.Err())
	s.conditions.Settle()
}

// stopStarting cancels the first scan.
func (s *energyScraper) stopStarting() {
	if s.life.cancel != nil {
		s.life.cancel(errShut)
	}
}

// restoreTotals continues the totals of a saved state, if there are any.
func (s *energyScraper) restoreTotals(totals *state.Totals) {
	if totals == nil {
		return
	}
	s.windows.Timeline.Resume(totals.ReadAt, totals.Window.Ledger.At)
	s.meters.Set.Resume(&totals.Meters)
	s.node.CPU.Resume(&totals.CPU)
	s.attributor.Begin(totals.Window.Ledger.At, totals.BootTime)
	s.attributor.Collector.Restore(&totals.Window, totals.ReadAt, totals.CPU.Node, slices.Clone(s.node.CPU.Domains()))
}

// shutdown makes the last collection and closes all parts.
func (s *energyScraper) shutdown(ctx context.Context) error {
	s.watchdog.Stop()
	s.stopStarting()
	s.life.starting.Wait()
	s.windows.Sampler.Stop()
	if s.attributor != nil {
		s.attributor.StopServing()
	}
	s.life.closed.Store(true) // a reader may have requested a window before StopServing
	s.collectLast(ctx)
	s.telemetry.builder.Shutdown() // before the lock, which its callbacks wait for
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Close(ctx)
	if s.attributor == nil { // it was never started
		return nil
	}
	return errors.Join(s.attributor.Close(), s.meters.Close(), s.node.Close(), s.windows.Rest.Close())
}

// sample attributes one window.
func (s *energyScraper) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tooSoon() && !s.rests() {
		s.tick(context.Background(), betweenCollections)
	}
}

// endWindow ends the current window, so that usage up to now and usage from now on are attributed
// separately. It reports whether it did. It returns false, and the current window continues, if ctx
// is done before the lock is available, if the last window ended so recently that another window
// would cost too much, if the CPU times cannot be read, or after shutdown.
//
// It must not be called before the first scan has ended.
func (s *energyScraper) endWindow(ctx context.Context) bool {
	if !s.mu.LockUnless(ctx) {
		return false
	}
	defer s.mu.Unlock()
	return !s.life.closed.Load() && s.windows.Demand.Allows(s.machine.Now()) && s.tick(context.WithoutCancel(ctx), betweenCollections) != nil
}

// scrape is one collection: it reads the meters and the CPU times, attributes the energy since the
// last window, and returns the ledger as metrics. If the CPU times cannot be read, it returns no
// metrics: the conditions have the reason, and the next collection covers this one.
//
// A process's CPU time becomes a data point in cpu.Reader.Read, window.Collector.Collect,
// attribution.Sharer.Share, ledger.Ledger.Add, emit.Emitter.Emit and nextConsumer.ConsumeMetrics, in
// this order.
func (s *energyScraper) scrape(ctx context.Context) (pmetric.Metrics, error) {
	if s.life.starting.Wait(); !s.life.begun {
		return pmetric.NewMetrics(), nil
	}
	defer s.adjustWindow()
	return s.collect(ctx, atCollection)
}

// collect is a collection that does not change the length of the windows. It ends a window, saves
// the state, reports the conditions, and emits the ledger, unless the collection must wait for the
// store.
func (s *energyScraper) collect(ctx context.Context, at windowEnd) (pmetric.Metrics, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.finish()
	s.output.emitted = false // still set only if the controller dropped the last collection without calling delivered
	m := s.tick(ctx, at)
	s.watchdog.Enter(windows.Building)
	s.conditions.Observe("windows", s.windows.Sampler.Err())
	s.conditions.Settle()
	s.rules.log(s)
	if !s.output.mayEmit {
		return pmetric.NewMetrics(), nil
	}
	s.output.emitted = true
	return s.attributor.Emit(m.Stamp), nil
}

// finish reports the end of a collection to the watchdog.
func (s *energyScraper) finish() {
	s.watchdog.Enter(windows.Idle)
	if s.output.emitted {
		s.watchdog.Enter(windows.Delivering)
	}
	s.watchdog.Finished()
}

// tick ends a window: it attributes the energy since the last window, and publishes the window to
// readers of the feed. It returns nil if the CPU times could not be read.
func (s *energyScraper) tick(ctx context.Context, at windowEnd) *window.Measurement {
	began := time.Now()
	defer s.watchdog.Enter(s.watchdog.Current())
	m, replaced := s.measure(ctx, at)
	if m != nil {
		s.beginLedger(m)
		interval := s.attributor.Collect(m, replaced)
		shares := s.attributor.Share(interval)
		s.attributor.Add(shares)
	}
	s.observe(m, time.Since(began))
	s.save(ctx, m, at)
	s.publish(m)
	return m
}

// windowEnd is an occasion to end a window.
type windowEnd int

const (
	betweenCollections windowEnd = iota
	atCollection
	atLastCollection // of the receiver
)

// beginLedger begins the ledger at the baseline m, and restores static power models before the first
// window of the ledger.
func (s *energyScraper) beginLedger(m *window.Measurement) {
	s.watchdog.Enter(windows.Attributing)
	if !s.attributor.Begun() {
		s.attributor.Begin(m.Stamp, s.bootTime(m))
	}
	if s.attributor.TakeFresh() {
		s.state.Training.Restore(s.attributor.Models(), m.Readings)
	}
}

// observe records how long a window took, and its conditions. m is nil if measure failed.
func (s *energyScraper) observe(m *window.Measurement, took time.Duration) {
	if s.windows.Demand.Took = took; m != nil {
		s.state.Training.RestoreGPUs(s.attributor.Models(), m.Readings)
		s.node.LogKeys()
		s.node.LogCounting()
		s.logControlPlane()
		s.telemetry.scanned(took)
	}
	s.attributor.Check(s.conditions)
}

// logControlPlane logs the excluded static pods when they are first found, or once that no pod was found.
func (s *energyScraper) logControlPlane() {
	switch pods, isNews := s.attributor.Exclusion.ControlPlane(); {
	case !isNews:
	case len(pods) == 0 && s.attributor.Exclusion.Err() != nil: // a condition reports that pods cannot be read
	case len(pods) == 0:
		s.set.Logger.Info("Static pods of the control plane not found on this node")
	default:
		s.set.Logger.Info("Control plane excluded: its energy is idle energy", zap.Strings("pods", pods))
	}
}

// save stores the totals of a collection.
func (s *energyScraper) save(ctx context.Context, m *window.Measurement, at windowEnd) {
	if at == betweenCollections {
		return
	}
	s.watchdog.Enter(windows.Saving)
	s.output.mayEmit = m != nil && s.state.Save(ctx, s.machine.Now, s.attributor.Models(), s.noteTotals, at == atLastCollection)
	s.conditions.Observe("storage", s.state.Err())
}

// bootTime returns when the machine booted, by the wall clock at the baseline m.
func (s *energyScraper) bootTime(m *window.Measurement) time.Time {
	boot, err := cpu.BootTime(s.cfg.RootPath)
	if err != nil {
		boot = m.Stamp.Add(-m.Table.Now)
	}
	return boot
}

// measure reads the meters and the CPU times, of all processes if the window ends a collection. m is
// nil if the CPU times could not be read, or if the receiver is shut down. replaced reports whether
// another CPU time source is in use from now on.
//
// The meters are read next to the node's CPU time, because their energy is divided by it.
func (s *energyScraper) measure(ctx context.Context, at windowEnd) (m *window.Measurement, replaced bool) {
	now, reader := s.machine.Now(), s.node.CPU
	s.node.Waits.Begin(now)
	source := reader.Traits().Name
	s.watchdog.Enter(windows.ReadingNode)
	node, err := reader.Begin(now, s.node.Want(at != betweenCollections))
	s.conditions.Observe("node CPU time", err)
	s.windows.Demand.Began = now
	s.watchdog.Enter(windows.ReadingMeters)
	sample := power.Sample{At: now, Busy: node.Busy, Total: node.Total, Waits: s.node.Waits}
	if err == nil {
		s.windows.Rest.End(&sample, s.machine.Now())
	}
	readings := s.readMeters(ctx, sample)
	if err != nil {
		s.telemetry.failedScans++
		return nil, false
	}
	s.watchdog.Enter(windows.ReadingProcesses)
	w, err := reader.Read()
	s.conditions.Observe("process CPU times", err)
	if err != nil && !w.Replaced {
		s.telemetry.failedScans++
		return nil, false // the next scan reads the usage of GPUs in this window
	}
	s.watchdog.Enter(windows.ReadingGPUs)
	used := s.meters.ReadGPUs(now, w.Table, s.conditions)
	m = &window.Measurement{
		ReadAt: now, Stamp: s.windows.Timeline.At(now), Node: w.Node, Domains: w.Domains, CPUs: w.CPUs, Table: w.Table,
		Readings: readings, GPUs: used, Attributed: s.meters.Attributed(), EndsCollection: at != betweenCollections,
	}
	if w.Replaced {
		s.set.Logger.Warn("CPU time source replaced by "+reader.Traits().Name, zap.String("source", source), zap.Error(err))
	} else {
		s.observeEnds(m)
	}
	if errors.Is(context.Cause(ctx), errShut) {
		return nil, false // before the identification of all processes, which takes most of the time of the first scan
	}
	return m, w.Replaced
}

// readMeters reads the meters. Static power models continue with another meter as they are restored.
func (s *energyScraper) readMeters(ctx context.Context, at power.Sample) []power.Reading {
	readings, changed := s.meters.Read(ctx, at, s.conditions)
	if changed {
		s.windows.Rest.Allow(s.cfg.RootPath, 0) // until the next collection checks the new meter
	}
	if changed && s.attributor.Begun() {
		s.state.Training.Note(s.attributor.Models())
		s.state.Training.Restore(s.attributor.Models(), readings)
	}
	return readings
}

// observeEnds counts the process exits that the CPU time source missed.
func (s *energyScraper) observeEnds(m *window.Measurement) {
	s.telemetry.lostExits += int64(m.Table.Unseen.LostExits)
	if s.node.CPU.Exact() && (m.Table.Unseen.Untraced > 0 || m.Table.Unseen.LostExits > 0) {
		s.conditions.Observe("process exits", window.ErrLostExits)
	}
}

// publish publishes the window to readers of the feed.
func (s *energyScraper) publish(m *window.Measurement) {
	if m == nil || !s.attributor.IsRead() {
		return
	}
	s.watchdog.Enter(windows.FeedingReaders)
	s.attributor.Publish(s.meters.Behind(m.ReadAt))
}

// noteTotals records the totals after the last measurement.
func (s *energyScraper) noteTotals(totals *state.Totals) error {
	if err := s.node.CPU.Past(&totals.CPU); err != nil {
		return err
	}
	totals.ReadAt, totals.BootTime = s.attributor.Collector.Last().ReadAt, s.attributor.BootTime
	s.attributor.Collector.State(&totals.Window)
	s.meters.Set.Past(&totals.Meters)
	return nil
}

// tooSoon reports whether a window is shorter than the resolution of the CPU time source. That
// happens after procfs replaced BPF, until the next collection adjusts the windows.
func (s *energyScraper) tooSoon() bool {
	length := s.windows.Sampler.Window
	if length == 0 || s.node.CPU.Exact() || !s.attributor.Begun() {
		return false
	}
	window, _ := s.window()
	return length < window && s.machine.Now().Sub(s.attributor.Collector.Last().ReadAt) < window
}

// rests reports whether the current window continues because the machine is at rest.
func (s *energyScraper) rests() bool {
	return !s.attributor.IsRead() && s.windows.Rest.Continues(s.machine.Now(), s.windows.Sampler.Window)
}

// restLimit returns the maximum length of windows at rest, or 0 if the attributed energy would
// depend on the length. window is the length of other windows.
func (s *energyScraper) restLimit(window time.Duration) time.Duration {
	if window < cpu.TickWindow || !s.node.CPU.Exact() || s.node.Rules.Idle != config.IdleNone ||
		!s.attributor.Begun() || !s.meters.CanRest() || !s.attributor.HasModeledStaticPower() {
		return 0
	}
	return min(cmp.Or(s.meters.SoonestWrap()/2, windows.MaxRest), windows.MaxRest)
}

// adjustWindow adjusts the length of the windows: a meter that has become readable may have
// counters that wrap sooner, or the CPU time source may have changed. It is called between scrapes,
// without the lock.
func (s *energyScraper) adjustWindow() {
	s.mu.Lock()
	window, reason := s.window()
	s.windows.Rest.Allow(s.cfg.RootPath, s.restLimit(window))
	s.mu.Unlock()
	if window == s.windows.Sampler.Window {
		return
	}
	s.set.Logger.Info("Attribution window selected",
		zap.Stringer("window", cmp.Or(window, s.cfg.CollectionInterval)), zap.String("reason", reason))
	s.windows.Sampler.Stop()
	s.windows.Sampler.Start(window, s.machine.NewMetronome, s.sample)
}

// window returns the length that the windows should have, and the reason. 0 means one window per
// collection.
func (s *energyScraper) window() (window time.Duration, reason string) {
	return windows.ChooseLength(s.node.Rules.Window, s.cfg.CollectionInterval, s.node.CPU.Exact(), s.meters.SoonestWrap())
}

// delivered is called with the outcome of the collection that scrape returned last.
func (s *energyScraper) delivered(d delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.output.emitted {
		return
	}
	s.output.emitted = false
	s.watchdog.Enter(windows.Idle)
	s.attributor.Ledger.Outcome(d.outcome())
}
