// SPDX-License-Identifier: Apache-2.0

package attributor

import (
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
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
	"github.com/energyreceiver/energyreceiver/receiver/internal/node"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// Attributor attributes the energy of measurements to workloads: a Collector makes an interval of
// each measurement, a Sharer divides its energy, and a Ledger adds the shares up. It emits the
// ledger as metrics. Begin starts it at the first measurement or at a saved state. Collect, Share,
// Add, Emit and Models must not be called before Begin.
type Attributor struct {
	Options    Options
	Collector  *window.Collector // nil until Begin
	Ledger     *ledger.Ledger
	Identifier *workload.Identifier
	Exclusion  *workload.Exclusion
	Places     *numa.Places // nil: memory is not divided
	emitter    *emit.Emitter
	rules      attribution.Rules
	Kinds      []power.Class // by their index in the ledger
	BootTime   time.Time     // base of the creation times of processes
	Feeding    feeding
	// visibility detects whether processes are hidden from the receiver.
	visibility window.Visibility
	// now is the measurement that ends the window, and of is the same without claims if the CPU time
	// source was replaced in the window.
	now, of *window.Measurement
	// isFresh reports whether no window was observed since Begin.
	isFresh bool
}

// Options configure an Attributor.
type Options struct {
	Config    *config.Config
	Node      *node.Node
	BuildInfo component.BuildInfo
	// IdlePower returns the power in watts of a modeled zone kind while no CPU is busy.
	IdlePower func(power.Kind) (watts float64, ok bool)
	Embedded
}

// Embedded configures the Attributor of a receiver that is not in a collector. In a collector it is
// zero.
type Embedded struct {
	StaticPower map[power.Class]float64 // of EmbeddedOptions
	Container   string                  // of EmbeddedOptions
	// NoZeroPoints omits the zero-value points of new series.
	NoZeroPoints bool
}

// New returns an Attributor that has not begun.
func New(o Options) *Attributor { return &Attributor{Options: o} }

// Begun reports whether the totals have begun.
func (a *Attributor) Begun() bool { return a.Collector != nil }

// Begin begins the totals at the baseline, on a machine that booted at boot.
func (a *Attributor) Begin(baseline, boot time.Time) {
	o := &a.Options
	cfg := o.Config
	a.Kinds, a.BootTime, a.isFresh = o.Node.Rules.Kinds, boot, true
	a.rules = o.Node.Rules.Attribution()
	a.setKnown()
	a.Ledger = ledger.New(ledger.Config{
		Rules: a.rules, Limits: cfg.Series.Limits(), Processes: cfg.Series.Processes.GroupBy.ProcessSeries(),
		HiddenNames: cfg.HiddenNames(), Created: window.Created(boot),
	}, baseline)
	a.Places = o.Node.Places()
	a.identify()
	a.openCollector()
	if o.Container != "" { // its series exists from the baseline until the receiver stops
		a.Ledger.Open(identity.Owner{Workload: identity.Workload{Container: identity.Container{ID: o.Container}}}, baseline)
	}
	a.emitter = emit.New(emit.Config{
		MetricsBuilderConfig: cfg.MetricsBuilderConfig,
		BuildInfo:            o.BuildInfo,
		Kinds:                emittedKinds(&o.Node.Rules),
		CPUs:                 a.cpus(),
		Idle:                 a.rules.Idle != attribution.IdleNone,
		ZeroPoints:           !o.NoZeroPoints,
		Usage:                openUsage(a),
	})
}

// identify opens the identifier of processes and the exclusion of workloads.
func (a *Attributor) identify() {
	o := &a.Options
	cfg := o.Config
	names, pods := openNames(cfg)
	a.Identifier = workload.NewIdentifier(cfg.RootPath, workload.Wanted{
		CommandLine:   cfg.ResourceAttributes.ProcessCommandLine.Enabled,
		ProcessCgroup: len(cfg.Attribution.Exclude.Cgroup) > 0 || a.Places != nil,
		Unit:          cfg.WantsUnits(),
		Parent:        cfg.ResourceAttributes.ProcessParentPid.Enabled,
		Owner:         cfg.ResourceAttributes.ProcessOwner.Enabled,
		JobUser:       cfg.ResourceAttributes.SlurmJobUser.Enabled,
		Users:         openUsers(cfg),
		Everything:    o.Container,
		CgroupPath:    o.Node.CPU.CgroupPath,
		Names:         names,
		Waits:         o.Node.Waits,
	})
	a.Exclusion = newExclusion(&cfg.Attribution, pods)
}

// openCollector opens the Collector.
func (a *Attributor) openCollector() {
	o := &a.Options
	cfg := o.Config
	a.Collector = window.NewCollector(window.Options{
		Ledger: a.Ledger, Identifier: a.Identifier, Exclusion: a.Exclusion,
		Exact:     o.Node.CPU.Exact(),
		Cgroups:   o.Node.Cgroups,
		Keys:      o.Node.Keys,
		Kinds:     a.Kinds,
		Watch:     cfg.Metrics.ContainerDiskIo.Enabled,
		Requests:  a.rules.Idle == attribution.IdleRequested,
		Topology:  o.Node.CPU.Topology(),
		Places:    a.Places,
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
func (a *Attributor) Collect(m *window.Measurement, replaced bool) *attribution.Interval {
	isBaseline := a.Collector.Last().ReadAt.IsZero()
	if !isBaseline {
		a.Feeding.Begin(a)
	}
	if a.now, a.of = m, m; replaced && !isBaseline {
		a.of = a.Collector.WithoutClaims(m)
	}
	return a.Collector.Collect(a.of)
}

// Share returns the shares of the interval that Collect returned.
func (a *Attributor) Share(interval *attribution.Interval) *attribution.Shares {
	return a.Ledger.Sharer().Share(interval)
}

// Add adds the shares that Share returned.
func (a *Attributor) Add(shares *attribution.Shares) {
	a.Feeding.Read(a, shares)
	a.Ledger.Add(shares)
	a.Collector.End(a.of)
	if a.of != a.now {
		a.Collector.StartOver(a.now, a.Options.Node.CPU.Exact())
	}
	if a.Options.Container == "" {
		a.visibility.Observe(a.now, a.Collector)
	}
}

// Check observes the conditions of the last window.
func (a *Attributor) Check(c *conditions.Conditions) {
	if !a.Begun() {
		return
	}
	c.Observe("containers' cgroups", a.Collector.Outside())
	c.Observe("exclusion", a.Exclusion.Err())
	c.Observe("unread processes", a.Options.Node.Unread(a.Identifier))
	c.Observe("unread cgroups", a.Options.Node.Cgroups.Unread())
	if a.Places != nil {
		c.Observe("memory placement", a.Places.Err())
	}
	c.Observe("process visibility", a.visibility.Hidden())
	c.Observe("unattributed energy", a.visibility.Unattributed())
	for key, err := range a.Options.Node.Keys.Failed() {
		c.Observe("weight "+string(key), err)
	}
}

// setKnown sets fixed static power for kinds without a static power model, if the static power is
// given: by Options.StaticPower, by the power model of a modeled zone, or as 0 for a zone that a
// hypervisor reports, because it reports active energy. Without Options.StaticPower, it applies
// only to kinds for which the configuration selects it (KnowsStaticPower).
func (a *Attributor) setKnown() {
	o := &a.Options
	for i, kind := range a.Kinds {
		watts, ok := o.StaticPower[kind]
		switch {
		case a.rules.Models[i] != nil || o.StaticPower == nil && !o.Config.Attribution.KnowsStaticPower(kind.Zone):
			continue
		case ok:
		case kind.Method == power.Modeled:
			watts, ok = o.IdlePower(kind.Zone)
		default:
			ok = kind.Method == power.Reported
		}
		if ok {
			a.rules.Models[i] = static.Fixed{Power: inMicrowatts(watts)}
		}
	}
}

// TakeFresh reports whether no window was observed since Begin, once.
func (a *Attributor) TakeFresh() bool {
	isFresh := a.isFresh
	a.isFresh = false
	return isFresh
}

// Models returns the static power models, and the power models of attribution weights.
func (a *Attributor) Models() training.Zones {
	return training.Zones{Rules: &a.rules, Kinds: a.Kinds, Domains: a.Collector.Domains(), Weights: a.Options.Node.Keys.Models()}
}

// Close closes the readers of names and usage.
func (a *Attributor) Close() error {
	if a.Begun() {
		_ = a.Identifier.Close() // it was only read from
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

// openUsers returns the users of the host, or nil if neither owners nor users of jobs are reported.
func openUsers(c *config.Config) *workload.Users {
	if !c.ResourceAttributes.ProcessOwner.Enabled && !c.ResourceAttributes.SlurmJobUser.Enabled {
		return nil
	}
	return workload.NewUsers(c.RootPath)
}

// Emit returns the ledger as metrics, as of at.
func (a *Attributor) Emit(at time.Time) pmetric.Metrics {
	md := a.emitter.Emit(&a.Ledger.Totals, a.Collector.Zones(), a.Collector.Domains(), at)
	a.Ledger.Emitted()
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
func (a *Attributor) cpus() (cpus []emit.CPU) {
	if !a.Options.Config.Metrics.SystemCPUInfo.Enabled {
		return nil
	}
	for _, c := range a.Options.Node.CPUs() {
		cpus = append(cpus, emit.CPU(c))
	}
	return cpus
}

// newExclusion returns the exclusion of workloads.
func newExclusion(a *config.AttributionConfig, pods *workload.PodLogs) *workload.Exclusion {
	c := &a.Exclude
	return workload.NewExclusion(workload.Excluded{
		Cgroup: matchAny(fromTheRoot(c.Cgroup)), Namespace: matchAny(c.Namespace), Executable: matchAny(c.ExecutableName),
		ControlPlane: a.PresetRules().ControlPlaneExcluded,
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
