// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// energyScraper measures and attributes once per window, and emits once per collection.
type energyScraper struct {
	mu sync.Mutex // of all below: the sampler runs beside the controller's goroutine

	cfg        *Config
	set        receiver.Settings
	conditions *conditions
	now        func() time.Time
	timeline   timeline

	open    func(cpu.Options) (reader *cpu.Reader, rejected, err error) // cpu.OpenReader
	cpu     *cpu.Reader                                                 // nil until start
	meters  *meters
	kinds   []power.Kind // that were attributed last
	ledgers *ledgers     // nil until the first measurement
	retired []*ledgers   // of meters and sources that were replaced, until their last values were acknowledged
	sent    *ledgers     // those in the last emission, nil once it was acknowledged
	sampler sampler

	cgroups    *cgroup.Tree
	keys       *claims.Keys // nil where CPU time is the only one
	visibility claims.Visibility
	telemetry  telemetry
	learning   learning
	readCPUs   func(root string) ([]cpu.CPU, error) // cpu.ReadCPUs
}

// ledgers is everything that was attributed with one meter and one source of CPU times.
type ledgers struct {
	*claims.Builder
	engine    *attribution.Engine
	exclusion *workload.Exclusion
	kinds     []power.Kind   // of zones that are attributed
	domains   []units.Domain // by their indices in the engine
	emitter   *emit.Emitter
	rules     attribution.Rules
	end       time.Time // when others took over
	refused   int       // how often the final values were refused for good
	skip      bool      // the next emission is of the ledgers in use
}

func newEnergyScraper(cfg *Config, set receiver.Settings) (*energyScraper, error) {
	m, err := newMeters(cfg, set.Logger)
	if err != nil {
		return nil, err
	}
	cgroups := cgroup.New(cgroup.Options{Root: cfg.RootPath, LinearWeights: cfg.Attribution.CPUWeight == WeightLinear})
	s := &energyScraper{
		cfg:        cfg,
		set:        set,
		conditions: newConditions(set.Logger),
		now:        time.Now,
		open:       cpu.OpenReader,
		readCPUs:   cpu.ReadCPUs,
		meters:     m,
		cgroups:    cgroups,
		keys:       claims.NewKeys(cfg.keyOptions(cgroups)),
		learning:   learning{cfg: cfg, logger: set.Logger},
	}
	s.telemetry, err = newTelemetry(s)
	return s, err
}

// start takes the baseline. Whatever is missing or unreadable is reported and looked for again at each
// scrape; it never keeps the collector from starting.
func (s *energyScraper) start(ctx context.Context, host component.Host) error {
	s.conditions.host = host
	if err := s.learning.open(ctx, host, s.set.ID); err != nil {
		return err
	}
	s.warnOfSharedSeries()
	reader, rejected, err := s.open(cpu.Options{
		Root: s.cfg.RootPath, Kind: s.cfg.CPUTime, Window: s.cfg.SamplingInterval, BeforeScan: s.readCgroups,
	})
	if err != nil {
		return err // only where the configuration insists on a source
	}
	s.cpu = reader
	s.cpu.Table().Sizes = s.keys.Sleepers()
	source := reader.Source()
	fields := []zap.Field{zap.String("source", source.Name())}
	if rejected != nil {
		fields = append(fields, zap.NamedError("rejected", rejected))
	}
	if partial, ok := source.(interface{ Lacks() error }); ok {
		if err := partial.Lacks(); err != nil {
			fields = append(fields, zap.NamedError("lacks", err))
		}
	}
	s.set.Logger.Info("CPU time source selected", fields...)
	for setting, reason := range s.cfg.withoutEffect(source.Exact()) {
		s.set.Logger.Warn("Setting has no effect", zap.String("setting", setting), zap.String("reason", reason))
	}
	if len(s.cfg.Attribution.Exclude.ExecutableName) > 0 {
		s.set.Logger.Warn("Exclusion by executable name trusts every process on the node: anybody can give a program an excluded name",
			zap.String("setting", "attribution::exclude::executable_name"))
	}
	s.sample()
	s.conditions.check("learned static power", s.learning.trouble)
	s.conditions.settle()
	s.adjustWindow()
	return s.observeSelf()
}

func (s *energyScraper) warnOfSharedSeries() {
	for _, shared := range emit.FindSharedSeries(s.cfg.MetricsBuilderConfig) {
		s.set.Logger.Warn("Resource attribute disabled: different series are identical, and a backend mixes them up",
			zap.String("attribute", shared.Attribute), zap.String("series", shared.Entity))
	}
}

func (s *energyScraper) shutdown(ctx context.Context) error {
	s.sampler.stop()
	s.telemetry.builder.Shutdown() // before the lock, which its callbacks wait for
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cpu == nil {
		s.learning.close(ctx, s.now()) // it was never started
		return nil
	}
	s.retire()
	s.dropRetired()
	s.learning.close(ctx, s.now())
	return errors.Join(s.cpu.Close(), s.meters.close(), s.keys.Close(), s.cgroups.Close())
}

// sample attributes one window.
func (s *energyScraper) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tooSoon() {
		s.scan(context.Background(), false)
	}
}

// scan measures and attributes, nil if that failed.
func (s *energyScraper) scan(ctx context.Context, endsCollection bool) *claims.Measurement {
	began := time.Now()
	defer s.check()
	m, replaced := s.measure(ctx)
	if m == nil {
		s.telemetry.failedScans++
		return nil
	}
	m.EndsCollection = endsCollection
	if replaced && s.ledgers != nil {
		s.ledgers.StartOver(m, s.cpu.Source().Exact())
	} else {
		s.attribute(m)
	}
	s.visibility.Observe(m, s.ledgers.Builder)
	s.telemetry.scanned(time.Since(began))
	return m
}

// scrape is the receiver's whole story.
func (s *energyScraper) scrape(ctx context.Context) (pmetric.Metrics, error) {
	defer s.adjustWindow()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = nil // what was emitted before was refused
	m := s.scan(ctx, true)
	if now := s.now(); s.ledgers != nil && s.learning.due(now) {
		s.learning.keep(&s.ledgers.rules, s.ledgers.kinds, s.ledgers.domains)
		s.learning.save(ctx, now)
	}
	s.conditions.check("learned static power", s.learning.trouble)
	s.conditions.settle()
	if m == nil {
		return pmetric.NewMetrics(), nil // told by the conditions; the next measurement covers this one
	}
	return s.emit(m), nil
}

// measure reads the meter and the CPU times. m is nil if that failed. replaced reports whether the CPU time source was
// replaced. The energy counters are read next to the
// node's CPU time, by which they are split, and the cgroups' counters before the processes.
func (s *energyScraper) measure(ctx context.Context) (m *claims.Measurement, replaced bool) {
	now := s.now()
	node, err := s.cpu.ReadNode(now)
	s.conditions.check("node CPU time", err)
	readings, changed := s.meters.read(ctx, power.Sample{At: now, Busy: node.Busy, Total: node.Total}, s.conditions)
	if changed {
		s.retire()
	}
	if err != nil {
		return nil, false
	}
	source := s.cpu.Source().Name()
	replaced, err = s.cpu.ReadProcesses()
	s.conditions.check("process CPU times", err)
	m = &claims.Measurement{ReadAt: now, Stamp: s.timeline.at(now), Node: node, Table: s.cpu.Table(), Readings: readings}
	switch {
	case replaced:
		s.set.Logger.Warn("CPU time source replaced by procfs", zap.String("source", source), zap.Error(err))
	case err != nil:
		return nil, false
	default:
		s.observeEnds(m.Table)
	}
	return m, replaced
}

// readCgroups reads the counters of cgroups, before a scan that they complete.
func (s *energyScraper) readCgroups() {
	if s.ledgers != nil {
		s.ledgers.ReadCounters()
	}
}

func (s *energyScraper) observeEnds(t *cpu.Table) {
	s.telemetry.lostExits += int64(t.LostEnds)
	if s.cpu.Source().Exact() && t.Untraced > 0 {
		s.conditions.check("process ends", claims.ErrEndsLost)
	}
}

// retire ends the ledgers. Their last values are emitted until they were accepted.
func (s *energyScraper) retire() {
	if s.ledgers != nil {
		s.learning.keep(&s.ledgers.rules, s.ledgers.kinds, s.ledgers.domains)
		s.retired = append(s.retired, s.ledgers)
		if s.sent == s.ledgers {
			s.sent = nil // without what came since
		}
		s.ledgers = nil
	}
}

// dropRetired forgets all ledgers that were retired.
func (s *energyScraper) dropRetired() {
	for len(s.retired) > 0 {
		s.dropOldest()
	}
}

// dropOldest forgets the ledgers that were retired first.
func (s *energyScraper) dropOldest() {
	l := s.retired[0]
	s.retired = slices.Delete(s.retired, 0, 1)
	_ = l.Identifier.Close() // it was only read from
	s.telemetry.droppedSeries += int64(l.engine.Ledger().Dropped)
}

// attribute books a measurement. The first one is the baseline. Where other kinds of zones are attributed from now on, the
// ledgers end with it, and it is the baseline of new ones.
func (s *energyScraper) attribute(m *claims.Measurement) {
	if s.ledgers != nil && !slices.Equal(s.ledgers.kinds, s.meters.attributed()) {
		s.ledgers.Observe(m)
		s.ledgers.Finish(m)
		s.retire()
	}
	if s.ledgers == nil {
		s.begin(m)
	}
	s.ledgers.Observe(m)
	s.logSelectedKeys()
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

// check tells what is wrong with the ledgers, and was when they were last brought up to date.
func (s *energyScraper) check() {
	if s.ledgers == nil {
		return
	}
	s.conditions.check("containers' cgroups", s.ledgers.Outside())
	s.conditions.check("exclusion", s.ledgers.exclusion.Err())
	s.conditions.check("process visibility", s.visibility.Hidden())
	s.conditions.check("unattributed energy", s.visibility.Unattributed())
	for key, err := range s.keys.Failed() {
		s.conditions.check("key "+string(key), err)
	}
}

// begin starts new ledgers at a measurement.
func (s *energyScraper) begin(m *claims.Measurement) {
	boot, err := cpu.BootTime(s.cfg.RootPath)
	if err != nil {
		boot = m.Stamp.Add(-m.Table.Now)
	}
	kinds := s.attributedKinds()
	domains := []units.Domain{units.NodeCPUs}
	rules := s.cfg.Attribution.rules(kinds, s.cfg.Zones)
	s.learning.restore(&rules, kinds, domains, m.Readings, s.meters.source)
	cfg := attribution.Config{
		Rules: rules,
		Limits: attribution.Limits{
			attribution.Process:   s.cfg.Processes.limit(),
			attribution.Container: s.cfg.Containers.limit(),
			attribution.Pod:       s.cfg.Pods.limit(),
			attribution.VM:        s.cfg.VMs.limit(),
		},
	}
	l := &ledgers{
		engine: attribution.New(cfg, m.Stamp), exclusion: newExclusion(&s.cfg.Attribution.Exclude, s.cfg.RootPath),
		kinds: kinds, domains: domains, rules: rules,
	}
	l.Builder = claims.NewBuilder(claims.Options{
		Engine: l.engine,
		Exact:  s.cpu.Source().Exact(),
		Identifier: workload.NewIdentifier(s.cfg.RootPath, workload.Wanted{
			CommandLine:   s.cfg.ResourceAttributes.ProcessCommandLine.Enabled,
			ProcessCgroup: len(s.cfg.Attribution.Exclude.Cgroup) > 0,
		}),
		Cgroups:   s.cgroups,
		BootTime:  boot,
		Exclusion: l.exclusion,
		Keys:      s.keys,
		Kinds:     kinds,
		Requests:  rules.Idle == attribution.IdleRequested,
	})
	l.emitter = emit.New(emit.Config{
		MetricsBuilderConfig: s.cfg.MetricsBuilderConfig,
		BuildInfo:            s.set.BuildInfo,
		Kinds:                emittedKinds(kinds, s.meters.source),
		CPUs:                 s.cpus(),
		Idle:                 rules.Idle != attribution.IdleNone,
	})
	s.ledgers = l
	for _, l := range s.retired {
		if l.end.IsZero() {
			l.end = m.Stamp
		}
	}
}

// attributedKinds returns the kinds of zones that new ledgers are of, and logs where these are not the configured ones.
func (s *energyScraper) attributedKinds() []power.Kind {
	kinds, psys := s.meters.attributed(), []power.Kind{power.PSys}
	switch before := s.kinds; {
	case s.meters.onlyPSys && slices.Equal(kinds, psys) && !slices.Equal(before, psys):
		s.set.Logger.Info("Energy of psys is attributed: the machine has no other zone")
		if _, ok := s.cfg.Attribution.StaticPower[power.PSys]; !ok && s.cfg.Attribution.splitOf(power.PSys) == SplitFixed {
			s.set.Logger.Warn("attribution::static_power has no psys: its energy is split by utilization")
		}
	case before != nil && !slices.Equal(kinds, before):
		s.set.Logger.Info("Energy of the configured zones is attributed", zap.Any("zones", kinds))
	}
	s.kinds = kinds
	return kinds
}

func emittedKinds(kinds []power.Kind, source power.Source) []emit.Kind {
	out := make([]emit.Kind, len(kinds))
	for i, kind := range kinds {
		out[i] = emit.Kind{Zone: kind, Source: source}
	}
	return out
}

// cpus returns the node's CPUs where they are reported.
func (s *energyScraper) cpus() (cpus []emit.CPU) {
	if !s.cfg.Metrics.SystemCPUInfo.Enabled {
		return nil
	}
	found, err := s.readCPUs(s.cfg.RootPath)
	if err != nil {
		s.set.Logger.Warn("CPU information not read", zap.Error(err))
	}
	for _, c := range found {
		cpus = append(cpus, emit.CPU(c))
	}
	return cpus
}

// maxRefusals is how often the next consumer may refuse the final values of retired ledgers for good, and take what
// the ledgers in use have each time, until the retired ones are given up. Some backends refuse points that are too
// old: without an end of that, the node would send nothing any more.
const maxRefusals = 3

// emit returns the ledgers, or those that were retired first. Ledgers of two meters or sources have series in common,
// and many backends take one point of each series from a request, so they never share an emission: those that follow
// are emitted when the end of the others was acknowledged, or in turns with it after it was refused for good. Until
// then they keep what they count.
func (s *energyScraper) emit(m *claims.Measurement) pmetric.Metrics {
	for len(s.retired) > 0 {
		l := s.retired[0]
		if l.skip {
			l.skip = false
			break
		}
		if md := l.emitter.Final(l.engine.Ledger(), l.Zones(), l.end); md.DataPointCount() > 0 {
			s.sent = l
			return md
		}
		s.dropOldest() // without a zone that was ever read
	}
	s.sent = s.ledgers
	md := s.ledgers.emitter.Emit(s.ledgers.engine.Ledger(), s.ledgers.Zones(), m.Stamp)
	s.ledgers.engine.Emitted()
	return md
}

// delivered is called with what became of the metrics that scrape returned.
func (s *energyScraper) delivered(d delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case d.all:
		s.accepted()
	case d.permanent:
		s.refused()
	}
	switch {
	case d.all || s.ledgers == nil:
	case d.some:
		s.ledgers.engine.PartlyAcknowledged()
	default:
		s.ledgers.engine.Refused()
	}
	s.sent = nil
}

// accepted notes that the next consumer has taken all metrics.
func (s *energyScraper) accepted() {
	switch s.sent {
	case nil:
	case s.ledgers:
		s.ledgers.engine.Acknowledged()
		if len(s.retired) > 0 && s.retired[0].refused >= maxRefusals {
			s.giveUpOldest()
		}
	default:
		s.dropOldest()
	}
}

// refused notes that the next consumer has refused metrics for good.
func (s *energyScraper) refused() {
	if s.sent != nil && s.sent != s.ledgers {
		s.sent.refused++
		s.sent.skip = true
	}
}

// giveUpOldest forgets the ledgers that were retired first, undelivered.
func (s *energyScraper) giveUpOldest() {
	l := s.retired[0]
	series := 0
	for range l.engine.Ledger().Accounts {
		series++
	}
	s.set.Logger.Error("Final values given up: the pipeline refuses them for good and takes newer ones",
		zap.Int("series", series), zap.Time("ended", l.end))
	s.telemetry.droppedSeries += int64(series)
	s.dropOldest()
}
