package attribution_test

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// oracle is the engine's arithmetic once more, from the design and as plainly as can be: every share by itself,
// every sum anew, nothing merged, no order but that of who is first. A share is known to the microjoule, as the
// whole number below its exact value and the one above. What must be exact is exact.
type oracle struct {
	cfg        attribution.Config
	split      attribution.Split // nil: by utilization, as told here
	keys       [attribution.Zones]int
	at         time.Time // end of the last interval
	collection attribution.Interval
	zones      []oracleZone
	kinds      [attribution.Zones]oracleKind
	claimants  []*oracleClaimant // who may still earn
	accounts   []*oracleAccount
	others     *oracleAccount
	delivered  [attribution.Zones]uint64 // to processes whose accounts are gone
	// deliveredIdle is the same of idle energy, whoever carries it.
	deliveredIdle [attribution.Zones]uint64

	touched []*oracleClaimant // in this interval, the first first
	shown   []*attribution.Account
}

// within is a number that is known to lie between two others.
type within struct{ from, to uint64 }

func (w *within) add(o within) { w.from, w.to = w.from+o.from, w.to+o.to }

func (w within) holds(n uint64) bool { return w.from <= n && n <= w.to }

// part is amount*share/whole, which need not be a whole number.
func part(amount, share, whole uint64) within {
	hi, lo := bits.Mul64(amount, share)
	quotient, rest := bits.Div64(hi, lo, whole)
	if rest == 0 {
		return within{quotient, quotient}
	}
	return within{quotient, quotient + 1}
}

// divided is so many parts of so many of a number that is known to lie between two others.
func (w within) divided(parts, whole int) within {
	return within{part(w.from, uint64(parts), uint64(whole)).from, part(w.to, uint64(parts), uint64(whole)).to}
}

// gains are energies by kind that an interval brings, active and idle, and what of them lies in the current collection.
type gains struct{ energy, recent, idle, recentIdle [attribution.Zones]within }

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
	kind       int
	last       uint64
	start, at  time.Time
	energy     uint64
	recent     uint64
	recentTime time.Duration
	unread     time.Duration
	waiting    *waiting // nil: nothing
	absent     *waiting // the CPU time of its absence, nobody's by name
}

// waiting is the energy of some intervals and the CPU time by which it is to be shared.
type waiting struct {
	energy, busy, total, unowned uint64
	elapsed                      time.Duration
	claims                       []oracleClaim
	unweighed                    [oracleKeys]bool // of it, something is not known
}

// oracleClaim is a claim of one claimant, nil for nobody.
type oracleClaim struct {
	by     *oracleClaimant
	unseen bool
	has    [oracleKeys]uint64
}

// What claims have.
const (
	cpuTime = iota
	work
	memory
	oracleKeys
)

type oracleKind struct {
	present                  bool
	start                    time.Time
	active, idle             uint64
	recentActive, recentIdle uint64
	recentTime               time.Duration
	unattributed             uint64 // as it was compared last
	unattributedIdle         uint64
	nobodys, nobodysIdle     within // since
}

type oracleClaimant struct {
	id       attribution.Claimant
	owner    attribution.Owner
	since    time.Time
	open     bool
	groups   []*oracleAccount
	process  *oracleAccount // nil: in the others'
	earned   within         // before it had one
	credit   gains
	cpu      uint64
	touching bool
}

type oracleAccount struct {
	attribution.Account
	amounts // as they were compared last
	cpu     uint64
	size    uint64
	gains   gains // since
	// unlisted is the part of a group's gains that is in the others' account.
	unlisted gains
}

// amounts are the energies of an account by kind.
type amounts struct{ energy, recent, idle, recentIdle [attribution.Zones]uint64 }

// String names what the account is of.
func (a *oracleAccount) String() string {
	o := &a.Owner
	switch {
	case a.Other:
		return "the others"
	case a.Entity == attribution.Process:
		return fmt.Sprintf("process %d %s, created %v, in %q", o.Process.PID, o.Process.Path, o.Process.Start, o.Container.ID+o.VM.ID)
	case a.Entity == attribution.Container:
		return "container " + o.Container.ID
	case a.Entity == attribution.Pod:
		return "pod " + o.Pod.UID
	default:
		return "virtual machine " + o.VM.ID
	}
}

func newOracle(cfg attribution.Config, baseline time.Time) *oracle {
	o := &oracle{cfg: cfg, at: baseline}
	o.others = &oracleAccount{Account: attribution.Account{Entity: attribution.Process, Other: true, Start: baseline}}
	o.accounts = []*oracleAccount{o.others}
	return o
}

// describe is what an account of an owner's entity says; ok is false where the owner has no such entity.
func describe(entity attribution.Entity, o attribution.Owner) (described attribution.Owner, ok bool) {
	switch entity {
	case attribution.Process:
		return o, o.Process.PID != 0
	case attribution.Container:
		return attribution.Owner{Container: o.Container, Pod: o.Pod}, o.Container.ID != ""
	case attribution.Pod:
		return attribution.Owner{Pod: o.Pod}, o.Pod.UID != ""
	default:
		return attribution.Owner{VM: o.VM}, o.VM.ID != ""
	}
}

func (o *oracle) account(entity attribution.Entity, owner attribution.Owner, start time.Time) *oracleAccount {
	described, ok := describe(entity, owner)
	if !ok {
		return nil
	}
	for _, a := range o.accounts {
		if a.Entity == entity && !a.Other && a.Owner == described {
			a.Ended, a.Again = false, false
			return a
		}
	}
	a := &oracleAccount{Account: attribution.Account{Entity: entity, Owner: described, Start: start}}
	o.accounts = append(o.accounts, a)
	return a
}

// place says whether one more process may have an account.
func (o *oracle) place() bool {
	n := 0
	for _, a := range o.accounts {
		if a.Entity == attribution.Process && !a.Other {
			n++
		}
	}
	return o.cfg.MaxProcesses == 0 || n < o.cfg.MaxProcesses
}

func (o *oracle) find(id attribution.Claimant) *oracleClaimant {
	for _, c := range o.claimants {
		if c.id == id {
			return c
		}
	}
	return nil
}

// open must follow the engine's, whose id it is told.
func (o *oracle) open(id attribution.Claimant, owner attribution.Owner, since time.Time) error {
	if c := o.find(id); c != nil {
		return fmt.Errorf("claimant %d, %+v, is still to be credited and became %+v", id, c.owner, owner)
	}
	c := &oracleClaimant{id: id, owner: owner, since: since, open: true}
	for _, entity := range []attribution.Entity{attribution.Container, attribution.Pod, attribution.VM} {
		if a := o.account(entity, owner, since); a != nil {
			c.groups = append(c.groups, a)
		}
	}
	if o.cfg.MinEnergy == 0 && o.place() {
		c.process = o.account(attribution.Process, owner, since)
	}
	o.claimants = append(o.claimants, c)
	return nil
}

func (o *oracle) resize(id attribution.Claimant, size uint64) {
	if holder := o.find(id).holder(); holder != nil {
		holder.size = size
	}
}

// holder is the container, or what counts as one, that a claimant has its part of idle energy from.
func (c *oracleClaimant) holder() *oracleAccount {
	for _, entity := range []attribution.Entity{attribution.Container, attribution.VM, attribution.Pod} {
		for _, group := range c.groups {
			if group.Entity == entity {
				return group
			}
		}
	}
	return nil
}

func (o *oracle) close(id attribution.Claimant) {
	o.find(id).open = false
	o.end()
}

// end ends the accounts that nobody can add to any more.
func (o *oracle) end() {
	o.claimants = slices.DeleteFunc(o.claimants, func(c *oracleClaimant) bool { return !c.open && !o.owed(c) })
	for _, a := range o.accounts {
		if !a.Other && !slices.ContainsFunc(o.claimants, func(c *oracleClaimant) bool {
			return c.process == a || slices.Contains(c.groups, a)
		}) {
			a.Ended = true
		}
	}
}

// owed says whether a claimant ran in intervals whose energy is not known yet.
func (o *oracle) owed(c *oracleClaimant) bool {
	return slices.ContainsFunc(o.zones, func(z oracleZone) bool {
		return z.waiting != nil && slices.ContainsFunc(z.waiting.claims, func(claim oracleClaim) bool { return claim.by == c })
	})
}

func (o *oracle) touch(c *oracleClaimant) {
	if !c.touching {
		c.touching = true
		o.touched = append(o.touched, c)
	}
}

func (o *oracle) observe(iv *attribution.Interval, shown *attribution.Ledger) {
	o.collection.Elapsed += iv.Elapsed
	o.collection.Busy += iv.Busy
	o.collection.Total += iv.Total
	this := &waiting{busy: uint64(iv.Busy), total: uint64(iv.Total), unowned: uint64(iv.Unowned), elapsed: iv.Elapsed}
	this.unweighed[work], this.unweighed[memory] = iv.Unweighed[0], iv.Unweighed[1]
	for _, claim := range iv.Claims {
		this.claims = append(this.claims, oracleClaim{
			o.find(claim.Claimant), claim.Unseen, [oracleKeys]uint64{uint64(claim.CPU), claim.Weights[0], claim.Weights[1]},
		})
	}
	for _, claim := range this.claims {
		if !claim.unseen {
			o.touch(claim.by)
			claim.by.cpu += claim.has[cpuTime]
			continue
		}
		o.others.cpu += claim.has[cpuTime]
		for _, group := range groupsOf(claim.by) {
			group.cpu += claim.has[cpuTime]
		}
	}
	o.readZones(iv, this)
	o.settle(shown)
	o.end()
	o.at = iv.At
}

func (o *oracle) readZones(iv *attribution.Interval, this *waiting) {
	var known [attribution.Zones]int // by kind, how many zones were read and can be split
	var energies [attribution.Zones]uint64
	listed := map[int]bool{}
	for _, r := range iv.Zones {
		listed[r.Zone] = true
		for len(o.zones) <= r.Zone {
			o.zones = append(o.zones, oracleZone{})
		}
		z := &o.zones[r.Zone]
		if !z.known {
			o.begin(z, r, iv.At)
			continue
		}
		energy := z.read(r, iv)
		if z.kind == attribution.NotAttributed {
			continue
		}
		if r.OK && this.total > 0 && z.waiting == nil && z.absent == nil {
			known[z.kind]++
			energies[z.kind] += energy
			continue
		}
		if z.waiting == nil {
			z.waiting = &waiting{}
			if z.absent != nil {
				z.waiting, z.absent = z.absent, nil
			}
		}
		z.waiting.add(this)
		z.waiting.energy += energy
		if z.waiting.elapsed > 5*time.Minute {
			z.waiting.forget()
		}
		if r.OK && z.waiting.total > 0 {
			o.attribute(z.kind, 1, z.waiting.energy, z.waiting)
			z.waiting = nil
		}
	}
	for i := range o.zones {
		if z := &o.zones[i]; z.known && !listed[i] {
			o.miss(z, this)
		}
	}
	for kind, zones := range known {
		if zones > 0 {
			o.attribute(kind, zones, energies[kind], this)
		}
	}
}

// begin is a zone's first good reading.
func (o *oracle) begin(z *oracleZone, r attribution.ZoneReading, at time.Time) {
	if !r.OK {
		return
	}
	*z = oracleZone{known: true, kind: r.Kind, last: uint64(r.Total), start: at, at: at}
	if r.Kind != attribution.NotAttributed && !o.kinds[r.Kind].present {
		o.kinds[r.Kind].present, o.kinds[r.Kind].start = true, at
	}
}

func (z *oracleZone) read(r attribution.ZoneReading, iv *attribution.Interval) uint64 {
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

// miss is an interval in which a zone is not among the readings: what was read of it is shared, and who runs
// meanwhile is not asked for the energy that it has when it returns.
func (o *oracle) miss(z *oracleZone, this *waiting) {
	z.unread += this.elapsed
	if z.kind == attribution.NotAttributed {
		return
	}
	if z.absent == nil {
		z.absent = &waiting{}
	}
	z.absent.addUnnamed(this)
	w := z.waiting
	z.waiting = nil
	switch {
	case w == nil:
	case w.energy == 0:
		z.absent.addUnnamed(w)
	case w.total == 0:
		o.kinds[z.kind].active += w.energy
		o.kinds[z.kind].nobodys.add(within{w.energy, w.energy})
	default:
		o.attribute(z.kind, 1, w.energy, w)
	}
}

func (w *waiting) add(o *waiting) {
	w.busy += o.busy
	w.total += o.total
	w.unowned += o.unowned
	w.elapsed += o.elapsed
	for key := range w.unweighed {
		w.unweighed[key] = w.unweighed[key] || o.unweighed[key]
	}
	for _, claim := range o.claims {
		w.claim(claim)
	}
}

func (w *waiting) addUnnamed(o *waiting) {
	unnamed := *o
	unnamed.claims = nil
	for _, claim := range o.claims {
		unnamed.unowned += claim.has[cpuTime]
	}
	w.add(&unnamed)
}

func (w *waiting) claim(claim oracleClaim) {
	if claim.has == [oracleKeys]uint64{} {
		return
	}
	for i := range w.claims {
		if same := &w.claims[i]; same.by == claim.by && same.unseen == claim.unseen {
			for key := range same.has {
				same.has[key] += claim.has[key]
			}
			return
		}
	}
	w.claims = append(w.claims, claim)
}

func (w *waiting) sum(key int) (sum uint64) {
	for _, claim := range w.claims {
		sum += claim.has[key]
	}
	return sum
}

// forget makes the claims of those who ended nobody's.
func (w *waiting) forget() {
	before := w.claims
	w.claims = nil
	for _, claim := range before {
		if claim.by != nil && !claim.by.open {
			claim.by, claim.unseen = nil, true
		}
		w.claim(claim)
	}
}

// attribute shares the energy of so many zones of a kind by the CPU time of the same intervals.
func (o *oracle) attribute(kind, zones int, energy uint64, w *waiting) {
	active := part(energy, min(w.busy, w.total), w.total).from
	if o.split != nil {
		of := 0
		for _, z := range o.zones {
			if z.known && z.kind == kind {
				of++
			}
		}
		active = min(energy, uint64(o.split(attribution.Portion{
			Kind: kind, Energy: units.Energy(energy), Busy: units.CPUTime(w.busy), Total: units.CPUTime(w.total),
			Elapsed: w.elapsed, Zones: zones, Of: of,
		})))
	}
	k := &o.kinds[kind]
	k.active += active
	k.idle += energy - active
	k.recentActive += o.recentPart(active, w.elapsed)
	k.recentIdle += o.recentPart(energy-active, w.elapsed)
	k.recentTime = min(k.recentTime+w.elapsed, o.collection.Elapsed)
	key, unowned := o.keys[kind], w.unowned
	all := w.sum(key)
	if ran := w.sum(cpuTime); key != cpuTime && (w.unweighed[key] || all == 0 || ran == 0 && unowned > 0) {
		key, all = cpuTime, ran
	} else if key != cpuTime && ran > 0 {
		unowned = part(unowned, all, ran).from
	}
	whole := all + unowned
	o.shareIdle(kind, energy-active, w, key, unowned, whole)
	if whole == 0 {
		k.nobodys.add(within{active, active})
		return
	}
	k.nobodys.add(part(active, unowned, whole))
	for _, claim := range w.claims {
		var g gains
		share := part(active, claim.has[key], whole)
		g.energy[kind] = share
		g.recent[kind] = within{o.recentPart(share.from, w.elapsed), o.recentPart(share.to, w.elapsed)}
		if !claim.unseen {
			o.touch(claim.by)
			claim.by.credit.add(&g)
			continue
		}
		o.others.gains.add(&g)
		for _, group := range groupsOf(claim.by) {
			group.gains.add(&g)
			group.unlisted.add(&g)
		}
	}
}

// shareIdle gives those their part of idle energy who carry it. By use they are those who have a part of the active
// energy.
func (o *oracle) shareIdle(kind int, idle uint64, w *waiting, key int, unowned, whole uint64) {
	k := &o.kinds[kind]
	switch o.cfg.Rules.Idle {
	case attribution.IdleNobody:
		return
	case attribution.IdleUsed:
		if whole == 0 {
			k.nobodysIdle.add(within{idle, idle})
			return
		}
		k.nobodysIdle.add(part(idle, unowned, whole))
		for _, claim := range w.claims {
			process := o.others
			if !claim.unseen && claim.by.process != nil {
				process = claim.by.process
			}
			g := o.idleGains(kind, part(idle, claim.has[key], whole), w.elapsed)
			process.gains.add(&g)
			for _, group := range groupsOf(claim.by) {
				group.gains.add(&g)
				if process == o.others {
					group.unlisted.add(&g)
				}
			}
		}
		return
	}
	carriers, sum := map[*oracleAccount][]*oracleClaimant{}, uint64(0) // by whom they have their part from
	for _, c := range o.claimants {
		if c.open && (o.cfg.Rules.Idle != attribution.IdleEqual || c.owner.Process.PID != 0) {
			carriers[c.holder()] = append(carriers[c.holder()], c)
		}
	}
	size := func(holder *oracleAccount) uint64 {
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
		k.nobodysIdle.add(within{idle, idle})
		return
	}
	for holder, all := range carriers {
		share := part(idle, size(holder), sum)
		unnamed := 0
		for _, c := range all {
			if c.process == nil {
				unnamed++
				continue
			}
			g := o.idleGains(kind, share.divided(1, len(all)), w.elapsed)
			c.process.gains.add(&g)
		}
		g, rest := o.idleGains(kind, share, w.elapsed), o.idleGains(kind, share.divided(unnamed, len(all)), w.elapsed)
		o.others.gains.add(&rest)
		for _, group := range groupsOf(all[0]) {
			group.gains.add(&g)
			group.unlisted.add(&rest)
		}
	}
}

// idleGains are an idle energy that was used over elapsed.
func (o *oracle) idleGains(kind int, idle within, elapsed time.Duration) (g gains) {
	g.idle[kind] = idle
	g.recentIdle[kind] = within{o.recentPart(idle.from, elapsed), o.recentPart(idle.to, elapsed)}
	return g
}

// recentPart is what of an energy that was used evenly over elapsed was used in the current collection.
func (o *oracle) recentPart(energy uint64, elapsed time.Duration) uint64 {
	if elapsed <= o.collection.Elapsed {
		return energy
	}
	return part(energy, uint64(o.collection.Elapsed), uint64(elapsed)).from
}

func groupsOf(c *oracleClaimant) []*oracleAccount {
	if c == nil {
		return nil
	}
	return c.groups
}

// settle books what the interval brought those who ran in it, who come first, and those who wait.
func (o *oracle) settle(shown *attribution.Ledger) {
	for _, c := range o.touched {
		var sum within
		for _, energy := range c.credit.energy {
			sum.add(energy)
		}
		earned := c.earned
		earned.add(sum)
		if c.process == nil && c.owner.Process.PID != 0 && o.place() && o.earnedEnough(c, earned, shown) {
			start := c.since
			if start.Before(o.at) {
				start = o.at
			}
			c.process = o.account(attribution.Process, c.owner, start)
		}
		process := c.process
		if process == nil {
			c.earned = earned
			process = o.others
		}
		process.gains.add(&c.credit)
		process.cpu += c.cpu
		for _, group := range c.groups {
			group.gains.add(&c.credit)
			group.cpu += c.cpu
			if process == o.others {
				group.unlisted.add(&c.credit)
			}
		}
		c.credit, c.cpu, c.touching = gains{}, 0, false
	}
	o.touched = o.touched[:0]
}

// earnedEnough says whether a process has earned its account. Where a microjoule decides, the engine does.
func (o *oracle) earnedEnough(c *oracleClaimant, earned within, shown *attribution.Ledger) bool {
	enough := uint64(o.cfg.MinEnergy)
	if !earned.holds(enough) || earned.from == enough {
		return earned.from >= enough
	}
	for a := range shown.Accounts {
		if a.Entity == attribution.Process && a.Owner == c.owner {
			return !a.Ended
		}
	}
	return false
}

func (o *oracle) handedOut() {
	o.collection = attribution.Interval{}
	for i := range o.zones {
		o.zones[i].recent, o.zones[i].recentTime = 0, 0
	}
	for i := range o.kinds {
		k := &o.kinds[i]
		k.recentActive, k.recentIdle, k.recentTime = 0, 0, 0
	}
	for _, a := range o.accounts {
		a.recent, a.recentIdle = [attribution.Zones]uint64{}, [attribution.Zones]uint64{}
		a.Again = a.Ended
	}
}

func (o *oracle) accepted() {
	o.accounts = slices.DeleteFunc(o.accounts, func(a *oracleAccount) bool {
		if !a.Ended || !a.Again {
			return false
		}
		if a.Entity == attribution.Process {
			for kind := range o.delivered {
				o.delivered[kind] += a.energy[kind]
				o.deliveredIdle[kind] += a.idle[kind]
			}
		}
		return true
	})
}

// compare holds a ledger against what must be in it, and takes over what it says of the shares.
func (o *oracle) compare(l *attribution.Ledger) error {
	if l.Elapsed != o.collection.Elapsed || l.Busy != o.collection.Busy || l.Total != o.collection.Total {
		return fmt.Errorf("the collection is %v with %d of %d ns, not %+v", l.Elapsed, l.Busy, l.Total, o.collection)
	}
	if l.Dropped != 0 {
		return fmt.Errorf("%d accounts were dropped", l.Dropped)
	}
	if err := o.compareZones(l); err != nil {
		return err
	}
	o.shown = o.shown[:0]
	for a := range l.Accounts {
		o.shown = append(o.shown, a)
	}
	grown := make([]amounts, len(o.accounts))
	for i, a := range o.accounts {
		if err := o.compareAccount(a, &grown[i]); err != nil {
			return fmt.Errorf("%v: %w", a, err)
		}
	}
	if len(o.shown) != len(o.accounts) {
		return fmt.Errorf("there are %d accounts, not %d", len(o.shown), len(o.accounts))
	}
	if err := o.compareGroups(grown); err != nil {
		return err
	}
	return o.compareKinds(l)
}

func (o *oracle) compareZones(l *attribution.Ledger) error {
	for i := range o.zones {
		z, got := &o.zones[i], attribution.Zone{}
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
	i := slices.IndexFunc(o.shown, func(got *attribution.Account) bool {
		return got.Entity == a.Entity && got.Other == a.Other && got.Owner == a.Owner
	})
	if i < 0 {
		return fmt.Errorf("is missing, ended %v", a.Ended)
	}
	got := o.shown[i]
	if got.Ended != a.Ended || got.Again != a.Again {
		return fmt.Errorf("ended %v, again %v, not %v and %v", got.Ended, got.Again, a.Ended, a.Again)
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
			{"", got.Energy[kind], &a.energy[kind], &grown.energy[kind], a.gains.energy[kind]},
			{" of this collection", got.Recent[kind], &a.recent[kind], &grown.recent[kind], a.gains.recent[kind]},
			{" idle", got.Idle[kind], &a.idle[kind], &grown.idle[kind], a.gains.idle[kind]},
			{" idle of this collection", got.RecentIdle[kind], &a.recentIdle[kind], &grown.recentIdle[kind], a.gains.recentIdle[kind]},
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

// compareGroups holds containers and virtual machines against their processes, and pods against their containers.
func (o *oracle) compareGroups(grown []amounts) error {
	for i, group := range o.accounts {
		if group.Entity == attribution.Process {
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
			if group.Entity == attribution.Pod {
				unlisted, unlistedIdle = within{}, within{} // every process of a pod is in one of its containers
			}
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

// has says whether another account is one of those that add up to the group's.
func (a *oracleAccount) has(other *oracleAccount) bool {
	switch a.Entity {
	case attribution.Pod:
		return other.Entity == attribution.Container && other.Owner.Container.PodUID == a.Owner.Pod.UID
	case attribution.Container:
		return other.Entity == attribution.Process && other.Owner.Container == a.Owner.Container
	default:
		return other.Entity == attribution.Process && other.Owner.VM == a.Owner.VM
	}
}

func (o *oracle) compareKinds(l *attribution.Ledger) error {
	for kind := range o.kinds {
		k, got := &o.kinds[kind], l.Kinds[kind]
		if got.Present != k.present || !got.Start.Equal(k.start) || uint64(got.Active) != k.active || uint64(got.Idle) != k.idle ||
			uint64(got.RecentActive) != k.recentActive || uint64(got.RecentIdle) != k.recentIdle || got.RecentTime != k.recentTime {
			return fmt.Errorf("kind %d is %+v, not %+v", kind, got, *k)
		}
		if !k.nobodys.holds(uint64(got.Unattributed) - k.unattributed) {
			return fmt.Errorf("kind %d: %d µJ are unattributed after %d, not %+v more", kind, got.Unattributed, k.unattributed, k.nobodys)
		}
		k.unattributed, k.nobodys = uint64(got.Unattributed), within{}
		if !k.nobodysIdle.holds(uint64(got.UnattributedIdle) - k.unattributedIdle) {
			return fmt.Errorf("kind %d: %d idle µJ are unattributed after %d, not %+v more",
				kind, got.UnattributedIdle, k.unattributedIdle, k.nobodysIdle)
		}
		k.unattributedIdle, k.nobodysIdle = uint64(got.UnattributedIdle), within{}

		zones, waits := uint64(0), uint64(0)
		for i := range o.zones {
			if z := &o.zones[i]; z.known && z.kind == kind {
				zones += z.energy
				if z.waiting != nil {
					waits += z.waiting.energy
				}
			}
		}
		if uint64(l.Waiting(kind)) != waits {
			return fmt.Errorf("kind %d: %d µJ wait, not %d", kind, l.Waiting(kind), waits)
		}
		if all := uint64(got.Active + got.Idle + l.Waiting(kind)); all != zones {
			return fmt.Errorf("kind %d: active, idle and what waits are %d µJ, the zones %d", kind, all, zones)
		}
		processes, idle := o.delivered[kind], o.deliveredIdle[kind]
		for _, a := range o.shown {
			if a.Entity == attribution.Process {
				processes += uint64(a.Energy[kind])
				idle += uint64(a.Idle[kind])
			}
		}
		shared := uint64(got.Idle)
		if o.cfg.Rules.Idle == attribution.IdleNobody {
			shared = 0
		}
		if idle+uint64(got.UnattributedIdle) != shared {
			return fmt.Errorf("kind %d: processes carry %d µJ of idle energy and nobody %d, of %d", kind, idle, got.UnattributedIdle, shared)
		}
		if processes+uint64(got.Unattributed) != uint64(got.Active) {
			return fmt.Errorf("kind %d: processes have %d µJ and nobody %d, active are %d", kind, processes, got.Unattributed, got.Active)
		}
	}
	return nil
}
