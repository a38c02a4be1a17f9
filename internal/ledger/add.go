// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Add adds the shares of an interval to the totals, and ends the series without claimants.
func (l *Ledger) Add(s *attribution.Shares) {
	l.Elapsed = s.Collected
	l.Busy += s.Node.Busy
	l.Total += s.Node.Total
	l.Resolution = s.Resolution
	l.addDomains(s.Domains)
	l.addZones(s)
	l.addKinds(s)
	for _, id := range s.Forgotten {
		l.release(id)
	}
	l.addIdle(s)
	l.addShortLived(s)
	l.adding = s
	l.settle(s)
	l.adding = nil
	for _, id := range s.Released {
		l.release(id)
	}
	l.at, l.observed, l.restoring = s.At, true, false
}

// addDomains adds an interval's times of the domains.
func (l *Totals) addDomains(domains []attribution.DomainTime) {
	for len(l.Domains) < len(domains) {
		l.Domains = append(l.Domains, attribution.DomainTime{})
	}
	for i, t := range domains {
		l.Domains[i].Busy += t.Busy
		l.Domains[i].Total += t.Total
	}
}

// addZones adds the energy of zones.
func (l *Totals) addZones(s *attribution.Shares) {
	for len(l.Zones) < len(s.Zones) {
		l.Zones = append(l.Zones, Zone{})
	}
	for i := range s.Zones {
		z, of := &l.Zones[i], &s.Zones[i]
		switch {
		case of.Began:
			*z = Zone{Present: true, Start: s.At, At: s.At}
		case of.Counted:
			z.At = s.At
		}
		z.Energy += of.Energy
		z.Recent += of.Energy
		z.RecentTime += of.Time
		z.Unread = of.Unread
		l.setEnded(&z.Lifetime, of.Ended)
	}
}

// addKinds adds the energy of kinds.
func (l *Totals) addKinds(s *attribution.Shares) {
	for i := range s.Kinds {
		k, of := &l.Kinds[i], &s.Kinds[i]
		if of.Zones > 0 && !k.Present {
			*k = KindTotals{Present: true, Start: s.At}
		}
		k.Active += of.Active.Energy
		k.Idle += of.Idle.Energy
		k.RecentActive += of.Active.Recent
		k.RecentIdle += of.Idle.Recent
		k.Unattributed += of.Unattributed
		k.UnattributedIdle += of.UnattributedIdle
		k.Deferred = of.Deferred
		k.RecentTime = min(k.RecentTime+of.Covered, l.Elapsed)
		k.Model, k.StandardError, k.Shared = of.Model, of.StandardError, of.Shared
		if of.Changed {
			k.Windows++
			k.end = 0
		}
		l.setEnded(&k.Lifetime, k.Present && of.Zones == 0)
	}
}

// addShortLived adds the usage of short-lived processes to the account of their program or the
// overflow account of processes, and to the accounts of their container, pod and VM.
func (l *Ledger) addShortLived(s *attribution.Shares) {
	for row := range s.Claimants {
		of := &s.Claimants[row]
		if !of.ShortLived {
			continue
		}
		active := s.Active(row)
		l.accounts[l.restOf(of.Claimant)].addShares(of.CPU, active)
		l.eachGroup(of.Claimant, func(a *Account) { a.addShares(of.CPU, active) })
	}
}

// eachGroup calls yield for the accounts of the container, pod and VM of a claimant.
func (l *Ledger) eachGroup(id attribution.Claimant, yield func(*Account)) {
	if id == attribution.NoClaimant {
		return
	}
	for _, account := range l.claimants[id].accounts[identity.ContainerEntity:] {
		if account != unset {
			yield(&l.accounts[account])
		}
	}
}

// unsettled returns the recent energy of a candidate process that is not in an account yet.
func (l *Ledger) unsettled(id attribution.Claimant) units.Energy {
	if row, ok := l.adding.Find(id, false); ok {
		return sumOf(l.adding.Active(row)).Recent
	}
	return 0
}

// sumOf returns the energies and the recent energies of all kinds, at most the largest Energy.
func sumOf(shares []attribution.Share) (sum attribution.Share) {
	for _, s := range shares {
		sum.Energy, sum.Recent = units.AddSaturating(sum.Energy, s.Energy), units.AddSaturating(sum.Recent, s.Recent)
	}
	return sum
}
