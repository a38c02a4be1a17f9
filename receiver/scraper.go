// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/conditions"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// energyScraper measures and attributes once per window, and emits once per collection.
type energyScraper struct {
	watchdog watchdog
	mu       lock // of all below: the sampler runs alongside the controller's goroutine

	cfg        *Config
	set        receiver.Settings
	conditions *conditions.Conditions
	now        func() time.Time
	timeline   timeline

	kernelClocks func() (boot, suspended time.Duration)
	// next takes the last collection. It is nil in an Embedded, whose user collects.
	next consumer.Metrics

	open     func(cpu.Options) (reader *cpu.Reader, rejected, err error) // cpu.OpenReader
	readCPUs func(root string) ([]divide.CPU, error)                     // divide.ReadCPUs
	cpu      *cpu.Reader                                                 // nil until start
	meters   *meters
	// openMeters opens what meters reads.
	openMeters   func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error)
	countsClocks func(root string) error                              // weigh.CountsClocks
	countsEvents func(tree *cgroup.Tree, events ...weigh.Event) error // weigh.CountsEvents
	cgroups      *cgroup.Tree
	keys         *claims.Keys     // nil where plain CPU time is the only one
	siblings     *divide.Siblings // nil where CPU time counts in full
	sampler      sampler
	// staticPower is that of EmbeddedOptions, in watts.
	staticPower map[power.Class]float64

	ledger  *ledger // nil until the first measurement
	emitted bool    // the last scrape returned the ledger, and it is not known yet whether it was delivered

	visibility claims.Visibility
	telemetry  telemetry
	state      state
	training   training
	gpus       gpus
	feeding    feeding
	demand     demand

	found rulesFound

	eager bool // each process has a claimant at once
	// container, if set, is the ID of the container of all processes that the CPU time source shows. It does not show
	// the others.
	container string
}

// newEnergyScraper returns a scraper that has not started. It does not change the configuration.
func newEnergyScraper(configured *Config, set receiver.Settings) (*energyScraper, error) {
	own := *configured // start notes in it what the machine lacks
	cfg := &own
	cgroups := cgroup.New(cgroup.Options{Root: cfg.RootPath, LinearWeights: cfg.Attribution.idle() == IdleRequestedLinear})
	s := &energyScraper{
		mu:         newLock(),
		cfg:        cfg,
		set:        set,
		conditions: conditions.New("Collection", set.Logger),
		now:        time.Now,

		kernelClocks: kernelClocks,
		open:         cpu.OpenReader,
		readCPUs:     divide.ReadCPUs,
		openMeters:   openMeters,
		countsClocks: weigh.CountsClocks,
		countsEvents: weigh.CountsEvents,
		meters:       newMeters(cfg, set.Logger),
		cgroups:      cgroups,
		keys:         claims.NewKeys(cfg.keyOptions(cgroups)),
		training:     training{cfg: cfg, logger: set.Logger},
	}
	var err error
	s.telemetry, err = newTelemetry(s)
	return s, err
}

// start takes the baseline. Whatever is missing or unreadable is reported and looked for again at each
// scrape; it never keeps the collector from starting.
func (s *energyScraper) start(ctx context.Context, host component.Host) (err error) {
	s.conditions.Host = host
	s.watchdog.enter(starting)
	defer s.watchdog.enter(idle)
	if s.next != nil {
		s.watchdog.start(s.cfg.InitialDelay, s.cfg.CollectionInterval, func(err error) { s.conditions.Set("collection", err) })
		defer func() {
			if err != nil {
				s.watchdog.stop()
			}
		}()
	}
	if !s.state.readOnly {
		if s.state.in, err = s.cfg.openStorage(host, s.set.ID); err != nil {
			return err
		}
	}
	s.warnOfSharedSeries()
	s.logNames()
	if s.meters.set, err = s.openMeters(ctx, s.cfg, host, s.set.TelemetrySettings); err != nil {
		return err
	}
	s.gpus.open(s.cfg, s.meters.set, s.set.Logger)
	topology, undivided := s.openTopology()
	s.found = rulesFound{undivided: undivided, unclocked: s.findClocks()}
	s.findCounters()
	unshared := s.openSiblings()
	reader, rejected, err := s.open(cpu.Options{
		Root: s.cfg.RootPath, Kind: s.cfg.CPUTime, Window: s.cfg.windowLength(), Topology: topology,
		Slices: s.siblings != nil, PerCPU: s.siblings != nil, BeforeScan: s.readCgroups, Counters: s.cgroups.CPUTime,
		Names: s.cfg.Series.Processes.GroupBy != GroupByPID,
	})
	if err != nil {
		return err // only where the configuration insists on a source
	}
	s.cpu = reader
	s.found.unshared = unshared
	s.openFeed()
	s.cpu.Table().FreshResident, s.cpu.Table().FreshLastCPU = s.keys.Sleepers(), s.keys.OfClockRates()
	source := reader.Source()
	fields := []zap.Field{zap.String("source", source.Name())}
	if rejected != nil {
		fields = append(fields, zap.NamedError("rejected", rejected))
	}
	if partial, ok := source.(cpu.Partial); ok {
		if err := partial.Lacks(); err != nil {
			fields = append(fields, zap.NamedError("lacks", err))
		}
	}
	s.set.Logger.Info("CPU time source selected", fields...)
	for setting, reason := range s.cfg.withoutEffect(source.Exact(), undivided, unshared) {
		s.set.Logger.Warn("Setting has no effect", zap.String("setting", setting), zap.String("reason", reason))
	}
	if len(s.cfg.Attribution.Exclude.ExecutableName) > 0 {
		s.set.Logger.Warn("Exclusion by executable name trusts every process on the node: anybody can give a program an excluded name",
			zap.String("setting", "attribution::exclude::executable_name"))
	}
	if s.cfg.splitsAgain() {
		s.set.Logger.Warn("The hypervisor reports active energy, and the static power model utilization divides it again: most of it becomes idle",
			zap.String("setting", "attribution::static_power"), zap.String("alternative", "{model: fixed, power: 0}"))
	}
	s.restoreState(ctx)
	s.sample()
	s.settleStart()
	s.adjustWindow()
	s.feeding.feed.Serve(func(ctx context.Context) { s.endWindow(ctx) })
	return s.observeSelf()
}

// settleStart reports problems at start and the settings that a preset selected.
func (s *energyScraper) settleStart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logRules()
	s.conditions.Observe("storage", s.state.err)
	s.conditions.Settle()
}

// openTopology returns how the node's CPUs are divided where attribution is by zone, or why they are not.
func (s *energyScraper) openTopology() (*divide.Topology, error) {
	if s.cfg.Attribution.scope() != ScopeZone {
		return nil, nil
	}
	topology, err := kernfs.Within(s.cfg.RootPath, s.cpuDirectory(), func() (*divide.Topology, error) {
		return divide.OpenTopology(s.cfg.RootPath)
	}, func(t *divide.Topology) { _ = t.Close() }) // it was only read from
	if err != nil {
		return nil, err
	}
	return topology, nil
}

// cpuDirectory is where the kernel describes the CPUs.
func (s *energyScraper) cpuDirectory() string {
	return filepath.Join(s.cfg.RootPath, "sys/devices/system/cpu")
}

// findClocks has CPU time take the place of the preset's key frequency where the clock rate of an interval cannot be
// read, and returns why. The rate of a moment is not that of an interval.
func (s *energyScraper) findClocks() error {
	if !s.cfg.usesClocks() {
		return nil
	}
	err := s.probe(func() error { return s.countsClocks(s.cfg.RootPath) })
	if s.cfg.Attribution.unclocked = err != nil; s.cfg.Attribution.unclocked {
		s.keys = claims.NewKeys(s.cfg.keyOptions(s.cgroups))
	}
	return err
}

// probe returns the error of a check of the devices, or an error if the check hangs.
func (s *energyScraper) probe(check func() error) error {
	_, err := kernfs.Within(s.cfg.RootPath, filepath.Join(s.cfg.RootPath, "sys/devices"), func() (struct{}, error) {
		return struct{}{}, check()
	}, nil)
	return err
}

// findCounters selects CPU time in place of the preset's weights that require hardware events if these cannot be
// counted.
func (s *energyScraper) findCounters() {
	events := s.cfg.Attribution.countedEvents(s.cfg.Zones)
	if len(events) == 0 {
		return
	}
	err := s.probe(func() error { return s.countsEvents(s.cgroups, events...) })
	if s.cfg.Attribution.uncounted = err != nil; err != nil {
		s.set.Logger.Info("Hardware events cannot be counted: the preset's weights are CPU time", zap.Error(err))
		s.keys = claims.NewKeys(s.cfg.keyOptions(s.cgroups))
	}
}

// openSiblings opens what lists the threads of each core, where it is needed. It returns why that has no effect:
// threads may come online later, which a preset does not wait for.
func (s *energyScraper) openSiblings() (unshared error) {
	a := &s.cfg.Attribution
	if a.unshared = false; !slices.ContainsFunc(s.cfg.Zones, a.weighsCores) {
		return nil
	}
	siblings, err := kernfs.Within(s.cfg.RootPath, s.cpuDirectory(), func() (*divide.Siblings, error) {
		return divide.OpenSiblings(s.cfg.RootPath)
	}, func(s *divide.Siblings) { _ = s.Close() }) // it was only read from
	if err == nil && !siblings.Shared() {
		err = divide.ErrUnshared
	}
	if s.siblings = siblings; err == nil || a.SMTWeight > 0 {
		return err
	}
	_ = siblings.Close() // it was only read from
	s.siblings, a.unshared = nil, true
	s.keys = claims.NewKeys(s.cfg.keyOptions(s.cgroups))
	return err
}

func (s *energyScraper) warnOfSharedSeries() {
	for _, shared := range emit.FindSharedSeries(s.cfg.MetricsBuilderConfig) {
		without := map[GroupBy]identity.Entity{GroupByPID: identity.ProgramEntity, GroupByProgram: identity.ProcessEntity}
		if entity, ok := without[s.cfg.Series.Processes.GroupBy]; ok && shared.Entity == entity.String() {
			continue
		}
		s.set.Logger.Warn("Resource attribute disabled: without it several series cannot be told apart",
			zap.String("attribute", shared.Attribute), zap.String("series", shared.Entity))
	}
}

func (s *energyScraper) shutdown(ctx context.Context) error {
	s.watchdog.stop()
	s.sampler.stop()
	s.closeFeed()
	s.collectLast(ctx)
	s.telemetry.builder.Shutdown() // before the lock, which its callbacks wait for
	s.mu.Lock()
	defer s.mu.Unlock()
	// A reader may have asked for a window before closeFeed.
	s.feeding.closed = true
	if s.cpu == nil { // it was never started
		s.closeStorage(ctx)
		return nil
	}
	s.closeStorage(ctx)
	if s.ledger != nil {
		_ = s.ledger.Identifier.Close() // it was only read from
	}
	return errors.Join(s.gpus.close(), s.cpu.Close(), s.meters.close(), s.keys.Close(), s.siblings.Close(), s.cgroups.Close())
}

// lastTimeout is the maximum time for which shutdown waits for the next consumer. It is shorter than shutdownTimeout,
// so that resources can be closed even if the consumer hangs.
const lastTimeout = 3 * time.Second

// collectLast makes the last collection, and hands it to the next consumer, which is shut down after its receivers.
func (s *energyScraper) collectLast(ctx context.Context) {
	if s.next == nil || s.cpu == nil {
		return
	}
	md, err := s.collect(ctx)
	if err != nil || md.ResourceMetrics().Len() == 0 {
		return // the conditions tell why
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.next.ConsumeMetrics(ctx, md) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.set.Logger.Warn("Last collection refused", zap.Error(err))
	}
}

// closeStorage closes the store. The last collection has stored the state.
func (s *energyScraper) closeStorage(ctx context.Context) {
	if err := s.state.in.close(ctx); err != nil {
		s.set.Logger.Warn("Storage not closed", zap.Error(err))
	}
}

// sample attributes one window.
func (s *energyScraper) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tooSoon() {
		if s.scan(context.Background(), false) != nil {
			s.publish(false)
		}
	}
}

// scrape is one collection: it reads the meters and the CPU times, attributes the energy since the last window, and
// returns the ledger as metrics. If the CPU times cannot be read, it returns none: the conditions tell why, and the
// next collection covers this one.
//
// A process's CPU time becomes a data point in cpu.Reader.ReadProcesses, claims.Builder.Observe,
// attribution.Engine.Observe, emit.Emitter.Emit and nextConsumer.ConsumeMetrics, in this order.
func (s *energyScraper) scrape(ctx context.Context) (pmetric.Metrics, error) {
	defer s.adjustWindow()
	return s.collect(ctx)
}

// collect is a collection that leaves the windows as they are.
func (s *energyScraper) collect(ctx context.Context) (pmetric.Metrics, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.finish()
	s.emitted = false // still set only if the controller dropped the last collection without calling delivered
	m := s.scan(ctx, true)
	s.watchdog.enter(saving)
	s.saveState(ctx, m)
	s.conditions.Observe("storage", s.state.err)
	if m != nil {
		s.publish(true)
	}
	s.watchdog.enter(building)
	s.conditions.Observe("windows", s.sampler.err())
	s.conditions.Settle()
	s.logRules()
	if m == nil {
		return pmetric.NewMetrics(), nil
	}
	s.emitted = true
	return s.ledger.emit(m.Stamp), nil
}

// finish reports the end of a collection to the watchdog.
func (s *energyScraper) finish() {
	s.watchdog.enter(idle)
	if s.emitted {
		s.watchdog.enter(delivering)
	}
	s.watchdog.finished()
}

// scan reads and attributes one window. It returns nil if the CPU times could not be read.
func (s *energyScraper) scan(ctx context.Context, endsCollection bool) *claims.Measurement {
	began := time.Now()
	defer func() { s.demand.took = time.Since(began) }()
	defer s.watchdog.enter(s.watchdog.current())
	defer s.check()
	s.cpu.Table().MayBePartial = !endsCollection
	m, replaced := s.measure(ctx)
	if m == nil {
		s.telemetry.failedScans++
		return nil
	}
	s.watchdog.enter(attributing)
	m.EndsCollection = endsCollection
	if s.state.restored {
		s.state.restored = false
		s.restoreTrained(m.Readings)
	}
	switch {
	case s.ledger == nil:
		s.ledger = s.newLedger(m.Stamp, s.bootTime(m))
		s.restoreTrained(m.Readings)
		s.ledger.Observe(m)
	case replaced:
		s.feeding.begin(s.ledger)
		s.ledger.StartOver(m, s.cpu.Source().Exact())
	default:
		s.feeding.begin(s.ledger)
		s.ledger.Observe(m)
	}
	s.welcomeGPUs(m.Readings)
	s.logSelectedKeys()
	if s.container == "" {
		s.visibility.Observe(m, s.ledger.Builder)
	}
	s.telemetry.scanned(time.Since(began))
	return m
}

// measure reads the meters and the CPU times. m is nil if the CPU times could not be read. replaced reports whether
// another CPU time source is in use from now on.
//
// The meters are read next to the node's CPU time, by which their energy is divided.
func (s *energyScraper) measure(ctx context.Context) (m *claims.Measurement, replaced bool) {
	now := s.now()
	s.watchdog.enter(readingNode)
	node, err := s.cpu.ReadNode(now)
	s.conditions.Observe("node CPU time", err)
	s.demand.began = now
	s.watchdog.enter(readingMeters)
	readings, changed := s.meters.read(ctx, power.Sample{At: now, Busy: node.Busy, Total: node.Total}, s.conditions)
	if changed && s.ledger != nil {
		s.noteTrained()
		s.restoreTrained(readings)
	}
	if err != nil {
		return nil, false
	}
	source := s.cpu.Source().Name()
	s.watchdog.enter(readingProcesses)
	replaced, err = s.cpu.ReadProcesses()
	s.conditions.Observe("process CPU times", err)
	if err != nil && !replaced {
		return nil, false // what GPUs were used meanwhile is read after the next scan
	}
	s.watchdog.enter(readingGPUs)
	used, unknown := s.gpus.read(now, s.cpu.Table(), readings)
	s.conditions.Observe("GPU usage", unknown)
	s.conditions.Observe("GPU library", s.gpus.notes.check(now, readings, used, s.meters.set))
	m = &claims.Measurement{
		ReadAt: now, Stamp: s.timeline.at(now), Node: node, Domains: s.cpu.Domains(), CPUs: s.cpu.CPUs(), Table: s.cpu.Table(),
		Readings: readings, GPUs: used, Attributed: s.meters.attributed(),
	}
	if replaced {
		s.set.Logger.Warn("CPU time source replaced by "+s.cpu.Source().Name(), zap.String("source", source), zap.Error(err))
	} else {
		s.observeEnds(m.Table)
	}
	return m, replaced
}

// readCgroups reads the counters of cgroups, before a scan that they complete.
func (s *energyScraper) readCgroups() {
	if s.ledger != nil {
		s.ledger.ReadCounters()
	}
}

func (s *energyScraper) observeEnds(t *scan.Table) {
	s.telemetry.lostExits += int64(t.LostEnds)
	if s.cpu.Source().Exact() && t.Untraced > 0 {
		s.conditions.Observe("process ends", claims.ErrEndsLost)
	}
}

func (s *energyScraper) logSelectedKeys() {
	for _, selected := range s.keys.Selected() {
		fields := []zap.Field{zap.String("key", string(selected.Key)), zap.String("by", selected.By)}
		if selected.Rejected != nil {
			fields = append(fields, zap.NamedError("rejected", selected.Rejected))
		}
		s.set.Logger.Info("Allocation key selected", fields...)
	}
}

// check checks the conditions of the last window that was attributed.
func (s *energyScraper) check() {
	if s.ledger == nil {
		return
	}
	s.conditions.Observe("containers' cgroups", s.ledger.Outside())
	s.conditions.Observe("exclusion", s.ledger.Exclusion.Err())
	s.conditions.Observe("blocked processes", blockedProcesses(s.cpu.Source(), s.ledger.Identifier))
	s.conditions.Observe("blocked cgroups", s.cgroups.Blocked())
	if s.ledger.Places != nil {
		s.conditions.Observe("memory placement", s.ledger.Places.Err())
	}
	s.conditions.Observe("process visibility", s.visibility.Hidden())
	s.conditions.Observe("unattributed energy", s.visibility.Unattributed())
	for key, err := range s.keys.Failed() {
		s.conditions.Observe("key "+string(key), err)
	}
}

// blockedProcesses returns an error on one line if processes block reads by the given parts of the receiver. Some CPU
// time sources read nothing that a process can block, and have no method Blocked.
func blockedProcesses(parts ...any) error {
	var errs []error
	for _, part := range parts {
		if reader, ok := part.(interface{ Blocked() error }); ok {
			if err := reader.Blocked(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.New(oneline.Text(err))
	}
	return nil
}

// noteTrained records the trained models to be stored.
func (s *energyScraper) noteTrained() {
	if s.ledger != nil {
		s.training.note(&s.ledger.rules, s.ledger.kinds, s.ledger.Domains())
	}
}

// restoreTrained restores the static power models of the zones of these readings.
func (s *energyScraper) restoreTrained(readings []power.Reading) {
	s.training.restore(&s.ledger.rules, s.ledger.kinds, s.ledger.Domains(), readings)
}

// welcomeGPUs restores the trained models of GPUs that are listed for the first time, before any of their energy is
// attributed.
func (s *energyScraper) welcomeGPUs(readings []power.Reading) {
	i := slices.IndexFunc(readings, func(r power.Reading) bool { return r.Zone.Kind == power.GPU })
	if i < 0 || !slices.Contains(s.cfg.Zones, power.GPU) {
		return
	}
	if s.cfg.Attribution.trains(s.cfg.Zones) {
		s.training.restoreGPUs(&s.ledger.rules, s.ledger.kinds, s.ledger.Domains(), readings)
	}
}

// delivered is called with the outcome of the collection that scrape returned last.
func (s *energyScraper) delivered(d delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.emitted {
		return
	}
	s.emitted = false
	s.watchdog.enter(idle)
	switch {
	case d.all:
		s.ledger.Engine.Acknowledged()
	case d.some:
		s.ledger.Engine.PartlyAcknowledged()
	case d.forGood:
		s.ledger.Engine.RefusedForGood()
	default:
		s.ledger.Engine.Refused()
	}
}
