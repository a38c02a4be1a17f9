package receiver

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cputime"
	"github.com/energyreceiver/energyreceiver/internal/emit"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// energyScraper measures and attributes once per window, and emits once per collection.
type energyScraper struct {
	mu sync.Mutex // of all below: the sampler runs beside the controller's goroutine

	cfg        *Config
	set        receiver.Settings
	conditions *conditions
	now        func() time.Time
	timeline   timeline

	source  cputime.Source
	runtime *cputime.Runtime // the node's CPU time where windows are too short for /proc/stat, else nil
	table   cputime.Table
	node    cputime.Node
	meters  *meters
	ledgers *ledgers   // nil until the first measurement
	retired []*ledgers // of meters and sources that were replaced, until their last values were accepted
	pending bool       // something was handed out and is not yet accepted
	failed  int        // passes over the processes in a row
	sampler sampler
}

// ledgers is everything that was attributed with one meter and one source of CPU times.
type ledgers struct {
	*accounts
	emitter *emit.Emitter
}

func newEnergyScraper(cfg *Config, set receiver.Settings) (*energyScraper, error) {
	m, err := newMeters(cfg, set.Logger)
	if err != nil {
		return nil, err
	}
	return &energyScraper{
		cfg:        cfg,
		set:        set,
		conditions: newConditions(set.Logger),
		now:        time.Now,
		meters:     m,
	}, nil
}

// start takes the baseline. Whatever is missing or unreadable is reported and looked for again at each
// scrape; it never keeps the collector from starting.
func (s *energyScraper) start(_ context.Context, host component.Host) error {
	s.conditions.host = host
	source, rejected, err := cputime.Open(s.cfg.CPUTime, s.cfg.RootPath)
	if err != nil {
		return err // only where the configuration insists on a source
	}
	s.source = source
	fields := []zap.Field{zap.String("source", source.Name())}
	if rejected != nil {
		fields = append(fields, zap.NamedError("rejected", rejected))
	}
	s.set.Logger.Info("CPU times are read", fields...)
	if w := s.cfg.SamplingInterval; w > 0 && w < tickWindow && source.Exact() {
		s.runtime = cputime.NewRuntime(s.cfg.RootPath)
	}
	s.sample()
	s.conditions.settle()
	s.adjustWindow()
	return nil
}

func (s *energyScraper) shutdown(context.Context) error {
	s.sampler.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source == nil {
		return nil // it was never started
	}
	s.retire()
	s.dropRetired()
	errs := []error{s.source.Close(), s.meters.close()}
	if s.runtime != nil {
		errs = append(errs, s.runtime.Close())
	}
	return errors.Join(errs...)
}

// sample attributes one window.
func (s *energyScraper) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.measure(); m != nil {
		s.attribute(m)
	}
}

// scrape is the receiver's whole story.
func (s *energyScraper) scrape(context.Context) (pmetric.Metrics, error) {
	defer s.adjustWindow()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = false // what was handed out before was refused
	m := s.measure()
	s.conditions.settle()
	if m == nil {
		return pmetric.NewMetrics(), nil // told by the conditions; the next measurement covers this one
	}
	s.attribute(m)
	return s.emit(m), nil
}

// measure reads the meter and the CPU times, nil if that failed. The energy counters are read next to the
// node's CPU time, by which they are split, and the cgroups' counters before the processes.
func (s *energyScraper) measure() *measurement {
	now := s.now()
	var err error
	if s.runtime != nil {
		err = s.readProcesses()
	}
	if err == nil {
		var node cputime.Node
		if node, err = s.readNode(now); err == nil {
			s.node = node
		}
		s.conditions.check("node CPU time", err)
	}
	readings, changed := s.meters.read(power.Sample{At: now, Busy: s.node.Busy, Total: s.node.Total}, s.conditions)
	if changed {
		s.retire()
	}
	if err == nil && s.runtime == nil {
		err = s.readProcesses()
	}
	if err != nil {
		return nil
	}
	return &measurement{reading: now, stamp: s.timeline.at(now), node: s.node, table: &s.table, readings: readings}
}

func (s *energyScraper) readNode(now time.Time) (cputime.Node, error) {
	if s.runtime != nil {
		return s.runtime.Node(&s.table, now)
	}
	return s.source.ReadNode()
}

func (s *energyScraper) readProcesses() error {
	if s.ledgers != nil && !s.source.Exact() {
		s.ledgers.containers.groups.Read()
	}
	err := s.source.ReadProcesses(&s.table)
	s.conditions.check("process CPU times", err)
	if err == nil {
		s.failed = 0
		if s.source.Exact() && s.table.Untraced > 0 {
			s.conditions.check("process ends", errEndsLost)
		}
		return nil
	}
	if s.failed++; s.failed >= maxFailed && s.source.Exact() && s.cfg.CPUTime == cputime.Auto {
		s.fallBack(err)
	}
	return err
}

// maxFailed is how many passes may fail in a row before procfs is taken instead.
const maxFailed = 3

var errEndsLost = errors.New("more processes ended at once than the kernel's buffer has room for: what is not known of them is unattributed")

// fallBack goes on with procfs.
func (s *energyScraper) fallBack(why error) {
	s.set.Logger.Warn("CPU times are read by procfs from now on", zap.String("instead of", s.source.Name()), zap.Error(why))
	s.retire()
	if err := s.source.Close(); err != nil {
		s.set.Logger.Debug("Closing the source of CPU times", zap.Error(err))
	}
	s.source, s.failed = cputime.NewProcfs(s.cfg.RootPath), 0
	s.table, s.node = cputime.Table{}, cputime.Node{}
	if s.runtime != nil {
		_ = s.runtime.Close() // it was only read from
		s.runtime = nil
	}
}

// retire ends the ledgers. Their last values are emitted until they were accepted.
func (s *energyScraper) retire() {
	if s.ledgers != nil {
		s.retired = append(s.retired, s.ledgers)
		s.ledgers, s.pending = nil, false
	}
}

// dropRetired forgets the ledgers that were retired.
func (s *energyScraper) dropRetired() {
	for _, l := range s.retired {
		_ = l.identifier.Close() // it was only read from
	}
	s.retired = nil
}

// attribute books a measurement. The first one is the baseline.
func (s *energyScraper) attribute(m *measurement) {
	if s.ledgers == nil {
		s.begin(m)
	}
	s.ledgers.observe(m)
}

// begin starts new ledgers at a measurement.
func (s *energyScraper) begin(m *measurement) {
	boot, err := cputime.BootTime(s.cfg.RootPath)
	if err != nil {
		boot = m.stamp.Add(-m.table.Now)
	}
	cfg := attribution.Config{
		Rules:        attribution.DefaultRules(),
		MinEnergy:    s.cfg.Processes.minEnergy(),
		MaxProcesses: s.cfg.Processes.Max,
	}
	booking := &accounts{
		engine:     attribution.New(cfg, m.stamp),
		exact:      s.source.Exact(),
		identifier: workload.NewIdentifier(s.cfg.RootPath, s.cfg.ResourceAttributes.ProcessCommandLine.Enabled),
		containers: newContainers(cputime.NewGroups(s.cfg.RootPath)),
		bootTime:   boot,
		kinds:      s.cfg.Zones,
		zoneIndex:  map[*power.Zone]int{},
	}
	var keep func(pcommon.Resource) bool
	if f := newResourceFilter(&s.cfg.ResourceAttributes); f != nil {
		keep = f.keep
	}
	emitter := emit.New(emit.Config{
		Metrics:    emittedMetrics(&s.cfg.Metrics),
		Attributes: emittedAttributes(&s.cfg.ResourceAttributes),
		Keep:       keep,
		Kinds:      s.cfg.Zones,
		Source:     s.meters.source(),
		Scope:      metadata.ScopeName,
		Version:    s.set.BuildInfo.Version,
	})
	s.ledgers = &ledgers{booking, emitter}
}

func (s *energyScraper) emit(m *measurement) pmetric.Metrics {
	md := pmetric.NewMetrics()
	// Those that ended come first and with their own last time, so that a series which they share with the
	// live ones is seen to end before it starts anew, however often they are sent.
	for _, l := range s.retired {
		l.emit(l.last.stamp).ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
	}
	s.ledgers.emit(m.stamp).ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
	s.pending = true
	return md
}

func (l *ledgers) emit(at time.Time) pmetric.Metrics {
	md := l.emitter.Emit(l.engine.Ledger(), l.zones, at)
	l.engine.HandedOut()
	return md
}

// accepted is called when the next consumer has taken what scrape returned.
func (s *energyScraper) accepted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending {
		s.pending = false
		s.ledgers.engine.Accepted()
		s.dropRetired()
	}
}
