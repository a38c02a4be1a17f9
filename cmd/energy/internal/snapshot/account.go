// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	zonekind "github.com/energyreceiver/energyreceiver/internal/zone"
)

// Account follows the snapshots of one source. It holds the energy since the first snapshot, and
// the energy of the last period: the time between the two newest collections.
//
// An Account is not safe for concurrent use.
type Account struct {
	// FromZero makes energy count from the start of each series instead of the first snapshot. Like
	// Fresh, it must be set before the first Add.
	FromZero bool
	// Fresh is set if the receiver started with this account: energy counts from the start of each
	// series, and the first period begins with the earliest of them.
	Fresh bool

	newest    *Snapshot
	since, at time.Time // timestamps of the first and the last collection
	// period is 0 if the energy of the last period is not available.
	period time.Duration
	zones  []zoneAccount
	meters map[string]*meterAccount // by ID
	kinds  [NumKinds]kindAccount
	round  int // number of collections
}

// Amount is energy in one zone.
type Amount struct {
	// Used is energy since the first snapshot, and Total since the start of the newest series.
	Used, Total units.Energy
	// Recent is the part of Used in the last period, in microjoules.
	Recent int64
}

// follow sets Total to the newest value of the series. counts reports whether its energy counts.
func (a *Amount) follow(value units.Energy, counts bool) {
	if counts {
		energy := units.Advance(a.Total, value)
		a.Used += energy
		a.Recent += int64(energy)
	}
	a.Total = value
}

func (a *Amount) add(b Amount) {
	a.Used += b.Used
	a.Total += b.Total
	a.Recent += b.Recent
}

// zoneAccount is the account of a zone.
type zoneAccount struct {
	Zone                       // as of the newest snapshot with it
	active, idle, unattributed Amount
}

// meterAccount is the account of a meter.
type meterAccount struct {
	Meter  // as of the newest snapshot with it
	amount Amount
}

// kindAccount is the account of all workloads of a kind.
type kindAccount struct {
	cells  map[series]*cell
	groups map[Identity]*group
	pruned []Amount // energy of groups that were removed
}

// series distinguishes the series of workloads. A collection may have two of one workload: the ended
// series and the next one.
type series struct {
	Identity
	start time.Time // zero if it is not reported
}

// cell is the account of a series.
type cell struct {
	*Row
	group   *group
	amounts []Amount // by the index of Account.zones
	round   int      // number of the last collection with it
	// counts is set if energy from now on counts, because the value at the first snapshot is available.
	counts bool
}

// group is a program or a workload other than a process. Its series may end and begin again.
type group struct {
	Identity
	ended []Amount // energy of series that have ended
	live  int      // number of cells
	row   int      // its index in the newest table
}

// maxEnded is the maximum number of programs, and of workloads of each other kind, that are listed
// after they have ended: those with the highest energy.
const maxEnded = 200

// follows reports whether s has figures of a later collection than an earlier snapshot of the same
// source. Figures without timestamps are later if a figure of the node has changed.
func (s *Snapshot) follows(earlier *Snapshot) bool {
	if !s.Untimed || !earlier.Untimed {
		return !s.At.Equal(earlier.At)
	}
	sameZone := func(a, b Zone) bool {
		return a.Class == b.Class && a.Active == b.Active && a.Idle == b.Idle && a.Unattributed == b.Unattributed
	}
	sameMeter := func(a, b Meter) bool { return a.ID == b.ID && a.Energy == b.Energy }
	return !slices.EqualFunc(s.Zones, earlier.Zones, sameZone) || !slices.EqualFunc(s.Meters, earlier.Meters, sameMeter)
}

// Add adds a snapshot, and reports whether it has newer figures. A snapshot of the same collection as
// the last one completes the period: an exporter may be read while a collection arrives. A snapshot
// without zones is ignored.
func (a *Account) Add(s *Snapshot) (news bool) {
	if len(s.Zones) == 0 {
		return false
	}
	switch {
	case a.round == 0:
		news = true
		a.begin(s)
	case s.follows(a.newest):
		news = true
		a.period, a.at = max(s.At.Sub(a.at), 0), s.At
		a.next()
	}
	a.newest = s
	counts := a.round > 1 || a.FromZero
	index, restarted := a.addZones(s, counts)
	if restarted {
		a.period = 0
	}
	for i := range s.Meters {
		m := &s.Meters[i]
		of := a.meters[m.ID]
		if of == nil {
			of = &meterAccount{}
			a.meters[m.ID] = of
		}
		if m.Energy < of.amount.Total {
			of.amount.Total = 0
		}
		of.Meter = *m
		of.amount.follow(m.Energy, counts)
	}
	for i := range s.Rows {
		a.addRow(&s.Rows[i], index, restarted)
	}
	for kind := range a.kinds {
		a.kinds[kind].fold(a.round, len(a.zones))
	}
	return news
}

// begin adds the first snapshot.
func (a *Account) begin(s *Snapshot) {
	a.since, a.at, a.round, a.meters = s.At, s.At, 1, map[string]*meterAccount{}
	if a.FromZero = a.FromZero || a.Fresh; !a.FromZero {
		return
	}
	earliest := slices.MinFunc(s.Zones, func(a, b Zone) int { return a.Start.Compare(b.Start) })
	if a.since = earliest.Start; a.Fresh && !a.since.IsZero() {
		a.period = max(a.at.Sub(a.since), 0)
	}
}

// next begins a period.
func (a *Account) next() {
	a.round++
	for i := range a.zones {
		z := &a.zones[i]
		z.active.Recent, z.idle.Recent, z.unattributed.Recent = 0, 0, 0
	}
	for i := range a.kinds {
		k := &a.kinds[i]
		for _, c := range k.cells {
			settle(c.amounts)
		}
		for _, g := range k.groups {
			settle(g.ended)
		}
		settle(k.pruned)
	}
}

func settle(amounts []Amount) {
	for i := range amounts {
		amounts[i].Recent = 0
	}
}

// addZones adds the zones of a snapshot. It returns their indices in the account, and whether their
// series, and so the series of all workloads, began again.
func (a *Account) addZones(s *Snapshot, counts bool) (index []int, restarted bool) {
	for i := range s.Zones {
		zone := &s.Zones[i]
		at := slices.IndexFunc(a.zones, func(z zoneAccount) bool { return z.Class == zone.Class })
		if at < 0 {
			at = len(a.zones)
			a.zones = append(a.zones, zoneAccount{})
		}
		index = append(index, at)
		restarted = restarted || a.zones[at].beganAgain(zone)
	}
	for i := range s.Zones {
		z, zone := &a.zones[index[i]], &s.Zones[i]
		if restarted && (zone.Start.IsZero() || z.beganAgain(zone)) {
			z.active.Total, z.idle.Total, z.unattributed.Total = 0, 0, 0
		}
		z.Zone = *zone
		z.active.follow(zone.Active, counts)
		z.idle.follow(zone.Idle, counts)
		z.unattributed.follow(zone.Unattributed, counts)
	}
	names := make([]string, len(a.zones))
	for i := range a.zones {
		names[i] = string(a.zones[i].Class.Zone)
	}
	for i := range a.zones {
		a.zones[i].Besides = zonekind.Besides(names[i], names)
	}
	return index, restarted
}

// beganAgain reports whether the newest figures of a zone belong to new series.
func (z *zoneAccount) beganAgain(newest *Zone) bool {
	return newest.Active < z.active.Total || newest.Idle < z.idle.Total || newest.Unattributed < z.unattributed.Total ||
		!z.Start.IsZero() && !newest.Start.Equal(z.Start)
}

// addRow adds a row whose energy is in zones of the account with an index.
func (a *Account) addRow(r *Row, index []int, restarted bool) {
	k := &a.kinds[r.Kind]
	if k.cells == nil {
		k.cells, k.groups = map[series]*cell{}, map[Identity]*group{}
	}
	id := series{r.Identity, r.Start}
	c := k.cells[id]
	isFirst := c == nil
	if isFirst {
		c = &cell{group: k.group(r)}
		c.group.live++
		k.cells[id] = c
	}
	c.amounts = sized(c.amounts, len(a.zones))
	if isFirst || restarted && r.Start.IsZero() || c.beganAgain(r, index) {
		// The series began after the first snapshot, which does not contain it.
		began := (a.round > 1 || !isFirst) && (r.Start.IsZero() || !r.Start.Before(a.since))
		c.counts = a.FromZero || began
		for i := range c.amounts {
			c.amounts[i].Total = 0
		}
	}
	c.Row, c.round = r, a.round
	for i, energy := range r.Energy {
		c.amounts[index[i]].follow(energy, c.counts)
	}
	c.counts = c.counts || !r.Ended // otherwise the value is from an earlier collection
}

// beganAgain reports whether a row belongs to a new series without a start of its own.
func (c *cell) beganAgain(r *Row, index []int) bool {
	for i, energy := range r.Energy {
		if energy < c.amounts[index[i]].Total {
			return true
		}
	}
	return false
}

// group returns the group of a row.
func (k *kindAccount) group(r *Row) *group {
	id := r.Identity
	if r.Kind == Process {
		id = id.Program()
	}
	g := k.groups[id]
	if g == nil {
		g = &group{Identity: id}
		k.groups[id] = g
	}
	return g
}

// fold adds the energy of series that are not in the newest collection to their groups, and removes
// groups without series if there are too many.
func (k *kindAccount) fold(round, zones int) {
	for id, c := range k.cells {
		if c.round == round {
			continue
		}
		g := c.group
		g.ended = sized(g.ended, zones)
		addAll(g.ended, c.amounts)
		g.live--
		delete(k.cells, id)
	}
	ended := 0
	for _, g := range k.groups {
		if g.live == 0 {
			ended++
		}
	}
	if ended > maxEnded+maxEnded/2 { // rarely, because prune sorts the groups
		k.prune(zones)
	}
}

// prune keeps the maxEnded groups without series that used the most energy.
func (k *kindAccount) prune(zones int) {
	var ended []*group
	for _, g := range k.groups {
		if g.live == 0 {
			ended = append(ended, g)
		}
	}
	slices.SortFunc(ended, func(a, b *group) int { return cmp.Compare(sum(b.ended), sum(a.ended)) })
	k.pruned = sized(k.pruned, zones)
	for _, g := range ended[maxEnded:] {
		addAll(k.pruned, g.ended)
		delete(k.groups, g.Identity)
	}
}

func sum(amounts []Amount) (used units.Energy) {
	for i := range amounts {
		used += amounts[i].Used
	}
	return used
}

func sized(amounts []Amount, zones int) []Amount {
	return append(amounts, make([]Amount, max(zones-len(amounts), 0))...)
}

func addAll(to, amounts []Amount) {
	for i := range amounts {
		to[i].add(amounts[i])
	}
}
