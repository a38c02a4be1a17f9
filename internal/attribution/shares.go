// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Shares is the result of Share: the energy that zones, kinds and claimants have gained in an
// interval. It is valid until the next call of Share.
type Shares struct {
	// At, EndsCollection and Resolution are copied from the Interval.
	At             time.Time
	EndsCollection bool
	Resolution     units.CPUTime
	// Collected is the length of the collection up to the end of the interval.
	Collected time.Duration
	// Node is the CPU time of the node's CPUs.
	Node DomainTime
	// Domains are the times of each domain, 0 if the times of the domain are assumed.
	Domains []DomainTime
	// Zones are the zones by their index in the readings.
	Zones []ZoneShares
	Kinds [MaxKinds]KindShares
	// Idle lists the idle energy that is not shared by use.
	Idle []IdlePortion
	// Claimants lists the claimants with a claim in the interval or energy of an earlier one. A
	// claimant has one row for its own usage and one for short-lived processes.
	Claimants []ClaimantShares
	// Forgotten and Released list claimants that were closed before the interval and get no more
	// energy. The deferred claims of Forgotten went to the other processes. The deferred claims of
	// Released were attributed in the interval.
	Forgotten, Released []Claimant

	table shareTable
	among []Claimant // memory of Idle
}

// shareTable holds the energies of the rows of Shares.Claimants.
type shareTable struct {
	kinds, parts int
	idleByUse    bool
	active       []Share // kinds for each row
	idle         []Share // likewise, empty unless idleByUse is set
	partCPU      []units.CPUTime
	partActive   []units.Energy
	// own and shortLived are indices in Claimants by claimant, valid if that row has the
	// claimant.
	own, shortLived []int32
}

// Share is energy, and the part of it that belongs to the current collection.
type Share struct{ Energy, Recent units.Energy }

func (s *Share) add(o Share) {
	s.Energy += o.Energy
	s.Recent += o.Recent
}

// DomainTime holds Busy and Total of the Usage of a domain. Total is 0 if the usage could not be
// read. For a GPU both are GPU time.
type DomainTime struct {
	Busy, Total units.CPUTime
}

// ZoneShares holds the energy and the state of a zone after an interval.
type ZoneShares struct {
	// Present reports whether the zone has had a good reading, and Began whether its first good
	// reading is in the interval.
	Present, Began bool
	// Ended reports whether the zone is no longer among the readings.
	Ended bool
	// Energy is the energy since the previous reading, and Time the time that it covers. Counted
	// reports whether Energy is up to date.
	Energy  units.Energy
	Time    time.Duration
	Counted bool
	// Unread is the time since the last good reading, 0 while the zone can be read.
	Unread time.Duration
}

// KindShares holds the energy and the state of a kind after an interval.
type KindShares struct {
	Active, Idle Share
	// Unattributed is the part of Active that belongs to no claimant. UnattributedIdle is the part
	// of Idle that belongs to no claimant, without the portions in Shares.Idle.
	Unattributed, UnattributedIdle units.Energy
	// Deferred is the energy that was read and not attributed yet, because a zone or the
	// utilization of its domain could not be read.
	Deferred units.Energy
	// Changed reports whether any energy was attributed. Covered is the longest time that it
	// covers.
	Changed bool
	Covered time.Duration
	// Zones is the number of zones of the kind that are present and have not ended.
	Zones int
	// Model is the state of the kind's static power model. It is Trained once the model is trained
	// in all domains. StandardError is the standard error of the active power due to the static
	// power, in watts. It is negative before the first estimate, and may be set before the model is
	// Trained.
	Model         ModelState
	StandardError float64
	// Shared reports whether a domain has several zones of the kind, so that their energy is shared
	// among the users of all of them. It is set only if the model of the kind is trained on portions.
	Shared bool
}

// ModelState is how well a static power model is trained.
type ModelState uint8

// The states of a static power model.
const (
	// NoModel is the state of a kind whose model needs no training.
	NoModel ModelState = iota
	// Provisional means that a provisional estimate or CPU utilization is used until the first
	// estimate.
	Provisional
	// Estimated means that the static power is estimated, but the estimate is still inexact.
	Estimated
	// Trained means that the estimate of the static power is exact enough.
	Trained
)

// String returns the state's name in lower case.
func (s ModelState) String() string {
	return [...]string{NoModel: "none", Provisional: "provisional", Estimated: "estimated", Trained: "trained"}[s]
}

// IdlePortion is idle energy of one kind and domain that is shared among claimants, whether or not
// they used the domain.
type IdlePortion struct {
	Kind   int
	Energy units.Energy
	// Elapsed is the time that the energy covers.
	Elapsed time.Duration
	// AmongAll reports whether the energy is shared among all claimants. If false, it is shared
	// among the claimants in Among. The list may have a claimant several times.
	AmongAll bool
	Among    []Claimant
}

// ClaimantShares is the row of a claimant, or of the short-lived processes of a claimant. Its
// energy is in Shares.Active and Shares.IdleByUse.
type ClaimantShares struct {
	Claimant   Claimant
	ShortLived bool
	CPU        units.CPUTime
}

// Active returns the active energy of a row of Claimants by kind, without kinds after the last one
// that was present when the interval began.
func (s *Shares) Active(row int) []Share {
	t := &s.table
	return t.active[row*t.kinds : (row+1)*t.kinds]
}

// IdleByUse returns the idle energy of a row of Claimants by kind, nil unless idle energy is shared
// by use.
func (s *Shares) IdleByUse(row int) []Share {
	t := &s.table
	if !t.idleByUse {
		return nil
	}
	return t.idle[row*t.kinds : (row+1)*t.kinds]
}

// Part returns the CPU time and the active energy by kind of a row of Claimants in one domain. The
// domain is at least 1 and at most Sharer.Parts.
func (s *Shares) Part(row, domain int) (units.CPUTime, []units.Energy) {
	t := &s.table
	i := row*t.parts + domain - 1
	return t.partCPU[i], t.partActive[i*t.kinds : (i+1)*t.kinds]
}

// begin empties the shares for an interval of a collection.
func (s *Shares) begin(iv *Interval, collected time.Duration) {
	node := iv.usage(0)
	s.At, s.Collected, s.EndsCollection, s.Resolution, s.Node = iv.At, collected, iv.EndsCollection, iv.Resolution, DomainTime{node.Busy, node.Total}
	s.Domains, s.Zones, s.Idle, s.among = s.Domains[:0], s.Zones[:0], s.Idle[:0], s.among[:0]
	s.Claimants, s.Forgotten, s.Released = s.Claimants[:0], s.Forgotten[:0], s.Released[:0]
	clear(s.Kinds[:])
	for i := range iv.Domains {
		var t DomainTime
		if u := &iv.Domains[i]; !u.Assumed {
			t = DomainTime{u.Busy, u.Total}
		}
		s.Domains = append(s.Domains, t)
	}
}

// begin empties the table.
func (t *shareTable) begin(kinds, parts int, idleByUse bool) {
	*t = shareTable{kinds, parts, idleByUse, t.active[:0], t.idle[:0], t.partCPU[:0], t.partActive[:0], t.own, t.shortLived}
}

// addPartCPU adds the CPU time of claims in a domain to the rows of the claimants.
func (s *Shares) addPartCPU(domain int, claims []Claim) {
	for i := range claims {
		if row, ok := s.Find(claims[i].Claimant, claims[i].ShortLived); ok {
			s.table.partCPU[row*s.table.parts+domain-1] += claims[i].CPU
		}
	}
}

// claimantsOf returns the claimants of claims, in the memory of the shares.
func (s *Shares) claimantsOf(claims []Claim) []Claimant {
	from := len(s.among)
	for i := range claims {
		if id := claims[i].Claimant; id != NoClaimant {
			s.among = append(s.among, id)
		}
	}
	return s.among[from:]
}

// Find returns the row of a claimant in Claimants; ok is false if there is no row.
func (s *Shares) Find(id Claimant, shortLived bool) (row int, ok bool) {
	rows, i := s.table.own, int(id-NoClaimant)
	if shortLived {
		rows = s.table.shortLived
	}
	if i >= len(rows) {
		return 0, false
	}
	if row = int(rows[i]); row >= len(s.Claimants) {
		return 0, false
	}
	of := &s.Claimants[row]
	return row, of.Claimant == id && of.ShortLived == shortLived
}

// row returns the row of a claim's claimant, which is added if it is new.
func (s *Shares) row(claim *Claim) int {
	if row, ok := s.Find(claim.Claimant, claim.ShortLived); ok {
		return row
	}
	return s.addRow(claim)
}

func (s *Shares) addRow(claim *Claim) int {
	t := &s.table
	rows, i := &t.own, int(claim.Claimant-NoClaimant)
	if claim.ShortLived {
		rows = &t.shortLived
	}
	if i >= len(*rows) {
		*rows = grown(*rows, i+1-len(*rows))
	}
	row := len(s.Claimants)
	(*rows)[i] = int32(row)
	s.Claimants = append(s.Claimants, ClaimantShares{Claimant: claim.Claimant, ShortLived: claim.ShortLived})
	t.active = grown(t.active, t.kinds)
	if t.idleByUse {
		t.idle = grown(t.idle, t.kinds)
	}
	if t.parts > 0 {
		t.partCPU, t.partActive = grown(t.partCPU, t.parts), grown(t.partActive, t.parts*t.kinds)
	}
	return row
}

// grown returns a slice with n more zeros.
func grown[T any](all []T, n int) []T {
	all = slices.Grow(all, n)[:len(all)+n]
	clear(all[len(all)-n:])
	return all
}
