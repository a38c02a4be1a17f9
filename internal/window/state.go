// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// State is the state of an earlier Collector of the same boot, which a Collector continues.
type State struct {
	Ledger ledger.State
	// Kinds, Domains and Zones define the indices in the intervals.
	Kinds   []power.Class
	Domains []units.Domain
	Zones   []power.Zone
	Cgroups []cgroup.Past
}

// State sets s to the state of the Collector and its ledger, and reuses the memory of s. Call it
// after End and before the ledger is emitted.
func (b *Collector) State(s *State) {
	b.Ledger.State(&s.Ledger)
	s.Kinds = append(s.Kinds[:0], b.Kinds...)
	s.Domains = append(s.Domains[:0], b.named...)
	s.Zones = append(s.Zones[:0], b.zones.known...)
	s.Cgroups = s.Cgroups[:0]
	if !b.Exact {
		s.Cgroups = b.Cgroups.AppendPast(s.Cgroups)
	}
}

// IsValid reports whether the state defines all of its indices, as every state of a Collector does.
func (s *State) IsValid() bool {
	e := &s.Ledger
	isKind := func(i int) bool { return i >= 0 && i < len(s.Kinds) }
	for i := range e.Zones {
		z := &e.Zones[i]
		if z.Domain < 0 || z.Domain >= len(s.Domains) || z.Kind != attribution.NotAttributed && !isKind(z.Kind) {
			return false
		}
	}
	for i := range e.Accounts {
		if slices.ContainsFunc(e.Accounts[i].Amounts, func(m ledger.KindAmounts) bool { return !isKind(m.Kind) }) {
			return false
		}
	}
	return len(e.Zones) == len(s.Zones) && len(e.Kinds) <= len(s.Kinds)
}

// Restore continues the totals of a valid state. It must precede the first Collect, and changes s.
// The CPU times of node and domains, and the totals of zones, continue from the state.
//
// readAt is the time of the last measurement of the state, by the clock of this process.
func (b *Collector) Restore(s *State, readAt time.Time, node cpu.Node, domains []cpu.Node) {
	s.Ledger.Renumber(
		func(i int) int { return slices.Index(b.Kinds, s.Kinds[i]) }, // NotAttributed is -1
		func(i int) int { return b.restoreDomain(s.Domains[i]) },
	)
	b.zones.restore(s.Zones)
	b.Ledger.Restore(&s.Ledger)
	b.Cgroups.Resume(s.Cgroups)
	if b.divider != nil {
		b.divider.last = slices.Clone(domains)
	}
	b.last = Measurement{ReadAt: readAt, Stamp: s.Ledger.At, Node: node, Domains: domains}
	b.begun, b.restored = true, true
}

// restoreDomain returns the index of a domain, or the index of the node if the domain no longer
// exists.
func (b *Collector) restoreDomain(name units.Domain) int {
	if name.IsGPU() || name == otherGPUs {
		return b.gpu(name)
	}
	return max(slices.Index(b.named, name), 0)
}

// restore sets zones to the zones of a state, by their numbers.
func (z *zones) restore(known []power.Zone) {
	z.known, z.read, z.awaited = slices.Clone(known), make([]zoneRead, len(known)), map[int]bool{}
	for i := range known {
		z.awaited[i] = true
	}
}
