// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// oracle implements the engine's arithmetic a second time, from the design and as plainly as
// possible: every share by itself, every sum anew, nothing merged, no order but that of the
// claimants. A share is known to the microjoule: it is the whole number below its exact value or
// the one above. What must be exact is compared exactly.
type oracle struct {
	cfg        ledger.Config
	models     [attribution.MaxKinds]attribution.StaticPowerModel // nil: the utilization rule
	keys       [attribution.MaxKinds]int
	observed   bool
	at         time.Time                           // end of the last interval
	longest    [attribution.MaxKinds]time.Duration // the longest time that energy was attributed over in the interval, by kind
	used       [attribution.MaxKinds]uint64        // by the zones of a kind, while they had it
	collection collection
	zones      []oracleZone
	kinds      [attribution.MaxKinds]oracleKind
	claimants  []*oracleClaimant // their claims may still be attributed
	groups     []*party          // containers, pods and VMs with claimants
	programs   []*party          // with or without claimants
	emittedAt  time.Time         // end of the last interval that was emitted, or the baseline
	accounts   []*oracleAccount
	others     [entities]*oracleAccount
	shown      *ledger.Totals
	dropped    uint64
	undecided  int            // series that may have begun and been dropped in this interval
	drops      [entities]bool // since the last check
	revived    [entities]int  // ended series that continued, since then
	emissions  uint64
	delivered  [attribution.MaxKinds]uint64 // to processes whose accounts are removed
	// deliveredIdle is the same for idle energy, under any idle allocation.
	deliveredIdle [attribution.MaxKinds]uint64

	touched []*oracleClaimant // in this interval, in order
	listed  []*ledger.Account
}

const entities = identity.NumEntities

// collection is the length of the current collection, and the node's CPU time in it.
type collection struct {
	elapsed     time.Duration
	busy, total units.CPUTime
}

// within is a number that is known to lie between two others.
type within struct{ from, to uint64 }

func (w *within) add(o within) { w.from, w.to = w.from+o.from, w.to+o.to }

func (w within) holds(n uint64) bool { return w.from <= n && n <= w.to }

// part is amount*share/whole, a rational number.
func part(amount, share, whole uint64) within {
	hi, lo := bits.Mul64(amount, share)
	quotient, rest := bits.Div64(hi, lo, whole)
	if rest == 0 {
		return within{quotient, quotient}
	}
	return within{quotient, quotient + 1}
}

// divided returns n of m parts of a number that is known to lie between two others.
func (w within) divided(parts, whole int) within {
	return within{part(w.from, uint64(parts), uint64(whole)).from, part(w.to, uint64(parts), uint64(whole)).to}
}

// gains are the active and idle energies of an interval by kind, and their parts in the current
// collection.
type gains struct{ energy, recent, idle, recentIdle [attribution.MaxKinds]within }

func (g *gains) add(o *gains) {
	for kind := range g.energy {
		g.energy[kind].add(o.energy[kind])
		g.recent[kind].add(o.recent[kind])
		g.idle[kind].add(o.idle[kind])
		g.recentIdle[kind].add(o.recentIdle[kind])
	}
}

type oracleZone struct {
	known      bool
	domain     int
	kind       int
	last       uint64
	start, at  time.Time
	energy     uint64
	recent     uint64
	recentTime time.Duration
	unread     time.Duration
	gone       bool         // it is not among the readings
	superseded bool         // while it was gone another one of its domain and kind began
	deferred   *oracleUsage // nil if none
	absent     *oracleUsage // the usage of its absence, without claims
}

// oracleUsage is the energy of some intervals, and the usage that it is to be shared by.
type oracleUsage struct {
	energy, busy, total, unattributed uint64
	elapsed                           time.Duration
	claims                            []oracleClaim
	unweighed                         [oracleKeys]bool // it lacks some weights
	partial                           bool             // its energy does not cover all of its time
}

// oracleClaim is a claim of a claimant. The claimant is nil for unattributed time.
type oracleClaim struct {
	by         *oracleClaimant
	shortLived bool
	has        [oracleKeys]uint64
}

// What claims have.
const (
	cpuTime = iota
	work
	memory
	oracleKeys
)

type oracleKind struct {
	present, ended                       bool
	start                                time.Time
	active, idle                         uint64
	recentActive, recentIdle             uint64
	recentTime                           time.Duration
	unattributed                         uint64 // as last compared
	unattributedIdle                     uint64
	newUnattributed, newUnattributedIdle within // since
}

type oracleClaimant struct {
	party
	id       attribution.Claimant
	groups   []*party
	program  *party // nil if it has none
	touching bool
	settling bool // it ran in intervals whose energy has become known
}

// party is a process, container, pod or VM, with or without a series.
type party struct {
	early  bool // see isOldEnough
	open   bool // set for processes
	entity identity.Entity
	owner  identity.Owner
	since  time.Time
	series *oracleAccount // nil if it is one of the others
	size   uint64

	earned        within // without a series
	usage, gained within // as ranked by the engine
	lost          int
	ranked        bool // it has been a candidate

	// In the current interval. unlisted is the part of a group's gains in the account of other
	// processes or containers.
	gains, unlisted gains
	idle            gains // of a process, already added
	cpu             uint64
	to              *oracleAccount
}

type oracleAccount struct {
	ledger.Account
	Ended, Reported, EndSent bool
	amounts                  // as last compared
	cpu                      uint64
	gains                    gains // since
	// unlisted is the part of a group's gains in the account of the others.
	unlisted     gains
	acknowledged bool
	folded       bool // its energy goes to the others
	merged       bool // its program has its energy already
	shared       bool // two processes had it at the same time
	left         bool // no claimant adds to it
}

// amounts are the energies of an account by kind.
type amounts struct{ energy, recent, idle, recentIdle [attribution.MaxKinds]uint64 }

// String returns the identity of the account.
func (a *oracleAccount) String() string {
	o := &a.Owner
	switch {
	case a.Other:
		return fmt.Sprintf("the others of entity %d", a.Entity)
	case a.Entity == identity.ProcessEntity:
		return fmt.Sprintf("process %d %s, created %v, in %q", o.Process.PID, o.Process.Path, o.Process.Start, o.Container.ID+o.VM.ID)
	case a.Entity == identity.ProgramEntity:
		return fmt.Sprintf("program %s of %s in %q", o.Process.Executable, o.Process.Owner, o.Container.ID+o.VM.ID)
	case a.Entity == identity.ContainerEntity:
		return "container " + o.Container.ID
	case a.Entity == identity.PodEntity:
		return "pod " + o.Pod.UID
	case a.Entity == identity.VMEntity:
		return "virtual machine " + o.VM.ID
	case a.Entity == identity.SlurmStepEntity:
		return fmt.Sprintf("job %s, step %s", o.Job.ID, o.Job.Step)
	default:
		return "unit " + o.Unit.Name
	}
}

func newOracle(cfg ledger.Config, baseline time.Time, shown *ledger.Totals) *oracle {
	o := &oracle{cfg: cfg, at: baseline, emittedAt: baseline, shown: shown}
	for entity := range entities {
		o.others[entity] = &oracleAccount{Account: ledger.Account{Entity: entity, Other: true, Start: baseline}}
	}
	o.others[identity.ProgramEntity] = o.others[identity.ProcessEntity]
	o.accounts = []*oracleAccount{o.others[identity.ProcessEntity]}
	return o
}

// describe returns the identity of an owner's entity. It is not ok if the owner has no such entity.
func describe(entity identity.Entity, o identity.Owner) (described identity.Owner, ok bool) {
	switch entity {
	case identity.ProcessEntity:
		return o, o.Process.PID != 0
	case identity.ProgramEntity:
		return identity.Owner{
			Process:  identity.Process{Executable: o.Process.Executable, Owner: o.Process.Owner, Descendants: o.Process.Descendants},
			Workload: o.Workload,
		}, o.Process.Executable != ""
	case identity.ContainerEntity:
		return identity.Owner{Workload: identity.Workload{Container: o.Container, Pod: identity.Pod{UID: o.Pod.UID}}}, o.Container.ID != ""
	case identity.PodEntity:
		return identity.Owner{Workload: identity.Workload{Pod: o.Pod}}, o.Pod.UID != ""
	case identity.VMEntity:
		return identity.Owner{Workload: identity.Workload{VM: o.VM}}, o.VM.ID != ""
	case identity.SlurmStepEntity:
		return identity.Owner{Workload: identity.Workload{Job: o.Job}}, o.Job.ID != ""
	case identity.SystemdUnitEntity:
		return identity.Owner{Workload: identity.Workload{Unit: o.Unit}}, o.Unit.Name != ""
	default: // these tests have none
		return identity.Owner{}, false
	}
}

// findAccount returns the account of a series, or nil.
func (o *oracle) findAccount(p *party) *oracleAccount {
	for _, a := range o.accounts {
		if a.Entity == p.entity && !a.Other && !a.folded && a.Owner == p.owner {
			return a
		}
	}
	return nil
}

// startSeries opens the series of a party. A series that ended continues.
func (o *oracle) startSeries(p *party, start time.Time) {
	if p.series = o.findAccount(p); p.series != nil {
		if p.series.shared = !p.series.Ended; p.series.Ended {
			o.revived[p.entity]++
		}
	} else {
		p.series = &oracleAccount{Account: ledger.Account{Entity: p.entity, Owner: p.owner, Start: start}}
		o.accounts = append(o.accounts, p.series)
	}
	p.series.Reported = p.series.Reported || p.series.EndSent // the next consumer may know it
	p.series.Ended, p.series.EndSent = false, false
}

// live returns the number of live series of an entity.
func (o *oracle) live(entity identity.Entity) (n int) {
	for _, a := range o.accounts {
		if a.Entity == entity && !a.Other && !a.Ended && !a.folded {
			n++
		}
	}
	return n
}

// grown reports whether the party's series in the engine is new or has more energy than before.
func (o *oracle) grown(p *party) bool {
	known := o.findAccount(p)
	for a := range o.shown.Accounts {
		if a.Entity == p.entity && !a.Other && a.Owner == p.owner {
			return known == nil || uint64(a.CPU) > known.cpu || uint64(a.Amounts(0).Energy+a.Amounts(1).Energy) > known.energy[0]+known.energy[1]
		}
	}
	return false
}

// place reports whether there is room for one more series.
func (o *oracle) place(entity identity.Entity) bool {
	most := o.cfg.Limits[entity].Max
	return most == 0 || o.live(entity) < most
}

// shows reports whether the engine has a series of the party. If live is set, it must be live.
func (o *oracle) shows(p *party, live bool) bool {
	for a := range o.shown.Accounts {
		if a.Entity == p.entity && !a.Other && a.Owner == p.owner {
			return !live || !a.Ended()
		}
	}
	return false
}

func (o *oracle) find(id attribution.Claimant) *oracleClaimant {
	for _, c := range o.claimants {
		if c.id == id {
			return c
		}
	}
	return nil
}

// open must be called after the engine's Open, with its id.
func (o *oracle) open(id attribution.Claimant, owner identity.Owner, since time.Time) error {
	if c := o.find(id); c != nil {
		return fmt.Errorf("claimant %d, %+v, is still to be credited and became %+v", id, c.owner, owner)
	}
	c := &oracleClaimant{id: id, party: party{open: true, entity: identity.ProcessEntity, owner: owner, since: since, early: !o.observed}}
	for entity := identity.ContainerEntity; entity < entities; entity++ {
		described, ok := describe(entity, owner)
		if !ok {
			continue
		}
		i := slices.IndexFunc(o.groups, func(p *party) bool { return p.entity == entity && p.owner == described })
		if i < 0 {
			p := &party{entity: entity, owner: described, since: since}
			if known := o.findAccount(p); (known != nil || o.cfg.Limits[entity].MinEnergy == 0) && o.place(entity) {
				o.startSeries(p, since)
			}
			i = len(o.groups)
			o.groups = append(o.groups, p)
		}
		c.groups = append(c.groups, o.groups[i])
	}
	if program, ok := describe(identity.ProgramEntity, owner); ok && o.cfg.Processes != ledger.ByPID {
		c.program = o.programOf(program, since)
	}
	if shared := o.findAccount(&c.party); o.cfg.Processes != ledger.ByProgram && owner.Process.PID != 0 &&
		(shared != nil && !shared.Ended || o.cfg.Limits[identity.ProcessEntity].MinEnergy == 0 && o.isOldEnough(&c.party) && o.place(identity.ProcessEntity)) {
		o.startSeries(&c.party, later(since, o.at))
	}
	o.claimants = append(o.claimants, c)
	return nil
}

// programOf returns the party of a program. A program whose series has ended continues it if there
// is room.
func (o *oracle) programOf(owner identity.Owner, since time.Time) *party {
	for _, p := range o.programs {
		if p.owner == owner {
			return p
		}
	}
	p := &party{entity: identity.ProgramEntity, owner: owner, since: since}
	if o.findAccount(p) != nil && o.place(identity.ProgramEntity) {
		o.startSeries(p, since)
	}
	o.programs = append(o.programs, p)
	return p
}

// rest adds gains of a claimant that no process's own account gets.
func (o *oracle) rest(c *oracleClaimant, g *gains) {
	if c != nil && c.program != nil {
		c.program.gains.add(g)
		return
	}
	o.others[identity.ProcessEntity].gains.add(g)
}

// admit opens a series for a process if there is room.
func (o *oracle) admit(c *oracleClaimant) {
	if o.place(identity.ProcessEntity) {
		o.less(&c.party)
		o.startSeries(&c.party, later(c.since, o.at))
	}
}

// less subtracts the contents of a party's new series from its gains without one.
func (o *oracle) less(p *party) {
	if p.entity == identity.ProcessEntity {
		p.gained = p.gained.less(total(&p.gains.recent))
	}
	if ended := o.findAccount(p); ended != nil {
		p.gained = p.gained.less(exactly(&ended.recent)).less(total(&ended.gains.recent))
	}
}

func exactly(amounts *[attribution.MaxKinds]uint64) (w within) {
	for _, energy := range amounts {
		w.add(within{energy, energy})
	}
	return w
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (o *oracle) resize(id attribution.Claimant, size uint64) {
	if holder := o.find(id).holder(); holder != nil {
		holder.size = size
	}
}

// holder returns the container, or its substitute, that a claimant gets its share of idle energy
// from.
func (c *oracleClaimant) holder() *party {
	for _, entity := range []identity.Entity{identity.ContainerEntity, identity.VMEntity, identity.PodEntity} {
		for _, group := range c.groups {
			if group.entity == entity {
				return group
			}
		}
	}
	return nil
}

func (o *oracle) close(id attribution.Claimant) error {
	o.find(id).open = false
	return o.end()
}

// end ends the series without claimants.
func (o *oracle) end() error {
	o.claimants = slices.DeleteFunc(o.claimants, func(c *oracleClaimant) bool { return !c.open && !c.settling && !o.owed(c) })
	o.groups = slices.DeleteFunc(o.groups, func(p *party) bool {
		return !slices.ContainsFunc(o.claimants, func(c *oracleClaimant) bool { return slices.Contains(c.groups, p) })
	})
	for _, a := range o.accounts {
		if a.Other || a.Ended || a.folded ||
			slices.ContainsFunc(o.claimants, func(c *oracleClaimant) bool { return c.series == a }) ||
			slices.ContainsFunc(o.groups, func(p *party) bool { return p.series == a }) ||
			slices.ContainsFunc(o.programs, func(p *party) bool { return p.series == a }) {
			continue
		}
		if err := o.keepEnded(a); err != nil {
			return err
		}
	}
	if err := o.checkDrops(); err != nil {
		return err
	}
	o.dropFolded()
	return nil
}

// keepEnded ends a series. If too many ended series are kept, one that was never acknowledged is
// folded into the others.
func (o *oracle) keepEnded(a *oracleAccount) error {
	a.Ended = true
	if o.shows(&party{entity: a.Entity, owner: a.Owner}, false) {
		return nil
	}
	if o.cfg.Limits[a.Entity].Max == 0 || a.acknowledged {
		return fmt.Errorf("%v was dropped, acknowledged %v", a, a.acknowledged)
	}
	o.dropped++
	o.drops[a.Entity] = true
	a.folded = true
	return nil
}

// checkDrops reports an error if series were dropped though fewer than allowed had ended.
func (o *oracle) checkDrops() error {
	for entity := range entities {
		ended := 0
		for _, a := range o.accounts {
			if a.Entity == entity && a.Ended && !a.folded {
				ended++
			}
		}
		if most := o.cfg.Limits[entity].Max; o.drops[entity] && ended+o.revived[entity] < most {
			return fmt.Errorf("a series of entity %d was dropped, and %d of %d wait", entity, ended, most)
		}
	}
	o.drops, o.revived = [entities]bool{}, [entities]int{}
	return nil
}

// fold folds an account into the others, that of a process into its program if that has a series.
func (o *oracle) fold(a *oracleAccount) {
	others := o.others[a.Entity]
	if program, ok := describe(identity.ProgramEntity, a.Owner); ok && a.Entity == identity.ProcessEntity {
		for _, p := range o.programs {
			if p.owner == program && p.series != nil {
				others = p.series
			}
		}
	}
	for kind := range a.energy {
		for _, e := range []struct {
			to     *within
			exact  uint64
			gained within
		}{
			{&others.gains.energy[kind], a.energy[kind], a.gains.energy[kind]},
			{&others.gains.recent[kind], a.recent[kind], a.gains.recent[kind]},
			{&others.gains.idle[kind], a.idle[kind], a.gains.idle[kind]},
			{&others.gains.recentIdle[kind], a.recentIdle[kind], a.gains.recentIdle[kind]},
		} {
			e.to.add(within{e.exact, e.exact})
			e.to.add(e.gained)
		}
	}
	others.cpu += a.cpu
}

// dropFolded forgets the folded accounts, and starts over with the engine's totals of the others.
func (o *oracle) dropFolded() {
	for _, a := range o.accounts {
		if !a.folded {
			continue
		}
		if !a.merged {
			o.fold(a)
		}
		for _, group := range o.accounts {
			if group.isGroup() && !group.left && group.has(a) {
				group.unlisted.add(&a.gains)
			}
		}
	}
	o.accounts = slices.DeleteFunc(o.accounts, func(a *oracleAccount) bool { return a.folded })
	for _, others := range o.others {
		if slices.Contains(o.accounts, others) {
			continue
		}
		for a := range o.shown.Accounts {
			if a.Other && a.Entity == others.Entity {
				o.accounts = append(o.accounts, others)
				break
			}
		}
	}
}

// owed reports whether a claimant ran in intervals whose energy is still deferred.
func (o *oracle) owed(c *oracleClaimant) bool {
	return slices.ContainsFunc(o.zones, func(z oracleZone) bool {
		return z.deferred != nil && slices.ContainsFunc(z.deferred.claims, func(claim oracleClaim) bool { return claim.by == c })
	})
}

func (o *oracle) touch(c *oracleClaimant) {
	if !c.touching {
		c.touching = true
		o.touched = append(o.touched, c)
	}
}

func (o *oracle) observe(iv *attribution.Interval) error {
	o.collection.elapsed += iv.Elapsed
	o.collection.busy += iv.Domains[0].Busy
	o.collection.total += iv.Domains[0].Total
	var these []*oracleUsage // by domain
	for i := range iv.Domains {
		these = append(these, o.usage(&iv.Domains[i], iv.Elapsed))
	}
	for _, claim := range these[0].claims {
		if !claim.shortLived {
			o.touch(claim.by)
			claim.by.cpu += claim.has[cpuTime]
			continue
		}
		if claim.by != nil && claim.by.program != nil {
			claim.by.program.cpu += claim.has[cpuTime]
		} else {
			o.others[identity.ProcessEntity].cpu += claim.has[cpuTime]
		}
		for _, group := range groupsOf(claim.by) {
			group.cpu += claim.has[cpuTime]
		}
	}
	if err := o.readZones(iv, these); err != nil {
		return err
	}
	o.undecided = 0
	if err := o.settle(iv.EndsCollection); err != nil {
		return err
	}
	if err := o.end(); err != nil {
		return err
	}
	if o.dropped < o.shown.Dropped && o.shown.Dropped <= o.dropped+uint64(o.undecided) {
		o.dropped = o.shown.Dropped
	}
	for entity := range entities {
		if most := o.cfg.Limits[entity].Max; most > 0 && o.live(entity) > most {
			return fmt.Errorf("%d series of entity %d live", o.live(entity), entity)
		}
	}
	o.at, o.observed = iv.At, true
	return nil
}

// usage returns the usage of a domain in an interval, without energy.
func (o *oracle) usage(u *attribution.Usage, elapsed time.Duration) *oracleUsage {
	w := &oracleUsage{busy: uint64(u.Busy), total: uint64(u.Total), unattributed: uint64(u.Unattributed), elapsed: elapsed}
	w.unweighed[work], w.unweighed[memory] = u.Unweighed[0], u.Unweighed[1]
	for _, claim := range u.Claims {
		w.claims = append(w.claims, oracleClaim{
			o.find(claim.Claimant), claim.ShortLived, [oracleKeys]uint64{uint64(claim.CPU), claim.Weights[0], claim.Weights[1]},
		})
	}
	return w
}

func (o *oracle) readZones(iv *attribution.Interval, these []*oracleUsage) error {
	known := make([][attribution.MaxKinds]int, len(these)) // by domain and kind: the number of zones that were read and can be split
	energies := make([][attribution.MaxKinds]uint64, len(these))
	o.longest = [attribution.MaxKinds]time.Duration{}
	listed, began := map[int]bool{}, []int{}
	for _, r := range iv.Zones {
		listed[r.Zone] = true
		for len(o.zones) <= r.Zone {
			o.zones = append(o.zones, oracleZone{})
		}
		z := &o.zones[r.Zone]
		if !z.known {
			if o.begin(z, r, iv.At); z.known {
				began = append(began, r.Zone)
			}
			continue
		}
		energy := z.read(r, iv)
		this := these[z.domain]
		if z.kind == attribution.NotAttributed {
			continue
		}
		o.used[z.kind] += energy
		if r.OK && this.total > 0 && z.deferred == nil && z.absent == nil {
			known[z.domain][z.kind]++
			energies[z.domain][z.kind] += energy
			continue
		}
		if z.deferred == nil {
			z.deferred = &oracleUsage{}
			if z.absent != nil {
				z.deferred, z.absent = z.absent, nil
			}
		}
		z.deferred.add(this)
		z.deferred.energy += energy
		if z.deferred.elapsed > 5*time.Minute {
			z.deferred.forget()
			if err := o.end(); err != nil {
				return err
			}
		}
		if r.OK && z.deferred.total > 0 {
			o.attribute(z.domain, z.kind, 1, z.deferred.energy, z.deferred)
			z.deferred = nil
		}
	}
	for i := range o.zones {
		if z := &o.zones[i]; z.known && !listed[i] {
			o.miss(z, these[z.domain])
		}
	}
	slices.Sort(began) // the engine goes by index
	for _, i := range began {
		o.supersede(&o.zones[i])
	}
	for domain := range known {
		for kind, zones := range known[domain] {
			if zones > 0 {
				o.attribute(domain, kind, zones, energies[domain][kind], these[domain])
			}
		}
	}
	o.move(iv)
	for kind := range o.kinds {
		k := &o.kinds[kind]
		k.ended = k.present && !slices.ContainsFunc(o.zones, func(z oracleZone) bool { return z.known && z.kind == kind && !z.gone })
		k.recentTime = min(k.recentTime+o.longest[kind], o.collection.elapsed)
	}
	return nil
}

// move moves zones to another domain or kind once they were read. Energy that is still deferred
// under the former one becomes unattributed.
func (o *oracle) move(iv *attribution.Interval) {
	for _, r := range iv.Zones {
		z := &o.zones[r.Zone]
		if !r.OK || z.kind == r.Kind && z.domain == r.Domain {
			continue
		}
		if z.deferred != nil {
			o.kinds[z.kind].active += z.deferred.energy
			o.kinds[z.kind].newUnattributed.add(within{z.deferred.energy, z.deferred.energy})
			z.deferred = nil
		}
		z.kind, z.domain = r.Kind, r.Domain
		o.beginKind(r.Kind, iv.At)
	}
}

func (o *oracle) beginKind(kind int, at time.Time) {
	if kind != attribution.NotAttributed && !o.kinds[kind].present {
		o.kinds[kind].present, o.kinds[kind].start = true, at
	}
}

// begin is called with a zone's first good reading.
func (o *oracle) begin(z *oracleZone, r attribution.ZoneReading, at time.Time) {
	if !r.OK {
		return
	}
	*z = oracleZone{known: true, domain: r.Domain, kind: r.Kind, last: uint64(r.Total), start: at, at: at}
	o.beginKind(r.Kind, at)
}

// supersede has a zone that began take the place of one that is gone.
func (o *oracle) supersede(by *oracleZone) {
	for i := range o.zones {
		if z := &o.zones[i]; z.gone && !z.superseded && z.kind == by.kind && z.domain == by.domain {
			z.superseded = true
			return
		}
	}
}

func (z *oracleZone) read(r attribution.ZoneReading, iv *attribution.Interval) uint64 {
	z.gone, z.superseded = false, false
	energy := uint64(r.Total) - z.last
	z.last = uint64(r.Total)
	z.energy += energy
	z.recent += energy
	z.unread += iv.Elapsed
	if r.OK {
		z.recentTime += z.unread
		z.unread = 0
	}
	if r.OK || energy > 0 {
		z.at = iv.At
	}
	return energy
}

// miss handles an interval without a reading of a zone: its earlier energy is shared, and claimants
// of the absence get nothing of the energy after its return.
func (o *oracle) miss(z *oracleZone, this *oracleUsage) {
	z.unread += this.elapsed
	z.gone = true
	if z.kind == attribution.NotAttributed {
		return
	}
	if z.absent == nil {
		z.absent = &oracleUsage{}
	}
	z.absent.addUnnamed(this)
	w := z.deferred
	z.deferred = nil
	switch {
	case w == nil:
	case w.energy == 0:
		z.absent.addUnnamed(w)
	case w.total == 0:
		o.kinds[z.kind].active += w.energy
		o.kinds[z.kind].newUnattributed.add(within{w.energy, w.energy})
	default:
		w.partial = true
		o.attribute(z.domain, z.kind, 1, w.energy, w)
	}
}

func (w *oracleUsage) add(o *oracleUsage) {
	w.busy += o.busy
	w.total += o.total
	w.unattributed += o.unattributed
	w.elapsed += o.elapsed
	for key := range w.unweighed {
		w.unweighed[key] = w.unweighed[key] || o.unweighed[key]
	}
	for _, claim := range o.claims {
		w.claim(claim)
	}
}

func (w *oracleUsage) addUnnamed(o *oracleUsage) {
	unnamed := *o
	unnamed.claims = nil
	for _, claim := range o.claims {
		unnamed.unattributed += claim.has[cpuTime]
	}
	w.add(&unnamed)
}

func (w *oracleUsage) claim(claim oracleClaim) {
	if claim.has == [oracleKeys]uint64{} {
		return
	}
	for i := range w.claims {
		if same := &w.claims[i]; same.by == claim.by && same.shortLived == claim.shortLived {
			for key := range same.has {
				same.has[key] += claim.has[key]
			}
			return
		}
	}
	w.claims = append(w.claims, claim)
}

func (w *oracleUsage) sum(key int) (sum uint64) {
	for _, claim := range w.claims {
		sum += claim.has[key]
	}
	return sum
}

// forget removes ended claimants from the claims.
func (w *oracleUsage) forget() {
	before := w.claims
	w.claims = nil
	for _, claim := range before {
		if claim.by != nil && !claim.by.open {
			claim.by, claim.shortLived = nil, true
		}
		w.claim(claim)
	}
}

// attribute shares the energy of the zones of a domain and kind by the usage of the same intervals.
func (o *oracle) attribute(domain, kind, zones int, energy uint64, w *oracleUsage) {
	active := part(energy, min(w.busy, w.total), w.total).from
	if model := o.models[kind]; model != nil {
		of, all := 0, 0
		for _, z := range o.zones {
			if z.known && !z.superseded && z.kind == kind {
				all++
				if z.domain == domain {
					of++
				}
			}
		}
		p := attribution.Portion{
			Domain: domain, Kind: kind, Energy: units.Energy(energy), Busy: units.CPUTime(w.busy), Total: units.CPUTime(w.total),
			Elapsed: w.elapsed, Zones: zones, Of: of, OfAll: all, Partial: w.partial,
		}
		active = min(energy, uint64(model.Active(p)))
	}
	k := &o.kinds[kind]
	k.active += active
	k.idle += energy - active
	k.recentActive += o.recentPart(active, w.elapsed)
	k.recentIdle += o.recentPart(energy-active, w.elapsed)
	o.longest[kind] = max(o.longest[kind], w.elapsed)
	key, unattributed := o.keys[kind], w.unattributed
	all := w.sum(key)
	if ran := w.sum(cpuTime); key != cpuTime && (w.unweighed[key] || all == 0 || ran == 0 && unattributed > 0) {
		key, all = cpuTime, ran
	} else if key != cpuTime && ran > 0 {
		unattributed = part(unattributed, all, ran).from
	}
	whole := all + unattributed
	o.shareIdle(kind, energy-active, w, key, unattributed, whole)
	if whole == 0 {
		k.newUnattributed.add(within{active, active})
		return
	}
	k.newUnattributed.add(part(active, unattributed, whole))
	for _, claim := range w.claims {
		if claim.by != nil {
			claim.by.settling = true
		}
		var g gains
		share := part(active, claim.has[key], whole)
		g.energy[kind] = share
		g.recent[kind] = o.recentShare(share, w.elapsed)
		if !claim.shortLived {
			o.touch(claim.by)
			claim.by.gains.add(&g)
			continue
		}
		o.rest(claim.by, &g)
		for _, group := range groupsOf(claim.by) {
			group.gains.add(&g)
			group.unlisted.add(&g)
		}
	}
}

// shareIdle gives the carriers their share of idle energy. With allocation by use they are the
// claimants with active energy.
func (o *oracle) shareIdle(kind int, idle uint64, w *oracleUsage, key int, unattributed, whole uint64) {
	k := &o.kinds[kind]
	switch o.cfg.Rules.Idle {
	case attribution.IdleNone:
		return
	case attribution.IdleUsed:
		if whole == 0 {
			k.newUnattributedIdle.add(within{idle, idle})
			return
		}
		k.newUnattributedIdle.add(part(idle, unattributed, whole))
		for _, claim := range w.claims {
			g := o.idleGains(kind, part(idle, claim.has[key], whole), w.elapsed)
			listed := !claim.shortLived && claim.by.series != nil
			if listed {
				claim.by.series.gains.add(&g)
				claim.by.idle.add(&g)
			} else {
				o.rest(claim.by, &g)
			}
			for _, group := range groupsOf(claim.by) {
				group.gains.add(&g)
				if !listed {
					group.unlisted.add(&g)
				}
			}
		}
		return
	}
	carriers, sum := map[*party][]*oracleClaimant{}, uint64(0) // by the party that they have their share from
	for _, c := range o.claimants {
		if c.open && (o.cfg.Rules.Idle != attribution.IdleEqual || c.owner.Process.PID != 0) {
			carriers[c.holder()] = append(carriers[c.holder()], c)
		}
	}
	size := func(holder *party) uint64 {
		switch {
		case o.cfg.Rules.Idle == attribution.IdleEqual:
			return uint64(len(carriers[holder]))
		case holder == nil:
			return 0
		case o.cfg.Rules.Idle == attribution.IdleRequested:
			return holder.size
		}
		return 1
	}
	for holder := range carriers {
		sum += size(holder)
	}
	if sum == 0 {
		k.newUnattributedIdle.add(within{idle, idle})
		return
	}
	for holder, all := range carriers {
		share := part(idle, size(holder), sum)
		together := map[identity.Owner][]*oracleClaimant{} // by their common owner
		for _, c := range all {
			in := identity.Owner{Workload: c.owner.Workload}
			together[in] = append(together[in], c)
		}
		for _, some := range together {
			o.carry(kind, some, share.divided(len(some), len(all)), w.elapsed)
		}
	}
}

// carry shares idle energy equally among claimants of one owner.
func (o *oracle) carry(kind int, all []*oracleClaimant, share within, elapsed time.Duration) {
	unnamed, by := 0, map[*party]int{} // by program
	for _, c := range all {
		if c.series == nil {
			unnamed++
			by[c.program]++
			continue
		}
		g := o.idleGains(kind, share.divided(1, len(all)), elapsed)
		c.series.gains.add(&g)
		c.idle.add(&g)
	}
	g, rest := o.idleGains(kind, share, elapsed), o.idleGains(kind, share.divided(unnamed, len(all)), elapsed)
	for program, count := range by {
		g := o.idleGains(kind, share.divided(count, len(all)), elapsed)
		o.rest(&oracleClaimant{program: program}, &g)
	}
	for _, group := range groupsOf(all[0]) {
		group.gains.add(&g)
		group.unlisted.add(&rest)
	}
}

// idleGains returns the gains of idle energy that was used over elapsed.
func (o *oracle) idleGains(kind int, idle within, elapsed time.Duration) (g gains) {
	g.idle[kind] = idle
	g.recentIdle[kind] = o.recentShare(idle, elapsed)
	return g
}

// recentShare returns the part in the current collection of a share. The engine may keep several
// claims of one claimant while energy is deferred, and rounds the part of each down.
func (o *oracle) recentShare(share within, elapsed time.Duration) within {
	const more = 3 // claims
	recent := within{o.recentPart(share.from, elapsed), o.recentPart(share.to, elapsed)}
	if elapsed > o.collection.elapsed {
		recent.from -= min(recent.from, more)
	}
	return recent
}

// recentPart returns the part in the current collection of an energy that was used evenly over
// elapsed.
func (o *oracle) recentPart(energy uint64, elapsed time.Duration) uint64 {
	if elapsed <= o.collection.elapsed {
		return energy
	}
	return part(energy, uint64(o.collection.elapsed), uint64(elapsed)).from
}

func groupsOf(c *oracleClaimant) []*party {
	if c == nil {
		return nil
	}
	return c.groups
}

// settle adds the interval's gains: first of the claimants that ran, then of those with deferred
// energy.
func (o *oracle) settle(endsCollection bool) error {
	for _, c := range o.touched {
		for _, group := range c.groups {
			group.gains.add(&c.gains)
			group.cpu += c.cpu
		}
		if c.series != nil || o.cfg.Processes == ledger.ByProgram {
			continue
		}
		c.earned.add(total(&c.gains.energy))
		gained := total(&c.gains.recent)
		enough := uint64(o.cfg.Limits[identity.ProcessEntity].MinEnergy)
		if may := c.open && c.owner.Process.PID != 0 && c.earned.to > 0 && o.isOldEnough(&c.party); c.ranked || may && c.earned.from >= max(enough, 1) {
			c.gained.add(gained)
			c.ranked = true
		} else if may && c.earned.to >= enough { // within a microjoule the engine decides
			c.gained.add(within{0, gained.to})
			c.ranked = true
		}
		if c.owner.Process.PID != 0 && o.earnedEnough(c) && o.isOldEnough(&c.party) && (!endsCollection || !c.open) {
			o.admit(c)
		}
	}
	for _, c := range o.claimants {
		c.to = c.series
	}
	for _, p := range slices.Concat(o.groups, o.programs) {
		p.to = p.series
	}
	for entity := range entities {
		if err := o.contest(entity, endsCollection); err != nil {
			return err
		}
		if entity != identity.ProcessEntity {
			continue
		}
		for _, c := range o.claimants { // before the contest of programs
			if c.to == nil && c.series == nil && c.program != nil {
				c.program.gains.add(&c.gains)
				c.program.cpu += c.cpu
			}
		}
		if endsCollection {
			if err := o.fade(); err != nil {
				return err
			}
		}
	}
	for _, p := range slices.Concat(o.groups, o.programs) {
		o.book(p)
	}
	for _, c := range o.claimants {
		if c.program == nil || c.to != nil || c.series != nil {
			o.book(&c.party)
		}
	}
	for _, c := range o.claimants {
		listed := c.to != nil
		for _, group := range c.groups {
			if !listed {
				group.unlisted.add(&c.gains)
				group.unlisted.add(&c.idle)
			}
		}
	}
	for _, c := range o.claimants { // every process of a pod is in one of the pod's containers
		for _, pod := range c.groups {
			if pod.entity == identity.PodEntity {
				pod.unlisted = gains{}
			}
		}
	}
	seen := map[*party]bool{}
	for _, c := range o.claimants {
		container := o.containerOf(c)
		if container == nil || seen[container] || container.to != nil {
			continue
		}
		seen[container] = true
		for _, pod := range c.groups {
			if pod.entity == identity.PodEntity {
				pod.unlisted.add(&container.gains)
			}
		}
	}
	for _, a := range o.accounts {
		a.left = true
	}
	for _, p := range o.groups {
		if p.to != nil {
			p.to.unlisted.add(&p.unlisted)
			p.to.left = false
		}
		p.gains, p.unlisted, p.cpu, p.to = gains{}, gains{}, 0, nil
	}
	for _, p := range o.programs {
		p.gains, p.cpu, p.to = gains{}, 0, nil
	}
	for _, c := range o.claimants {
		c.gains, c.idle, c.cpu, c.touching, c.settling, c.to = gains{}, gains{}, 0, false, false, nil
	}
	o.dropFolded()
	o.touched = o.touched[:0]
	return nil
}

// faded is the usage in microjoules below which a program without claimants ends.
const faded = 1000

func (o *oracle) isClaimed(program *party) bool {
	return slices.ContainsFunc(o.claimants, func(c *oracleClaimant) bool { return c.program == program })
}

// fade ends the programs without claimants that have used less than a millijoule lately.
func (o *oracle) fade() error {
	kept := o.programs[:0]
	for _, p := range o.programs {
		used := o.rank(p)
		switch {
		case o.isClaimed(p) || used.from >= faded:
		case used.to < faded || p.series != nil && !o.shows(p, true): // within a microjoule the engine decides
			o.book(p)
			if p.series == nil {
				continue
			}
			a := p.series
			p.series = nil
			if err := o.keepEnded(a); err != nil {
				return err
			}
			continue
		}
		kept = append(kept, p)
	}
	o.programs = kept
	return nil
}

func (o *oracle) containerOf(c *oracleClaimant) *party {
	for _, group := range c.groups {
		if group.entity == identity.ContainerEntity {
			return group
		}
	}
	return nil
}

// book adds the interval's gains to the series, or to the others.
func (o *oracle) book(p *party) {
	if p.to == nil {
		p.to = p.series
	}
	to := p.to
	if to == nil {
		to = o.others[p.entity]
		if p.entity != identity.ProcessEntity {
			p.earned.add(total(&p.gains.energy))
			p.gained.add(total(&p.gains.recent))
		}
	}
	to.gains.add(&p.gains)
	to.cpu += p.cpu
}

func total(amounts *[attribution.MaxKinds]within) (sum within) {
	for _, energy := range amounts {
		sum.add(energy)
	}
	return sum
}

// parties returns the parties of an entity.
func (o *oracle) parties(entity identity.Entity) (all []*party) {
	if entity == identity.ProgramEntity {
		return o.programs
	}
	if entity != identity.ProcessEntity {
		for _, p := range o.groups {
			if p.entity == entity {
				all = append(all, p)
			}
		}
		return all
	}
	for _, c := range o.claimants {
		all = append(all, &c.party)
	}
	return all
}

// rank returns how much a party has used lately.
func (o *oracle) rank(p *party) within {
	w := within{p.usage.from - p.usage.from/4, p.usage.to - p.usage.to/4}
	w.add(p.gained)
	if p.to != nil {
		w.add(exactly(&p.to.recent))
		w.add(total(&p.to.gains.recent))
	}
	if p.entity != identity.ProcessEntity || p.to != nil {
		w.add(total(&p.gains.recent))
	}
	return w
}

// contest adopts the engine's choice of the owners of series, and checks it against the rules:
// there is no free place while a candidate may have one, and at the end of a collection the largest
// candidates replace the smallest series.
func (o *oracle) contest(entity identity.Entity, endsCollection bool) error {
	limit := o.cfg.Limits[entity]
	var newcomers, refused []*party
	var displaced, stayed []*oracleAccount
	ending := 0
	keys := map[any]within{}
	key := func(p *party) within { // of a newcomer
		w := o.rank(p)
		of := 8 + uint64(1)<<p.lost
		return within{part(w.from, 9, of).from, part(w.to, 9, of).from}
	}
	for _, p := range o.parties(entity) {
		leaves := entity != identity.ProgramEntity && !slices.ContainsFunc(o.claimants, func(c *oracleClaimant) bool {
			return (&c.party == p || slices.Contains(c.groups, p)) && (c.open || o.owed(c))
		})
		if leaves && (p.series != nil || !o.grown(p)) {
			if p.series == nil && o.may(p, endsCollection) {
				o.undecided++ // it may have begun, ended and been dropped
			}
			if p.series != nil {
				ending++ // in this interval, unless it was displaced in it
				if endsCollection && !p.series.Reported && !o.shows(p, false) {
					p.series.folded = true
					o.undecided++
				}
			}
			continue
		}
		if p.series == nil {
			if o.may(p, endsCollection) && (leaves || o.shows(p, true)) {
				keys[p] = key(p)
				newcomers = append(newcomers, p)
			} else if o.must(p, endsCollection) {
				keys[p] = key(p)
				refused = append(refused, p)
			}
			continue
		}
		w := o.rank(p)
		if p.series.Reported {
			w = within{w.from + w.from/8, w.to + w.to/8}
		}
		keys[p.series] = w
		switch {
		case slices.Contains(stayed, p.series):
		case o.shows(p, true):
			stayed = append(stayed, p.series)
		default:
			displaced = append(displaced, p.series)
		}
	}
	if len(displaced) > 0 && !endsCollection {
		return fmt.Errorf("%v lost its series in the midst of a collection", displaced[0])
	}
	for _, d := range displaced {
		for _, n := range newcomers {
			if keys[n].to <= keys[d].from {
				return fmt.Errorf("%+v with %v took the place of %v with %v", n.owner, keys[n], d, keys[d])
			}
		}
	}
	if len(displaced) > len(newcomers)+o.undecided {
		return fmt.Errorf("%d of entity %d lost their series to %d, %v with %v", len(displaced), entity, len(newcomers), displaced[0], keys[displaced[0]])
	}
	for _, r := range refused {
		if limit.Max == 0 || ending+len(stayed)+len(newcomers)+o.undecided < limit.Max {
			return fmt.Errorf("%+v has no series, %d of %d have", r.owner, len(stayed)+len(newcomers), limit.Max)
		}
		for _, s := range stayed {
			if endsCollection && !s.shared && keys[r].from > keys[s].to {
				return fmt.Errorf("%+v with %v has no series, %v with %v has", r.owner, keys[r], s, keys[s])
			}
		}
	}
	for _, p := range o.parties(entity) {
		if p.series != nil && slices.Contains(displaced, p.series) {
			if err := o.displace(p); err != nil {
				return err
			}
		}
	}
	for _, p := range newcomers {
		o.less(p)
		start := later(p.since, o.at)
		if entity == identity.ProgramEntity { // it may have the energy of a process that lost its series
			start = later(p.since, o.emittedAt)
		}
		o.startSeries(p, start)
	}
	return nil
}

// less is a difference that is never negative.
func (w within) less(o within) within {
	return within{w.from - min(w.from, o.to), w.to - min(w.to, o.from)}
}

// may reports whether a party may get a series now, and must whether it has to if there is room.
func (o *oracle) may(p *party, endsCollection bool) bool { return o.earned(p, endsCollection).to > 0 }

func (o *oracle) must(p *party, endsCollection bool) bool {
	return o.earned(p, endsCollection).from > 0
}

// earned is 0 if it is not enough.
func (o *oracle) earned(p *party, endsCollection bool) within {
	earned := p.earned
	if p.entity != identity.ProcessEntity {
		if o.findAccount(p) != nil { // the end of its last series was not acknowledged yet
			return within{}
		}
		earned.add(total(&p.gains.energy))
	} else if !p.ranked || !p.open || !endsCollection {
		return within{}
	}
	enough := uint64(o.cfg.Limits[p.entity].MinEnergy)
	if earned.from < enough {
		earned.from = 0
	}
	if earned.to < enough {
		earned.to = 0
	}
	return earned
}

// displace ends a party's series.
func (o *oracle) displace(p *party) error {
	a := p.series
	p.series, p.earned, p.ranked = nil, within{}, true
	p.gained.add(exactly(&a.recent))
	p.gained.add(total(&a.gains.recent))
	p.gained.add(total(&p.gains.recent))
	if a.Reported {
		p.lost = min(p.lost+1, 6)
		return o.keepEnded(a)
	}
	a.folded = true
	if p.entity == identity.ProcessEntity {
		o.mergeIntoProgram(p)
	} else {
		p.earned = exactly(&a.energy)
		p.earned.add(total(&a.gains.energy))
		p.earned.add(total(&p.gains.energy))
	}
	return nil
}

// mergeIntoProgram gives the program of a displaced process all that its account has, with the
// gains of the interval.
func (o *oracle) mergeIntoProgram(p *party) {
	i := slices.IndexFunc(o.claimants, func(c *oracleClaimant) bool { return &c.party == p })
	c := o.claimants[i]
	if c.program == nil {
		return
	}
	a := p.to
	a.merged = true
	for kind := range a.energy {
		g := gains{}
		g.energy[kind] = within{a.energy[kind], a.energy[kind]}
		g.recent[kind] = within{a.recent[kind], a.recent[kind]}
		g.idle[kind] = within{a.idle[kind], a.idle[kind]}
		g.recentIdle[kind] = within{a.recentIdle[kind], a.recentIdle[kind]}
		c.program.gains.add(&g)
	}
	c.program.gains.add(&a.gains)
	c.program.gains.add(&c.gains)
	c.program.cpu += a.cpu + c.cpu
	if series := c.program.series; series == nil && a.Start.Before(c.program.since) {
		c.program.since = a.Start
	} else if series != nil && !series.Reported && a.Start.Before(series.Start) {
		series.Start = a.Start
	}
}

// isOldEnough reports whether a process has the age that a series takes, or ran when the engine
// began.
func (o *oracle) isOldEnough(p *party) bool {
	return p.early || max(o.at.Sub(p.since), 0) >= o.cfg.Limits[identity.ProcessEntity].MinAge
}

// earnedEnough reports whether a process has earned its account. Within a microjoule the engine
// decides.
func (o *oracle) earnedEnough(c *oracleClaimant) bool {
	enough := max(uint64(o.cfg.Limits[identity.ProcessEntity].MinEnergy), 1)
	if !c.earned.holds(enough) || c.earned.from == enough {
		return c.earned.from >= enough
	}
	return o.shows(&c.party, true)
}

func (o *oracle) emitted() {
	o.collection = collection{}
	for i := range o.zones {
		o.zones[i].recent, o.zones[i].recentTime = 0, 0
	}
	for i := range o.kinds {
		k := &o.kinds[i]
		k.recentActive, k.recentIdle, k.recentTime = 0, 0, 0
	}
	o.emissions++
	o.emittedAt = o.at
	for entity := range entities {
		for _, p := range o.parties(entity) {
			if p.series == nil && entity == identity.ProcessEntity && !p.ranked {
				continue
			}
			p.to = p.series
			p.usage, p.gained, p.to = o.rank(p), within{}, nil
			if p.series != nil && !p.series.Reported {
				recent := exactly(&p.series.recent).from
				p.usage = within{max(p.usage.from, 4*recent), max(p.usage.to, 4*recent)}
			}
			if o.emissions%64 == 0 {
				p.lost = max(p.lost-1, 0)
			}
		}
	}
	for _, a := range o.accounts {
		a.recent, a.recentIdle = [attribution.MaxKinds]uint64{}, [attribution.MaxKinds]uint64{}
		a.gains.recent, a.gains.recentIdle = [attribution.MaxKinds]within{}, [attribution.MaxKinds]within{}
		a.EndSent = a.Ended
		a.Reported = a.Reported || !a.Ended
	}
}

func (o *oracle) acknowledged() {
	o.accounts = slices.DeleteFunc(o.accounts, func(a *oracleAccount) bool {
		if !a.Ended || !a.EndSent {
			a.acknowledged = a.Reported
			return false
		}
		if !a.isGroup() {
			for kind := range o.delivered {
				o.delivered[kind] += a.energy[kind]
				o.deliveredIdle[kind] += a.idle[kind]
			}
		}
		return true
	})
}

// compare compares a ledger with the oracle, and takes over the ledger's rounding of shares.
func (o *oracle) compare(l *ledger.Totals) error {
	if l.Elapsed != o.collection.elapsed || l.Busy != o.collection.busy || l.Total != o.collection.total {
		return fmt.Errorf("the collection is %v with %d of %d ns, not %+v", l.Elapsed, l.Busy, l.Total, o.collection)
	}
	if l.Dropped != o.dropped {
		return fmt.Errorf("%d accounts were dropped, not %d", l.Dropped, o.dropped)
	}
	if err := o.compareZones(l); err != nil {
		return err
	}
	o.listed = o.listed[:0]
	for a := range l.Accounts {
		o.listed = append(o.listed, a)
	}
	grown := make([]amounts, len(o.accounts))
	for i, a := range o.accounts {
		if err := o.compareAccount(a, &grown[i]); err != nil {
			return fmt.Errorf("%v: %w", a, err)
		}
	}
	if len(o.listed) != len(o.accounts) {
		return fmt.Errorf("there are %d accounts, not %d", len(o.listed), len(o.accounts))
	}
	if err := o.compareGroups(grown); err != nil {
		return err
	}
	return o.compareKinds(l)
}

func (o *oracle) compareZones(l *ledger.Totals) error {
	for i := range o.zones {
		z, got := &o.zones[i], ledger.Zone{}
		if i < len(l.Zones) {
			got = l.Zones[i]
		}
		if got.Present != z.known || !got.Start.Equal(z.start) || !got.At.Equal(z.at) || got.Energy != units.Energy(z.energy) ||
			got.Recent != units.Energy(z.recent) || got.RecentTime != z.recentTime || got.Unread != z.unread {
			return fmt.Errorf("zone %d is %+v, not %+v", i, got, *z)
		}
	}
	return nil
}

func (o *oracle) compareAccount(a *oracleAccount, grown *amounts) error {
	i := slices.IndexFunc(o.listed, func(got *ledger.Account) bool {
		return got.Entity == a.Entity && got.Other == a.Other && got.Owner == a.Owner
	})
	if i < 0 {
		return fmt.Errorf("is missing, ended %v", a.Ended)
	}
	got := o.listed[i]
	if got.Ended() != a.Ended || got.Reported() != a.Reported {
		return fmt.Errorf("ended %v, reported %v, not %v and %v", got.Ended(), got.Reported(), a.Ended, a.Reported)
	}
	if !got.Start.Equal(a.Start) {
		return fmt.Errorf("start is %v, not %v", got.Start, a.Start)
	}
	if uint64(got.CPU) != a.cpu {
		return fmt.Errorf("CPU time is %d, not %d ns", got.CPU, a.cpu)
	}
	for kind := range a.energy {
		for _, e := range []struct {
			name          string
			now           units.Energy
			before, grown *uint64
			gains         within
		}{
			{"", got.Amounts(kind).Energy, &a.energy[kind], &grown.energy[kind], a.gains.energy[kind]},
			{" of this collection", got.Amounts(kind).Recent, &a.recent[kind], &grown.recent[kind], a.gains.recent[kind]},
			{" idle", got.Amounts(kind).Idle, &a.idle[kind], &grown.idle[kind], a.gains.idle[kind]},
			{" idle of this collection", got.Amounts(kind).RecentIdle, &a.recentIdle[kind], &grown.recentIdle[kind], a.gains.recentIdle[kind]},
		} {
			now := uint64(e.now)
			if now < *e.before {
				return fmt.Errorf("kind %d goes down: %d after %d µJ%s", kind, now, *e.before, e.name)
			}
			if *e.grown = now - *e.before; !e.gains.holds(*e.grown) {
				return fmt.Errorf("kind %d gains %d, not %+v µJ%s", kind, *e.grown, e.gains, e.name)
			}
			*e.before = now
		}
	}
	return nil
}

// compareGroups compares pods with their containers, and the others with their processes.
func (o *oracle) compareGroups(grown []amounts) error {
	for i, group := range o.accounts {
		if !group.isGroup() || group.left {
			continue
		}
		for kind := range group.energy {
			var sum, idle uint64
			for j, a := range o.accounts {
				if group.has(a) {
					sum += grown[j].energy[kind]
					idle += grown[j].idle[kind]
				}
			}
			unlisted, unlistedIdle := group.unlisted.energy[kind], group.unlisted.idle[kind]
			if rest := grown[i].energy[kind] - sum; !unlisted.holds(rest) {
				return fmt.Errorf("%v gains %d µJ of kind %d and its parts %d, the rest is not %+v",
					group, grown[i].energy[kind], kind, sum, unlisted)
			}
			if rest := grown[i].idle[kind] - idle; !unlistedIdle.holds(rest) {
				return fmt.Errorf("%v gains %d idle µJ of kind %d and its parts %d, the rest is not %+v",
					group, grown[i].idle[kind], kind, idle, unlistedIdle)
			}
		}
	}
	for _, a := range o.accounts {
		a.gains, a.unlisted = gains{}, gains{}
	}
	return nil
}

// isGroup reports whether the account is that of what processes are part of.
func (a *oracleAccount) isGroup() bool { return a.Entity >= identity.ContainerEntity && !a.Other }

// has reports whether another account is one of those that add up to the group's.
func (a *oracleAccount) has(other *oracleAccount) bool {
	switch a.Entity {
	case identity.PodEntity:
		return other.Entity == identity.ContainerEntity && other.Owner.Pod.UID == a.Owner.Pod.UID
	case identity.ContainerEntity:
		return other.Entity == identity.ProcessEntity && other.Owner.Container == a.Owner.Container
	case identity.VMEntity:
		return other.Entity == identity.ProcessEntity && other.Owner.VM == a.Owner.VM
	case identity.SlurmStepEntity:
		return other.Entity == identity.ProcessEntity && other.Owner.Job == a.Owner.Job
	default:
		return other.Entity == identity.ProcessEntity && other.Owner.Unit == a.Owner.Unit
	}
}

func (o *oracle) compareKinds(l *ledger.Totals) error {
	for kind := range o.kinds {
		k, got := &o.kinds[kind], l.Kinds[kind]
		if got.Present != k.present || got.Ended() != k.ended || !got.Start.Equal(k.start) || uint64(got.Active) != k.active || uint64(got.Idle) != k.idle ||
			uint64(got.RecentActive) != k.recentActive || uint64(got.RecentIdle) != k.recentIdle || got.RecentTime != k.recentTime {
			return fmt.Errorf("kind %d is %+v, not %+v", kind, got, *k)
		}
		if !k.newUnattributed.holds(uint64(got.Unattributed) - k.unattributed) {
			return fmt.Errorf("kind %d: %d µJ are unattributed after %d, not %+v more", kind, got.Unattributed, k.unattributed, k.newUnattributed)
		}
		k.unattributed, k.newUnattributed = uint64(got.Unattributed), within{}
		if !k.newUnattributedIdle.holds(uint64(got.UnattributedIdle) - k.unattributedIdle) {
			return fmt.Errorf("kind %d: %d idle µJ are unattributed after %d, not %+v more",
				kind, got.UnattributedIdle, k.unattributedIdle, k.newUnattributedIdle)
		}
		k.unattributedIdle, k.newUnattributedIdle = uint64(got.UnattributedIdle), within{}

		deferred := uint64(0)
		for i := range o.zones {
			if z := &o.zones[i]; z.known && z.kind == kind && z.deferred != nil {
				deferred += z.deferred.energy
			}
		}
		if uint64(l.Kinds[kind].Deferred) != deferred {
			return fmt.Errorf("kind %d: %d µJ are deferred, not %d", kind, l.Kinds[kind].Deferred, deferred)
		}
		if all := uint64(got.Active + got.Idle + l.Kinds[kind].Deferred); all != o.used[kind] {
			return fmt.Errorf("kind %d: active, idle and deferred are %d µJ, the zones %d", kind, all, o.used[kind])
		}
		processes, idle := o.delivered[kind], o.deliveredIdle[kind]
		for _, a := range o.listed {
			if a.Entity == identity.ProcessEntity || a.Entity == identity.ProgramEntity {
				processes += uint64(a.Amounts(kind).Energy)
				idle += uint64(a.Amounts(kind).Idle)
			}
		}
		shared := uint64(got.Idle)
		if o.cfg.Rules.Idle == attribution.IdleNone {
			shared = 0
		}
		if idle+uint64(got.UnattributedIdle) != shared {
			return fmt.Errorf("kind %d: processes carry %d µJ of idle energy and %d are unattributed, of %d", kind, idle, got.UnattributedIdle, shared)
		}
		if processes+uint64(got.Unattributed) != uint64(got.Active) {
			return fmt.Errorf("kind %d: processes have %d µJ and %d are unattributed, active are %d", kind, processes, got.Unattributed, got.Active)
		}
	}
	return nil
}
