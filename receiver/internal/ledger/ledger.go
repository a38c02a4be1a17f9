// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/conditions"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
	"github.com/energyreceiver/energyreceiver/receiver/internal/node"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// Ledger is the engine's ledger with the parts that fill, emit and publish it. It begins with the
// first measurement or with a saved state, and lasts as long as the receiver. Only Begin may be
// called before that.
type Ledger struct {
	Options    Options
	Claims     *window.Collector // nil until Begin
	Engine     *ledger.Ledger
	Identifier *workload.Identifier
	Exclusion  *workload.Exclusion
	Places     *numa.Places // nil: memory is not divided
	emitter    *emit.Emitter
	rules      attribution.Rules
	Kinds      []power.Class // by their index in the ledger
	BootTime   time.Time     // from which creation times of processes are computed
	Feeding    feeding
	// visibility finds out whether the receiver sees all processes.
	visibility window.Visibility
	// now is the measurement that ends the window, and of is the same without claims if the CPU time
	// source was replaced in the window.
	now, of *window.Measurement
	// isFresh reports whether no window was observed since Begin.
	isFresh bool
}

// Options configure a ledger.
type Options struct {
	Config    *config.Config
	Node      *node.Node
	BuildInfo component.BuildInfo
	// IdlePower returns the power in watts of a modeled zone kind while no CPU is busy.
	IdlePower func(power.Kind) (watts float64, ok bool)
	Embedded
}

// Embedded configures the ledger of a receiver that is not in a collector. In a collector it is zero.
type Embedded struct {
	StaticPower map[power.Class]float64 // of EmbeddedOptions
	Container   string                  // of EmbeddedOptions
	// NoZeroPoints omits the zero-value points at which new series start.
	NoZeroPoints bool
}

// New returns a ledger that has not begun.
func New(o Options) *Ledger { return &Ledger{Options: o} }

// Begun reports whether the ledger has begun.
func (l *Ledger) Begun() bool { return l.Claims != nil }

// Begin begins the ledger at the baseline, on a machine that booted at boot.
func (l *Ledger) Begin(baseline, boot time.Time) {
	o := &l.Options
	cfg := o.Config
	l.Kinds, l.BootTime, l.isFresh = o.Node.Rules.Kinds, boot, true
	l.rules = o.Node.Rules.Engine()
	l.setKnown()
	l.Engine = ledger.New(ledger.Config{
		Rules: l.rules, Limits: cfg.Series.Limits(), Processes: cfg.Series.Processes.GroupBy.ProcessSeries(),
		HiddenNames: cfg.HiddenNames(), Created: window.Created(boot),
	}, baseline)
	l.Places = o.Node.Places()
	l.identify()
	l.buildClaims()
	if o.Container != "" { // it has a series from the baseline on, and as long as the receiver
		l.Engine.Open(identity.Owner{Workload: identity.Workload{Container: identity.Container{ID: o.Container}}}, baseline)
	}
	l.emitter = emit.New(emit.Config{
		MetricsBuilderConfig: cfg.MetricsBuilderConfig,
		BuildInfo:            o.BuildInfo,
		Kinds:                emittedKinds(&o.Node.Rules),
		CPUs:                 l.cpus(),
		Idle:                 l.rules.Idle != attribution.IdleNone,
		ZeroPoints:           !o.NoZeroPoints,
		Usage:                openUsage(l, baseline),
	})
}

// identify opens the identifier of processes and the exclusion of workloads.
func (l *Ledger) identify() {
	o := &l.Options
	cfg := o.Config
	names, pods := openNames(cfg)
	l.Identifier = workload.NewIdentifier(cfg.RootPath, workload.Wanted{
		CommandLine:   cfg.ResourceAttributes.ProcessCommandLine.Enabled,
		ProcessCgroup: len(cfg.Attribution.Exclude.Cgroup) > 0 || l.Places != nil,
		Unit:          cfg.WantsUnits(),
		Parent:        cfg.ResourceAttributes.ProcessParentPid.Enabled,
		Users:         openUsers(cfg),
		Everything:    o.Container,
		CgroupPath:    o.Node.CPU.CgroupPath,
		Names:         names,
		Waits:         o.Node.Waits,
	})
	l.Exclusion = newExclusion(&cfg.Attribution.Exclude, pods)
}

// buildClaims makes the collector of windows.
func (l *Ledger) buildClaims() {
	o := &l.Options
	cfg := o.Config
	l.Claims = window.NewCollector(window.Options{
		Engine: l.Engine, Identifier: l.Identifier, Exclusion: l.Exclusion,
		Exact:     o.Node.CPU.Exact(),
		Cgroups:   o.Node.Cgroups,
		Keys:      o.Node.Keys,
		Kinds:     l.Kinds,
		Watch:     cfg.Metrics.ContainerDiskIo.Enabled,
		Requests:  l.rules.Idle == attribution.IdleRequested,
		Topology:  o.Node.CPU.Topology(),
		Places:    l.Places,
		Siblings:  o.Node.Siblings,
		SMTWeight: o.Node.Rules.SMTWeight,
		ByProgram: cfg.Series.Processes.GroupBy != config.GroupByPID,

		InterruptsUnattributed: o.Node.Rules.Interrupts == config.InterruptsUnattributed,
		MissedUnattributed:     o.Node.Rules.MissedUnattributed,
	})
}

// Collect returns the usage since the last measurement. The first window after Begin without a saved
// state is the baseline. replaced reports whether the CPU time source was replaced in the window. In
// that case the interval has no claims.
func (l *Ledger) Collect(m *window.Measurement, replaced bool) *attribution.Interval {
	isBaseline := l.Claims.Last().ReadAt.IsZero()
	if !isBaseline {
		l.Feeding.Begin(l)
	}
	if l.now, l.of = m, m; replaced && !isBaseline {
		l.of = l.Claims.WithoutClaims(m)
	}
	return l.Claims.Collect(l.of)
}

// Share returns the shares of the interval that Collect returned.
func (l *Ledger) Share(interval *attribution.Interval) *attribution.Shares {
	return l.Engine.Sharer().Share(interval)
}

// Add adds the shares that Share returned.
func (l *Ledger) Add(shares *attribution.Shares) {
	l.Feeding.Read(l, shares)
	l.Engine.Add(shares)
	l.Claims.End(l.of)
	if l.of != l.now {
		l.Claims.StartOver(l.now, l.Options.Node.CPU.Exact())
	}
	if l.Options.Container == "" {
		l.visibility.Observe(l.now, l.Claims)
	}
}

// Check observes the conditions of the last window.
func (l *Ledger) Check(c *conditions.Conditions) {
	if !l.Begun() {
		return
	}
	c.Observe("containers' cgroups", l.Claims.Outside())
	c.Observe("exclusion", l.Exclusion.Err())
	c.Observe("unread processes", l.Options.Node.Unread(l.Identifier))
	c.Observe("unread cgroups", l.Options.Node.Cgroups.Unread())
	if l.Places != nil {
		c.Observe("memory placement", l.Places.Err())
	}
	c.Observe("process visibility", l.visibility.Hidden())
	c.Observe("unattributed energy", l.visibility.Unattributed())
	for key, err := range l.Options.Node.Keys.Failed() {
		c.Observe("key "+string(key), err)
	}
}

// setKnown replaces the rule utilization of the kinds whose static power is known: the power that
// the options state, the power of a modeled zone while no CPU is busy, and 0 for a zone that a
// hypervisor reports, because its energy is dynamic. The options select this for all kinds, and a
// preset for the kinds without a model of their own.
func (l *Ledger) setKnown() {
	o := &l.Options
	for i, kind := range l.Kinds {
		watts, ok := o.StaticPower[kind]
		switch {
		case l.rules.Models[i] != nil || o.StaticPower == nil && !o.Config.Attribution.KnowsStaticPower(kind.Zone):
			continue
		case ok:
		case kind.Method == power.Modeled:
			watts, ok = o.IdlePower(kind.Zone)
		default:
			ok = kind.Method == power.Reported
		}
		if ok {
			l.rules.Models[i] = static.Fixed{Power: units.Energy(math.Round(watts * float64(units.Joule)))}
		}
	}
}

// TakeFresh reports whether no window was observed since Begin, once.
func (l *Ledger) TakeFresh() bool {
	isFresh := l.isFresh
	l.isFresh = false
	return isFresh
}

// Models returns the static power models.
func (l *Ledger) Models() training.Zones {
	return training.Zones{Rules: &l.rules, Kinds: l.Kinds, Domains: l.Claims.Domains()}
}

// Close closes the readers of the ledger.
func (l *Ledger) Close() error {
	if l.Begun() {
		_ = l.Identifier.Close() // it was only read from
	}
	return nil
}

// openNames returns the reader of names, or nil if all sources are disabled, and the reader of the
// names of pods.
func openNames(c *config.Config) (*workload.Names, *workload.PodLogs) {
	o := c.NameOptions()
	o.Pods = workload.NewPodLogs(filepath.Join(o.Dirs(workload.NamesKubelet)[0], "pods"))
	if len(o.Sources) == 0 {
		return nil, o.Pods
	}
	return workload.NewNames(o), o.Pods
}

// openUsers returns the users of the host, nil if they are not reported. Then programs are merged
// across users.
func openUsers(c *config.Config) *workload.Users {
	if !c.ResourceAttributes.ProcessOwner.Enabled {
		return nil
	}
	return workload.NewUsers(c.RootPath)
}

// Emit returns the ledger as metrics, as of at.
func (l *Ledger) Emit(at time.Time) pmetric.Metrics {
	md := l.emitter.Emit(&l.Engine.Totals, l.Claims.Zones(), l.Claims.Domains(), at)
	l.Engine.Emitted()
	return md
}

// emittedKinds returns the kinds of the ledger with the uncertainty of their attribution.
func emittedKinds(r *rules.Rules) []emit.Column {
	out := make([]emit.Column, len(r.Kinds))
	for i, kind := range r.Kinds {
		key := r.Weight(kind.Zone).Key(kind.Zone)
		out[i] = emit.Column{Class: kind, Deviation: func(length time.Duration, shared bool) float64 {
			return window.Deviation(key, kind.Zone, length, shared)
		}}
	}
	return out
}

// cpus returns the node's CPUs, if they are reported.
func (l *Ledger) cpus() (cpus []emit.CPU) {
	if !l.Options.Config.Metrics.SystemCPUInfo.Enabled {
		return nil
	}
	for _, c := range l.Options.Node.CPUs() {
		cpus = append(cpus, emit.CPU(c))
	}
	return cpus
}

// newExclusion returns the exclusion of workloads.
func newExclusion(c *config.ExcludeConfig, pods *workload.PodLogs) *workload.Exclusion {
	return workload.NewExclusion(workload.Excluded{
		Cgroup: matchAny(fromTheRoot(c.Cgroup)), Namespace: matchAny(c.Namespace), Executable: matchAny(c.ExecutableName),
	}, pods)
}

// matchAny returns a function that reports whether any filter matches a value, nil without filters.
func matchAny(configs []filter.Config) workload.Match {
	if len(configs) == 0 {
		return nil
	}
	f := filter.CreateFilter(configs)
	return func(value string) bool { return f.Matches(value) }
}

// fromTheRoot anchors patterns at the root of a path. A user can create cgroups of any name below
// the user's own cgroup, so a pattern that matches the end of a path could be matched by any user.
func fromTheRoot(configs []filter.Config) []filter.Config {
	anchored := slices.Clone(configs)
	for i := range anchored {
		if c := &anchored[i]; c.Regex != "" {
			c.Regex = "^(?:" + c.Regex + ")"
		}
	}
	return anchored
}
