// SPDX-License-Identifier: Apache-2.0

package claims

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
)

// Options are what a Builder joins, and where it finds what it reads itself.
type Options struct {
	Engine *attribution.Engine
	// Exact says that scans show all CPU time: the counters of containers' cgroups are not needed.
	Exact      bool
	Identifier *workload.Identifier
	Groups     *cpu.Groups // the counters
	// BootTime is when the machine was started.
	BootTime  time.Time
	Exclusion *workload.Exclusion // nil: nobody is excluded
	Keys      *Keys               // nil: CPU time is the only one
	// Kinds are the engine's kinds of zones. Zones of other kinds are reported, and not attributed.
	Kinds []power.Kind
	// Requests says that the engine is to know what CPU time containers request, as read from the cgroups below Root.
	// QuadraticWeights is how the container runtime makes a weight of a request: runc since 1.3.2, crun since 1.23.
	Requests, QuadraticWeights bool
	Root                       string
	// KeepMemory says that memory which was needed for more processes is kept.
	KeepMemory bool
}

// A Builder turns measurements into the engine's intervals, and opens and closes claimants as processes come, change
// and go. It lasts as long as what it measures with stays the same. It must not be used concurrently.
type Builder struct {
	Options

	containers *containers
	requests   *requests // nil where nobody asks for them

	zones     []power.Zone // by the engine's numbers
	zoneIndex map[*power.Zone]int

	bySlot []booking
	slack  units.Slack // of bySlot

	interval attribution.Interval
	closing  []attribution.Claimant
	last     Measurement
	begun    bool
	pass     uint64 // the last one that was booked
}

// NewBuilder returns a builder. It reads nothing yet.
func NewBuilder(options Options) *Builder {
	b := &Builder{Options: options, containers: newContainers(options.Groups), zoneIndex: map[*power.Zone]int{}}
	if options.Requests {
		b.requests = newRequests(options.Root, options.QuadraticWeights)
	}
	return b
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

// Measurement is what one tick has read.
type Measurement struct {
	// ReadAt is when, with its monotonic part. Elapsed time is between two of these.
	ReadAt time.Time
	// Stamp is the same moment as data points tell it, which never steps back.
	Stamp    time.Time
	Node     cpu.Node
	Table    *cpu.Table
	Readings []power.Reading
	// EndsCollection says that the ledger is emitted next.
	EndsCollection bool
}

// Last returns the measurement that was observed last. Its table has been overwritten since.
func (a *Builder) Last() *Measurement { return &a.last }

// Interval returns the interval that was observed last. It is valid until the next call of Observe.
func (a *Builder) Interval() *attribution.Interval { return &a.interval }

// Zones returns the zones by the engine's numbers.
func (a *Builder) Zones() []power.Zone { return a.zones }

// Held returns how many processes there is room for, and how many containers' cgroups are watched.
func (a *Builder) Held() (processes, containers int) {
	return len(a.bySlot), max(len(a.containers.byCgroup), len(a.containers.ordered))
}

// ReadCounters reads the counters of containers' cgroups. It is called right before each scan that does not show all
// CPU time.
func (a *Builder) ReadCounters() { a.Groups.Read() }

// Observe has the engine attribute the interval from the measurement before to this one. The first one is the baseline.
func (a *Builder) Observe(m *Measurement) {
	if !a.begun {
		a.last = *m
	}
	iv := &a.interval
	if iv.Domains == nil {
		iv.Domains = make([]attribution.Usage, 1)
	}
	node := &iv.Domains[0]
	iv.At = m.Stamp
	iv.Elapsed = m.ReadAt.Sub(a.last.ReadAt)
	node.Busy = m.Node.Busy - a.last.Node.Busy
	node.Total = m.Node.Total - a.last.Node.Total
	iv.EndsCollection = m.EndsCollection
	node.Claims = node.Claims[:0]
	iv.Zones = iv.Zones[:0]
	for i := range m.Readings {
		r := &m.Readings[i]
		zone, replaced := a.zone(r)
		iv.Zones = append(iv.Zones, attribution.ZoneReading{
			Zone: zone, Kind: slices.Index(a.Kinds, r.Zone.Kind), Total: r.Total, OK: r.Err == nil, Replaced: replaced,
		})
	}
	a.claim(m, m.Node.Process-a.last.Node.Process)
	if a.Keys != nil {
		node.Unweighed = a.Keys.weigh(m.ReadAt, node.Claims)
	}
	if a.requests != nil && a.requests.due(m.ReadAt) {
		for i := range a.bySlot {
			if b := &a.bySlot[i]; b.open {
				a.Engine.SetRequest(b.claimant, a.requests.of(b.cgroup, m.ReadAt))
			}
		}
	}
	if !a.begun { // what was used until now is nobody's
		node.Claims, node.Unattributed = node.Claims[:0], 0
		if a.Keys != nil {
			a.Keys.forgetWork()
		}
	}
	a.Engine.Observe(iv)
	for _, c := range a.closing {
		a.Engine.Close(c)
	}
	a.closing = a.closing[:0]
	// Where a burst ends and the kernel did not tell the ends, the rows of the ended are there for as long as SlackTime.
	if t := m.Table; !a.KeepMemory && t.Pass() > 0 && a.slack.Ample(len(t.Processes)-t.Awaited(), len(a.bySlot), t.Now) {
		a.Compact(t)
	}
	a.last = *m
	if !a.begun {
		a.begun = true
		a.containers.groups.Read() // so that the first interval has a counter to start from
	}
}

// Compact gives back the memory that was needed for more processes than there are, to the system too: Go itself would take
// minutes, in which a collector hardly allocates. Observe calls it a while after a burst of processes. It does nothing
// unless the scan in t was observed.
func (a *Builder) Compact(t *cpu.Table) {
	if a.pass != t.Pass() {
		return
	}
	slots := t.Compact()
	bySlot := make([]booking, len(slots))
	for slot, before := range slots {
		if int(before) < len(a.bySlot) {
			bySlot[slot], a.bySlot[before] = a.bySlot[before], booking{}
		}
	}
	for i := range a.bySlot { // of processes that ended in a scan that was not booked
		if b := &a.bySlot[i]; b.open {
			a.Engine.Close(b.claimant)
			a.containers.leave(b.member)
			a.Identifier.Forget(int32(i))
		}
	}
	a.bySlot = bySlot
	a.Identifier.Compact(slots)
	a.containers.byCgroup = units.Rebuilt(a.containers.byCgroup)
	a.interval.Domains[0].Claims, a.closing = nil, nil
	if a.Keys != nil {
		a.Keys.shares, a.Keys.origins = nil, nil
	}
	a.Engine.Compact()
	go debug.FreeOSMemory()
}

// Finish observes a last interval without claims: its active energy becomes unattributed.
func (a *Builder) Finish(m *Measurement) {
	last := *m
	last.Table = &cpu.Table{}
	a.Observe(&last)
	// No more readings come: what a zone still has coming is settled.
	last.Readings = nil
	a.Observe(&last)
}

// zone returns the engine's number of a zone, and reports whether the zone takes the place of one whose series it goes
// on with. That is so until its first good reading.
func (a *Builder) zone(r *power.Reading) (i int, replaced bool) {
	if i, ok := a.zoneIndex[r.Zone]; ok {
		return i, false
	}
	i = slices.IndexFunc(a.zones, func(z power.Zone) bool { return sameSeries(&z, r.Zone) })
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

// sameSeries reports whether the points of two zones have the same metric and attributes.
func sameSeries(a, b *power.Zone) bool {
	if a.Kind == power.PSys && b.Kind == power.PSys {
		return a.ID == b.ID
	}
	return *a == *b
}

// maxClaim bounds what one claimant can have used in an interval, two years of CPU time, so that no sum of
// claims overflows: a kernel may print a negative number as one near 2^64.
const maxClaim units.CPUTime = 1 << 56

// claim fills the interval's claims from a pass. available is the CPU time of processes meanwhile.
func (a *Builder) claim(m *Measurement, available units.CPUTime) {
	t := m.Table
	for len(a.bySlot) < t.Slots() {
		a.bySlot = append(a.bySlot, booking{})
	}
	node := &a.interval.Domains[0]
	named, unseen := units.CPUTime(0), t.Unseen // unseen: of nothing that it is part of
	sleepers := a.Keys.Sleepers()
	elapsed := m.ReadAt.Sub(a.last.ReadAt)
	// p is the process whose time it is, or in whose stead it is claimed, and cgroup that of its container.
	add := func(c attribution.Claimant, cpu units.CPUTime, isUnseen bool, p *cpu.Process, cgroup string) {
		if cpu = min(cpu, maxClaim); cpu == 0 && (isUnseen || !sleepers) {
			return
		}
		node.Claims = append(node.Claims, attribution.Claim{Claimant: c, ShortLived: isUnseen, CPU: cpu})
		named += cpu
		if a.Keys == nil {
			return
		}
		on := origin{cpu: -1, cgroup: cgroup, seen: !isUnseen}
		if p != nil {
			on.cpu, on.resident = p.LastCPU, p.Resident
			if !p.Zombie {
				on.held = min(elapsed, t.Now-p.Start)
			}
		}
		a.Keys.claimed(on)
	}
	if a.Keys != nil {
		a.Keys.begin()
	}
	a.excludeLate(m.ReadAt)
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
		a.Identifier.Forget(e.Slot)
		*b = booking{}
	}
	// Who is new is only told by the pass that found them, which may have been in vain.
	everybody := !a.begun || t.Pass() != a.pass+1
	a.pass = t.Pass()
	rows(t, everybody, func(p *cpu.Process) { a.Identifier.Identify(p, t.Now) })
	anybody := a.Identifier.Resolve()
	// Containers' counters are held against all of their processes. Other than that, those that sleep are not
	// looked at, but where they have a part.
	rows(t, everybody || !a.Exact || anybody || sleepers, func(p *cpu.Process) {
		b := &a.bySlot[p.Slot]
		a.place(m, p, b)
		add(b.claimant, p.Used, false, p, b.cgroup)
		a.containers.explain(b.member, b.claimant, p.Used+p.Unseen)
		switch {
		case b.grouped, b.whole && a.Exact: // then it is what nobody saw in the same cgroup, else of children anywhere
			add(b.claimant, p.Unseen, true, p, b.cgroup)
		default:
			unseen += p.Unseen
		}
	})
	a.containers.unseen(func(c attribution.Claimant, cgroup string, cpu units.CPUTime, atFirst bool) {
		// A past that nobody watched is bounded by what the CPUs had. What was counted since is not bounded by the node:
		// its ticks miss what runs between two of them, and the counter does not.
		if atFirst {
			cpu = min(cpu, m.Node.Total-a.last.Node.Total)
		}
		add(c, cpu, true, nil, cgroup)
	})
	for _, in := range t.UnseenIn {
		if c, cgroup, ok := a.stand(in.Path); ok {
			add(c, in.Used, true, nil, cgroup)
			unseen -= min(unseen, in.Used)
		}
	}
	if !a.Exact {
		// What a container's counter showed may be in the child times of a process outside of it, too.
		unseen = min(unseen, units.Advance(named, available))
	}
	add(attribution.NoClaimant, unseen, true, nil, "")

	rest := units.Advance(named, available)
	if !t.Hidden {
		rest = min(rest, t.Untraced)
	}
	node.Unattributed = rest
}

// stand opens a claimant, for this interval, that stands for processes of a cgroup which no pass saw. It is not
// ok where the path names no container or pod, and nobody who is excluded: which virtual machine a cgroup is of only its
// processes tell.
func (a *Builder) stand(path string) (c attribution.Claimant, cgroup string, ok bool) {
	in := a.Identifier.PlaceUnseen(path)
	excluded := a.Exclusion.Excludes(&workload.Identity{Placement: in, ProcessCgroup: path}, a.last.ReadAt)
	if !a.begun || !excluded && in.Container.ID == "" && in.Pod.UID == "" {
		return attribution.NoClaimant, "", false
	}
	c = a.openClaimant(attribution.Owner{Container: in.Container, Pod: in.Pod}, a.last.Stamp, excluded)
	a.end(c)
	return c, in.Cgroup, true
}

// Outside returns why containers' cgroups cannot be looked at, where anything is read there or told by their paths.
func (a *Builder) Outside() error {
	if a.Exact && a.requests == nil && !a.Keys.readCgroups() && !a.Exclusion.ByCgroup() {
		return nil
	}
	return a.Identifier.Outside(a.last.ReadAt)
}

func (a *Builder) openClaimant(owner attribution.Owner, since time.Time, excluded bool) attribution.Claimant {
	c := a.Engine.Open(owner, since)
	if excluded {
		a.Engine.Exclude(c)
	}
	return c
}

// excludeLate excludes those of whose pods the namespaces have become known.
func (a *Builder) excludeLate(now time.Time) {
	if !a.Exclusion.Resolved(now) {
		return
	}
	for i := range a.bySlot {
		if b := &a.bySlot[i]; b.open && !b.excluded && a.Exclusion.ExcludesPod(b.pod, now) {
			a.Engine.Exclude(b.claimant)
			b.excluded = true
		}
	}
}

// end ends a claimant with this interval, in which it may claim its last slice.
func (a *Builder) end(c attribution.Claimant) {
	a.Engine.Stop(c)
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
func (a *Builder) place(m *Measurement, p *cpu.Process, b *booking) {
	identity, changed := a.Identifier.Identity(p.Slot)
	if moved := a.Identifier.Moved(p.Slot); !changed && !moved {
		return
	}
	excluded := a.Exclusion.Excludes(identity, m.ReadAt)
	b.whole = a.Exclusion.ExcludesCgroup(identity.ProcessCgroup)
	if !changed && excluded == b.excluded {
		return
	}
	if b.open {
		a.end(b.claimant)
	}
	b.open, b.cgroup, b.excluded, b.pod = true, identity.Cgroup, excluded, identity.Pod.UID
	b.claimant = a.openClaimant(a.owner(p, identity), a.since(m, p), excluded)
	if a.requests != nil {
		a.Engine.SetRequest(b.claimant, a.requests.of(b.cgroup, m.ReadAt))
	}
	b.grouped = identity.Container.ID != "" || identity.Pod.UID != "" || identity.VM.ID != ""
	if !a.Exact {
		from := b.member
		b.member = a.containers.enter(identity.Cgroup, a.begun && m.Table.BornSinceLastPass(p))
		a.containers.leave(from)
		a.containers.moved(from, b.member, p.Used+p.Unseen)
	}
}

// since is when a series of a process that is new to the engine was at 0: when the process was created, or
// at the end of the interval before if that is later.
func (a *Builder) since(m *Measurement, p *cpu.Process) time.Time {
	created := m.Stamp.Add(p.Start - m.Table.Now)
	if created.Before(a.last.Stamp) {
		return a.last.Stamp
	}
	if created.After(m.Stamp) {
		return m.Stamp
	}
	return created
}

func (a *Builder) owner(p *cpu.Process, i *workload.Identity) attribution.Owner {
	return attribution.Owner{
		Process: units.Process{
			PID:         p.PID,
			Start:       p.Start,
			Created:     a.BootTime.Add(p.Start).UTC().Format("2006-01-02T15:04:05.00Z07:00"),
			Executable:  i.Executable,
			Path:        i.Path,
			CommandLine: i.CommandLine,
		},
		Container: i.Container,
		Pod:       i.Pod,
		VM:        i.VM,
	}
}
