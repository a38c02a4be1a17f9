// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// accounts books what was measured: it turns a pass into the engine's interval, and opens and closes
// claimants as processes come, change and go. It lives as long as the meter does.
type accounts struct {
	engine     *attribution.Engine
	exact      bool // the source shows all CPU time: containers' counters are not needed
	identifier *workload.Identifier
	containers *containers
	bootTime   time.Time
	exclusion  *exclusion
	requests   *requests // nil where nobody asks for them
	keys       *keys     // nil where CPU time is the only one

	kinds     []power.Kind
	zones     []power.Zone // by the engine's numbers
	zoneIndex map[*power.Zone]int

	bySlot []booking
	slack  units.Slack // of bySlot

	interval attribution.Interval
	closing  []attribution.Claimant
	last     measurement
	begun    bool
	pass     uint64 // the last one that was booked
}

// booking is what is known of the process in a slot.
type booking struct {
	open     bool
	claimant attribution.Claimant
	cgroup   string      // of the container
	grouped  bool        // it is part of a container, pod or virtual machine
	excluded bool        // what it uses is static
	whole    bool        // and what all of its cgroup does
	pod      string      // the pod's UID
	member   *membership // nil outside of containers
}

// measurement is what one tick has read.
type measurement struct {
	reading  time.Time // with its monotonic part
	stamp    time.Time
	node     cpu.Node
	table    *cpu.Table
	readings []power.Reading

	endsCollection bool // the ledger is emitted next
}

// observe books one measurement. The first one is the baseline.
func (a *accounts) observe(m *measurement) {
	if !a.begun {
		a.last = *m
	}
	iv := &a.interval
	iv.At = m.stamp
	iv.Elapsed = m.reading.Sub(a.last.reading)
	iv.Busy = m.node.Busy - a.last.node.Busy
	iv.Total = m.node.Total - a.last.node.Total
	iv.EndsCollection = m.endsCollection
	iv.Claims = iv.Claims[:0]
	iv.Zones = iv.Zones[:0]
	for i := range m.readings {
		r := &m.readings[i]
		zone, replaced := a.zone(r)
		iv.Zones = append(iv.Zones, attribution.ZoneReading{
			Zone: zone, Kind: slices.Index(a.kinds, r.Zone.Kind), Total: r.Total, OK: r.Err == nil, Replaced: replaced,
		})
	}
	a.claim(m, m.node.Process-a.last.node.Process)
	if a.keys != nil {
		iv.Unweighed = a.keys.weigh(m.reading, iv.Claims)
	}
	if a.requests != nil && a.requests.due(m.reading) {
		for i := range a.bySlot {
			if b := &a.bySlot[i]; b.open {
				a.engine.Resize(b.claimant, a.requests.of(b.cgroup, m.reading))
			}
		}
	}
	if !a.begun { // what was used until now is nobody's
		iv.Claims, iv.Unowned = iv.Claims[:0], 0
		if a.keys != nil {
			a.keys.forgetWork()
		}
	}
	a.engine.Observe(iv)
	for _, c := range a.closing {
		a.engine.Close(c)
	}
	a.closing = a.closing[:0]
	// Where a burst ends and the kernel did not tell the ends, the rows of the ended are there for as long as SlackTime.
	if t := m.table; t.Pass() > 0 && a.slack.Ample(len(t.Processes)-t.Awaited(), len(a.bySlot), t.Now) {
		a.compact(t)
	}
	a.last = *m
	if !a.begun {
		a.begun = true
		a.containers.groups.Read() // so that the first interval has a counter to start from
	}
}

// compact gives back the memory that was needed for more processes than there are, to the system too: Go itself would take
// minutes, in which a collector hardly allocates.
func (a *accounts) compact(t *cpu.Table) {
	slots := t.Compact()
	bySlot := make([]booking, len(slots))
	for slot, before := range slots {
		if int(before) < len(a.bySlot) {
			bySlot[slot], a.bySlot[before] = a.bySlot[before], booking{}
		}
	}
	for i := range a.bySlot { // of processes that ended in a scan that was not booked
		if b := &a.bySlot[i]; b.open {
			a.engine.Close(b.claimant)
			a.containers.leave(b.member)
			a.identifier.Forget(int32(i))
		}
	}
	a.bySlot = bySlot
	a.identifier.Compact(slots)
	a.containers.byCgroup = units.Rebuilt(a.containers.byCgroup)
	a.interval.Claims, a.closing = nil, nil
	if a.keys != nil {
		a.keys.shares, a.keys.origins = nil, nil
	}
	a.engine.Compact()
	go debug.FreeOSMemory()
}

// finish books a last interval of which nobody is known to have run in it.
func (a *accounts) finish(m *measurement) {
	last := *m
	last.table = &cpu.Table{}
	a.observe(&last)
	// No more readings come: what a zone still has coming is settled.
	last.readings = nil
	a.observe(&last)
}

// zone returns the engine's number of a zone, and reports whether the zone takes the place of one whose series it goes
// on with. That is so until its first good reading.
func (a *accounts) zone(r *power.Reading) (i int, replaced bool) {
	if i, ok := a.zoneIndex[r.Zone]; ok {
		return i, false
	}
	i = slices.IndexFunc(a.zones, func(z power.Zone) bool { return emit.SameSeries(&z, r.Zone) })
	replaced = i >= 0
	switch {
	case !replaced:
		i = len(a.zones)
		a.zones = append(a.zones, *r.Zone)
	case r.Err != nil:
		return i, replaced
	}
	maps.DeleteFunc(a.zoneIndex, func(_ *power.Zone, of int) bool { return of == i })
	a.zoneIndex[r.Zone] = i
	return i, replaced
}

// maxClaim bounds what one claimant can have used in an interval, two years of CPU time, so that no sum of
// claims overflows: a kernel may print a negative number as one near 2^64.
const maxClaim units.CPUTime = 1 << 56

// claim fills the interval's claims from a pass. available is the CPU time of processes meanwhile.
func (a *accounts) claim(m *measurement, available units.CPUTime) {
	t := m.table
	for len(a.bySlot) < t.Slots() {
		a.bySlot = append(a.bySlot, booking{})
	}
	named, unseen := units.CPUTime(0), t.Unseen // unseen: of nothing that it is part of
	sleepers := a.keys != nil && a.keys.sleepers
	elapsed := m.reading.Sub(a.last.reading)
	// p is the process whose time it is, or in whose stead it is claimed, and cgroup that of its container.
	add := func(c attribution.Claimant, cpu units.CPUTime, isUnseen bool, p *cpu.Process, cgroup string) {
		if cpu = min(cpu, maxClaim); cpu == 0 && (isUnseen || !sleepers) {
			return
		}
		a.interval.Claims = append(a.interval.Claims, attribution.Claim{Claimant: c, Unseen: isUnseen, CPU: cpu})
		named += cpu
		if a.keys == nil {
			return
		}
		on := origin{cpu: -1, cgroup: cgroup, seen: !isUnseen}
		if p != nil {
			on.cpu, on.resident = p.LastCPU, p.Resident
			if !p.Zombie {
				on.held = min(elapsed, t.Now-p.Start)
			}
		}
		a.keys.claimed(on)
	}
	if a.keys != nil {
		a.keys.begin()
	}
	a.excludeLate(m.reading)
	for i := range t.Ended {
		e := &t.Ended[i]
		b := &a.bySlot[e.Slot]
		if !b.open {
			continue
		}
		last := a.containers.atMost(b.member, e.LastSlice)
		add(b.claimant, last, false, &e.Process, b.cgroup)
		a.containers.explain(b.member, b.claimant, last)
		a.end(b.claimant)
		a.containers.leave(b.member)
		a.identifier.Forget(e.Slot)
		*b = booking{}
	}
	// Who is new is only told by the pass that found them, which may have been in vain.
	everybody := !a.begun || t.Pass() != a.pass+1
	a.pass = t.Pass()
	rows(t, everybody, func(p *cpu.Process) { a.identifier.Identify(p, t.Now) })
	anybody := a.identifier.Resolve()
	// Containers' counters are held against all of their processes. Other than that, those that sleep are not
	// looked at, but where they have a part.
	rows(t, everybody || !a.exact || anybody || sleepers, func(p *cpu.Process) {
		b := &a.bySlot[p.Slot]
		a.place(m, p, b)
		add(b.claimant, p.Used, false, p, b.cgroup)
		a.containers.explain(b.member, b.claimant, p.Used+p.Unseen)
		switch {
		case b.grouped, b.whole && a.exact: // then it is what nobody saw in the same cgroup, else of children anywhere
			add(b.claimant, p.Unseen, true, p, b.cgroup)
		default:
			unseen += p.Unseen
		}
	})
	a.containers.unseen(func(c attribution.Claimant, cgroup string, cpu units.CPUTime, atFirst bool) {
		// A past that nobody watched is bounded by what the CPUs had. What was counted since is not bounded by the node:
		// its ticks miss what runs between two of them, and the counter does not.
		if atFirst {
			cpu = min(cpu, m.node.Total-a.last.node.Total)
		}
		add(c, cpu, true, nil, cgroup)
	})
	for _, in := range t.UnseenIn {
		if c, cgroup, ok := a.stand(in.Path); ok {
			add(c, in.Used, true, nil, cgroup)
			unseen -= min(unseen, in.Used)
		}
	}
	if !a.exact {
		// What a container's counter showed may be in the child times of a process outside of it, too.
		unseen = min(unseen, units.Advance(named, available))
	}
	add(attribution.Nobody, unseen, true, nil, "")

	rest := units.Advance(named, available)
	if !t.Hidden {
		rest = min(rest, t.Untraced)
	}
	a.interval.Unowned = rest
}

// stand opens a claimant, for this interval, that stands for processes of a cgroup which no pass saw. It is not
// ok where the path names no container or pod, and nobody who is excluded: which virtual machine a cgroup is of only its
// processes tell.
func (a *accounts) stand(path string) (c attribution.Claimant, cgroup string, ok bool) {
	in := a.identifier.PlaceUnseen(path)
	owner := attribution.Owner{Container: in.Container, Pod: in.Pod}
	excluded := a.exclusion.matches(&owner, a.last.reading, in.Cgroup, path)
	if !a.begun || !excluded && in.Container.ID == "" && in.Pod.UID == "" {
		return attribution.Nobody, "", false
	}
	c = a.openClaimant(owner, a.last.stamp, excluded)
	a.end(c)
	return c, in.Cgroup, true
}

// outside tells why containers' cgroups cannot be looked at, where anything is read there or told by their paths.
func (a *accounts) outside() error {
	if a.exact && a.requests == nil && (a.keys == nil || !a.keys.readCgroups()) && !a.exclusion.byCgroup() {
		return nil
	}
	return a.identifier.Outside(a.last.reading)
}

func (a *accounts) openClaimant(owner attribution.Owner, since time.Time, excluded bool) attribution.Claimant {
	c := a.engine.Open(owner, since)
	if excluded {
		a.engine.Exclude(c)
	}
	return c
}

// excludeLate excludes those of whose pods the namespaces have become known.
func (a *accounts) excludeLate(now time.Time) {
	if !a.exclusion.learned(now) {
		return
	}
	for i := range a.bySlot {
		if b := &a.bySlot[i]; b.open && !b.excluded && a.exclusion.matchesPod(b.pod, now) {
			a.engine.Exclude(b.claimant)
			b.excluded = true
		}
	}
}

// end ends a claimant with this interval, in which it may claim its last slice.
func (a *accounts) end(c attribution.Claimant) {
	a.engine.Stop(c)
	a.closing = append(a.closing, c)
}

// rows calls yield for all processes of a pass, or only for those that may have become somebody, or somebody else, or
// have something to claim.
func rows(t *cpu.Table, all bool, yield func(*cpu.Process)) {
	if all {
		for i := range t.Processes {
			yield(&t.Processes[i])
		}
		return
	}
	for _, i := range t.Active {
		yield(&t.Processes[i])
	}
}

// place opens a claimant for a process that has none, and another for one that has become someone else.
func (a *accounts) place(m *measurement, p *cpu.Process, b *booking) {
	identity, changed := a.identifier.Identity(p.Slot)
	if moved := a.identifier.Moved(p.Slot); !changed && !moved {
		return
	}
	owner := a.owner(p, identity)
	excluded := a.exclusion.matches(&owner, m.reading, identity.Cgroup, identity.ProcessCgroup)
	b.whole = a.exclusion.matchesCgroup(identity.ProcessCgroup)
	if !changed && excluded == b.excluded {
		return
	}
	if b.open {
		a.end(b.claimant)
	}
	b.open, b.cgroup, b.excluded, b.pod = true, identity.Cgroup, excluded, identity.Pod.UID
	b.claimant = a.openClaimant(owner, a.since(m, p), excluded)
	if a.requests != nil {
		a.engine.Resize(b.claimant, a.requests.of(b.cgroup, m.reading))
	}
	b.grouped = identity.Container.ID != "" || identity.Pod.UID != "" || identity.VM.ID != ""
	if !a.exact {
		from := b.member
		b.member = a.containers.enter(identity.Cgroup, a.begun && m.table.BornSinceLastPass(p))
		a.containers.leave(from)
		a.containers.moved(from, b.member, p.Used+p.Unseen)
	}
}

// since is when a series of a process that is new to the engine was at 0: when the process was created, or
// at the end of the interval before if that is later.
func (a *accounts) since(m *measurement, p *cpu.Process) time.Time {
	created := m.stamp.Add(p.Start - m.table.Now)
	if created.Before(a.last.stamp) {
		return a.last.stamp
	}
	if created.After(m.stamp) {
		return m.stamp
	}
	return created
}

func (a *accounts) owner(p *cpu.Process, i *workload.Identity) attribution.Owner {
	return attribution.Owner{
		Process: units.Process{
			PID:         p.PID,
			Start:       p.Start,
			Created:     a.bootTime.Add(p.Start).UTC().Format("2006-01-02T15:04:05.00Z07:00"),
			Executable:  i.Executable,
			Path:        i.Path,
			CommandLine: i.CommandLine,
		},
		Container: i.Container,
		Pod:       i.Pod,
		VM:        i.VM,
	}
}
