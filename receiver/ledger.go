// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// ledger is the engine's ledger with what fills it and what emits it. It begins with the first measurement and lasts
// as long as the receiver. Observe, Outside, Zones and the like come from claims.Builder.
type ledger struct {
	*claims.Builder
	Engine     *attribution.Engine
	Identifier *workload.Identifier
	Exclusion  *workload.Exclusion // nil: no workload is excluded
	Places     *numa.Places        // nil: memory is not divided
	emitter    *emit.Emitter
	rules      attribution.Rules
	kinds      []power.Class // of the ledger, by their index
	bootTime   time.Time     // from which creation times of processes are computed
}

// bootTime returns when the machine booted, by the wall clock at the baseline m.
func (s *energyScraper) bootTime(m *claims.Measurement) time.Time {
	boot, err := cpu.BootTime(s.cfg.RootPath)
	if err != nil {
		boot = m.Stamp.Add(-m.Table.Now)
	}
	return boot
}

// newLedger returns a ledger that begins at the baseline, on a machine that booted at boot.
func (s *energyScraper) newLedger(baseline, boot time.Time) *ledger {
	names, pods := s.cfg.openNames()
	places := s.memoryPlaces()
	l := &ledger{kinds: s.cfg.ledgerKinds(), bootTime: boot}
	l.rules = s.cfg.Attribution.rules(l.kinds, s.cfg.Zones)
	s.know(&l.rules, l.kinds)
	l.Engine = attribution.New(attribution.Config{
		Rules: l.rules, Limits: s.cfg.Series.limits(), Processes: s.cfg.Series.Processes.GroupBy.series(),
		HiddenNames: s.cfg.hiddenNames(), Created: claims.Created(boot),
	}, baseline)
	l.Identifier = workload.NewIdentifier(s.cfg.RootPath, workload.Wanted{
		CommandLine:   s.cfg.ResourceAttributes.ProcessCommandLine.Enabled,
		ProcessCgroup: len(s.cfg.Attribution.Exclude.Cgroup) > 0 || places != nil,
		Unit:          s.cfg.wantsUnits(),
		Parent:        s.cfg.ResourceAttributes.ProcessParentPid.Enabled,
		Users:         s.cfg.openUsers(),
		Everything:    s.container,
		CgroupPath:    s.cpu.CgroupPath,
		Names:         names,
	})
	l.Exclusion, l.Places = newExclusion(&s.cfg.Attribution.Exclude, pods), places
	l.Builder = claims.NewBuilder(claims.Options{
		Engine: l.Engine, Identifier: l.Identifier, Exclusion: l.Exclusion,
		Exact:     s.cpu.Source().Exact(),
		Cgroups:   s.cgroups,
		Keys:      s.keys,
		Kinds:     l.kinds,
		Requests:  l.rules.Idle == attribution.IdleRequested,
		Topology:  s.cpu.Topology(),
		Places:    places,
		Siblings:  s.siblings,
		SMTWeight: s.cfg.Attribution.smtWeight(),
		Programs:  s.cfg.Series.Processes.GroupBy != GroupByPID,
		Eager:     s.eager,

		InterruptsUnattributed: s.cfg.Attribution.interrupts() == InterruptsUnattributed,
		MissedUnattributed:     presets[s.cfg.Attribution.Preset].missedUnattributed,
	})
	if s.container != "" { // it has a series from the baseline on, and as long as the receiver
		l.Engine.Open(identity.Owner{Workload: identity.Workload{Container: identity.Container{ID: s.container}}}, baseline)
	}
	l.emitter = emit.New(emit.Config{
		MetricsBuilderConfig: s.cfg.MetricsBuilderConfig,
		BuildInfo:            s.set.BuildInfo,
		Kinds:                s.cfg.emittedKinds(l.kinds),
		CPUs:                 s.cpus(),
		Idle:                 l.rules.Idle != attribution.IdleNone,
		ZeroPoints:           !s.cfg.noZeroPoints,
	})
	return l
}

// wantsUnits reports whether units of systemd are found: for their own metrics, or to distinguish programs.
func (c *Config) wantsUnits() bool {
	return c.Metrics.SystemdUnitEnergy.Enabled || c.Metrics.SystemdUnitPower.Enabled ||
		c.Series.Processes.GroupBy != GroupByPID && c.ResourceAttributes.SystemdUnitName.Enabled
}

// hiddenNames returns the names of containers and pods that are not reported.
func (c *Config) hiddenNames() attribution.GroupNames {
	return attribution.GroupNames{
		Namespace:           !c.ResourceAttributes.K8sNamespaceName.Enabled,
		KubernetesContainer: !c.ResourceAttributes.K8sContainerName.Enabled,
		Image:               !c.ResourceAttributes.ContainerImageName.Enabled,
	}
}

// openUsers returns the users of the host, nil if they are not reported. Then programs are merged across users.
func (c *Config) openUsers() *workload.Users {
	if !c.ResourceAttributes.ProcessOwner.Enabled {
		return nil
	}
	return workload.NewUsers(c.RootPath)
}

// memoryPlaces returns the places of the memory of cgroups by CPU package, or nil if they make no difference.
func (s *energyScraper) memoryPlaces() *numa.Places {
	topology := s.cpu.Topology()
	if topology == nil || !s.keys.OfMemory() {
		return nil
	}
	return numa.New(s.cgroups, len(topology.Domains()), topology.Of)
}

// emit returns the ledger as metrics, as of at.
func (l *ledger) emit(at time.Time) pmetric.Metrics {
	md := l.emitter.Emit(l.Engine.Ledger(), l.Zones(), l.Domains(), at)
	l.Engine.Emitted()
	return md
}

// ledgerKinds returns the kinds that the ledger may have: the configured zone kinds and those that may stand in for
// package as measured, the same as reported where a hypervisor reports, and those that may be modeled. Accounts have
// memory up to the last kind that is in use, so what is likely in use comes first.
func (c *Config) ledgerKinds() (kinds []power.Class) {
	attributed := slices.Clone(c.Zones)
	for _, zone := range wholeMachine {
		if c.mayStandIn(zone) {
			attributed = append(attributed, zone)
		}
	}
	add := func(source power.Method, zones []power.Kind) {
		for _, zone := range zones {
			kinds = append(kinds, power.Class{Zone: zone, Method: source})
		}
	}
	if c.Meters.reports() {
		add(power.Reported, slices.DeleteFunc(slices.Clone(attributed), func(zone power.Kind) bool {
			return zone == power.Other || zone == power.GPU
		}))
	}
	add(power.Measured, attributed)
	add(power.Modeled, c.modeledKinds())
	return kinds
}

// mayStandIn reports whether zones of a kind that is not configured may be attributed, in place of package.
func (c *Config) mayStandIn(zone power.Kind) bool {
	return slices.Contains(wholeMachine, zone) && slices.Contains(c.Zones, power.Package) && !slices.Contains(c.Zones, zone)
}

func (c *Config) emittedKinds(kinds []power.Class) []emit.Column {
	out := make([]emit.Column, len(kinds))
	for i, kind := range kinds {
		key := c.Attribution.keyOf(kind.Zone)
		out[i] = emit.Column{Class: kind, Deviation: func(window time.Duration, shared bool) float64 {
			return claims.Deviation(key, kind.Zone, window, shared)
		}}
	}
	return out
}

// cpus returns the node's CPUs, if they are reported.
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
