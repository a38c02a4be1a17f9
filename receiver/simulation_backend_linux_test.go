// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit/emittest"
)

// backend receives what the receivers of a world send, and compares it with the machine. All that
// it reads of a receiver is the time stamps of its readings.
type backend struct {
	w       *world
	series  map[string]*sentSeries                  // by identity and start
	latest  map[string]*sentSeries                  // that was taken, by identity
	tasks   map[simProcess]*hostsim.Task            // of this boot, running or ended
	moments map[pcommon.Timestamp]*moment           // by the stamps of readings
	now     *moment                                 // the machine at the reading that is being made
	gauges  map[string]string                       // the resources of the power series that it has
	lastIn  map[string]int                          // the last collection with a resource
	offset  map[power.Kind]int64                    // the energy of a kind is that of its counter and this, in µJ
	sums    map[string]int64                        // by which processes and unattributed exceed the node, by zone and state
	missing map[string]int64                        // that a state that was too old left of these
	number  struct{ moment, collection, taken int } // the last ones; taken is the last moment of which a collection was taken
	clock   backendClock
	resume  resumption
	// putBack reports whether an older state ever replaced a newer state.
	putBack bool
}

// backendClock is a backend's record of steps of the wall clock.
type backendClock struct {
	stepped bool // it was set
	// turned reports whether the receiver began anew when the wall clock may have been behind what
	// it was.
	turned bool
	first  pcommon.Timestamp // the first stamp
	// last is the latest of all points that were acknowledged, and before the same without this
	// collection.
	last, before pcommon.Timestamp
}

// resumption is how a run of the receiver began.
type resumption struct {
	from   *record // the state that it found
	began  *moment
	since  pcommon.Timestamp // the start of the node's series
	how    string            // what it has to make of the state
	judged bool              // and did
	lossy  bool              // a counter may have wrapped unseen, and no collection was taken since
	old    bool              // the state is older than what was taken
	behind bool              // and no collection was taken since
}

// sentSeries is a series with one start time, in µJ or ns.
type sentSeries struct {
	metric, identity, resource string
	zone                       string // and the state
	process                    simProcess
	start, at                  pcommon.Timestamp
	value, sent                int64             // what was taken last, and what this receiver sent last
	in                         int               // the last collection of this run that it was in
	acknowledged               pcommon.Timestamp // the last point of which the receiver knows that it was taken
	outcome                    bool              // the receiver knows that its last point was taken
	zero                       bool              // there was a zero point
	ended                      bool              // its end was acknowledged
	// behind reports whether a receiver has continued from a state older than the series' last
	// point, and no point of the series was taken since then. A series can stay away for many
	// collections, for example while its zone cannot be read.
	behind bool
}

type simProcess struct {
	pid     int32
	started time.Duration // in ticks
}

// moment is the machine when the receiver read it.
type moment struct {
	number  int
	uptime  time.Duration
	before  time.Duration        // the uptime at the reading before; at the first of a run its own
	counted map[power.Kind]int64 // by the meters since the boot, in µJ
	// shared is counted without what a series that starts at the moment may have: deferred energy,
	// and that of the millisecond before. A series begins a millisecond after the reading before
	// it.
	shared map[power.Kind]int64
	zones  map[string]uint64 // the same of each zone
	used   map[simProcess]time.Duration
	execs  map[simProcess]uint64
	// abandoned reports whether a later receiver continued from a state older than the moment. To
	// that receiver, a process that was created at the moment was created between two readings.
	abandoned bool
}

// record is the state of the simulation when a receiver state was stored.
type record struct {
	*moment
	boot     boot
	stamp    pcommon.Timestamp
	since    pcommon.Timestamp
	offset   map[power.Kind]int64
	settings uint32
	behind   bool // see resumption
	lossy    bool
	covers   int          // the number of the last moment of which a collection may have been sent before the state was stored
	kinds    []power.Kind // that were measured
}

// What a receiver makes of the state that it finds.
const (
	fresh   = "begun anew"
	resumed = "gone on"
	zeroed  = "gone on from 0" // its settings are others, or its lease has ended
	expired = "gone on from 0 after the lease"
)

func newBackend(w *world) *backend {
	return &backend{
		w: w, series: map[string]*sentSeries{}, latest: map[string]*sentSeries{}, moments: map[pcommon.Timestamp]*moment{},
		gauges: map[string]string{}, lastIn: map[string]int{}, offset: map[power.Kind]int64{}, sums: map[string]int64{}, missing: map[string]int64{},
	}
}

// meet notes the tasks that are new.
func (b *backend) meet() {
	for _, t := range b.w.life.Tasks {
		b.tasks[simProcess{int32(t.PID), t.Born / hostsim.Tick}] = t
	}
}

// observe notes the machine as the receiver is going to read it.
func (b *backend) observe() {
	host := b.w.life.Host
	b.number.moment++
	last := b.now
	b.now = &moment{
		number: b.number.moment, uptime: host.Uptime, before: host.Uptime,
		counted: map[power.Kind]int64{}, zones: map[string]uint64{}, used: map[simProcess]time.Duration{}, execs: map[simProcess]uint64{},
	}
	for id, z := range host.Zones {
		kind, _, _ := strings.Cut(z.Name, "-")
		b.now.counted[power.Kind(kind)] += int64(z.Counted)
		b.now.zones[id] = z.Counted
	}
	if b.w.plan.modeled() {
		b.now.counted[power.Package] = modelWatts * (host.Uptime - host.Suspended).Microseconds()
	}
	b.now.shared = maps.Clone(b.now.counted)
	if b.w.inside.begun() {
		b.now.before = last.uptime
		if host.Uptime-last.uptime == time.Millisecond {
			b.now.shared = maps.Clone(last.counted)
		}
	}
	for p, t := range b.tasks {
		b.now.used[p], b.now.execs[p] = t.Used, t.Execs
	}
	if b.resume.how == fresh && !b.w.inside.begun() { // nothing was measured before
		b.beginAnew()
	}
}

func (b *backend) beginAnew() {
	b.resume.began, b.clock.turned = b.now, b.clock.turned || b.clock.stepped
	b.reckon(b.now)
}

// stamp returns the time stamp of the reading that is being made.
func (b *backend) stamp() pcommon.Timestamp {
	at := b.w.inside.stamp()
	if b.moments[at] == nil { // otherwise this reading failed
		b.moments[at] = b.now
		for kind, deferred := range b.w.inside.deferred() {
			b.now.shared[kind] -= deferred
		}
	}
	if b.resume.how == fresh && b.now == b.resume.began {
		b.resume.since = at
	}
	if b.clock.first == 0 && b.w.inside.begun() {
		b.clock.first = at
	}
	return at
}

// record notes what a state that is stored now must have.
func (b *backend) record() *record {
	r, run := &b.resume, &b.w.run
	if run.starting && r.from != nil { // what it found, with a new lease
		again := *r.from
		again.settings, again.since, again.offset, again.behind, again.lossy = run.settings, r.since, maps.Clone(b.offset), r.behind, r.lossy
		if r.how == zeroed {
			again.stamp, again.covers = r.since, b.number.taken
		}
		return &again
	}
	return &record{
		moment: b.now, boot: b.w.boot, stamp: b.stamp(), since: r.since, offset: maps.Clone(b.offset), settings: run.settings,
		behind: r.behind, lossy: r.lossy, covers: b.now.number, kinds: run.s.cfg.Zones,
	}
}

// started notes a start, the state that it finds, if one is good, and what the receiver has to make
// of it.
func (b *backend) started(from *record) {
	b.resume = resumption{from: from, began: b.now, how: fresh}
	r := &b.resume
	for _, s := range b.series {
		s.in, s.outcome, s.ended = b.number.collection, false, false
	}
	switch {
	case from == nil:
		b.beginAnew()
	case (from.settings^b.w.run.settings)&dependsOn != 0:
		b.restartAtZero()
	case b.w.store.hasExpired():
		b.w.fired[expired]++
		b.restartAtZero()
	default:
		r.how, r.since = resumed, from.since
		b.reckon(b.now) // kinds that are not in the state
		for _, kind := range from.kinds {
			b.offset[kind] = from.offset[kind]
		}
	}
	b.w.fired[r.how]++
	if r.how != resumed {
		clear(b.gauges)
	}
	if from != nil {
		b.compare(from)
	}
}

// restartAtZero has totals begin at 0 at the time of the state.
func (b *backend) restartAtZero() {
	r, from := &b.resume, b.resume.from
	r.how, r.since = zeroed, from.stamp+1
	b.moments[r.since] = from.moment
	b.reckon(b.now)
	for _, kind := range from.kinds {
		b.offset[kind] += b.now.counted[kind] - from.counted[kind] - b.total(kind, r.since) // which are sent once more
	}
}

// compare compares a state that is restored with the machine and with what was taken.
func (b *backend) compare(from *record) {
	r := &b.resume
	r.lossy = from.lossy
	for id, z := range b.w.life.Host.Zones {
		r.lossy = r.lossy || z.Counted-from.zones[id] >= z.Max-z.Max>>14
	}
	for _, m := range b.moments {
		m.abandoned = m.abandoned || m.number > from.number && m.number < r.began.number
	}
	b.putBack = b.putBack || b.w.store.putBack
	r.behind = from.behind || from.covers < b.number.taken
	if r.old = r.behind; r.old {
		b.w.fired["went on from a state that is too old"]++
		clear(b.gauges) // the receiver cannot know which power series were sent since that state
		for _, s := range b.series {
			s.behind = true
		}
	}
}

// ended notes that the receiver is gone, and with it what was sent and not taken.
func (b *backend) ended() {
	for _, s := range b.series {
		if !b.w.plan.stored() {
			break // the next receiver has other series
		}
		s.sent = s.value
	}
}

var workloadMetrics = map[string]bool{
	"process.energy": true, "container.energy": true, "k8s.pod.energy": true, "vm.energy": true, "system.energy": true,
	"system.unattributed.energy": true, "hw.energy": true, "hw.host.energy": true, "process.cpu.time": true,
}

// receive takes a collection, or has it refused. The receiver need not know that it was taken.
func (b *backend) receive(md pmetric.Metrics, taken, acknowledged bool) {
	if err := emittest.Duplicate(md); err != nil {
		b.w.fail("one series, one point: %w", err)
	}
	b.stamp()
	b.number.collection++
	b.clock.before = b.clock.last
	watts, kinds, starts := map[string]float64{}, map[power.Kind]bool{}, map[pcommon.Timestamp]bool{}
	for _, rm := range md.ResourceMetrics().All() {
		p, created := b.checkExists(rm.Resource().Attributes())
		resource := format(rm.Resource().Attributes())
		if taken {
			b.lastIn[resource] = b.number.collection
		}
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if strings.HasSuffix(m.Name(), ".power") && m.Type() == pmetric.MetricTypeGauge {
				b.takePower(m, resource, acknowledged, watts)
			}
			if !workloadMetrics[m.Name()] {
				continue
			}
			for i, dp := range m.Sum().DataPoints().All() {
				s := b.find(m.Name(), resource, p, dp)
				if emittest.IsZeroPoint(m.Sum().DataPoints(), i) {
					b.takeZero(s, dp.Timestamp())
					continue
				}
				b.checkStart(s, created)
				b.take(s, dp, taken, acknowledged)
				b.checkProcess(s)
				if m.Name() == "system.energy" {
					b.checkNode(s)
					kinds[s.kind()], starts[s.start] = true, true
				}
			}
		}
	}
	b.judge(starts)
	for zone, sum := range watts {
		if sum > 1e-6 {
			b.w.fail("%s: processes have %v W more than the node", zone, sum)
		}
	}
	b.checkUsed()
	if !taken {
		return
	}
	b.checkEnds(acknowledged)
	b.checkTotals(kinds)
	b.checkSum()
	b.number.taken, b.resume.behind, b.resume.lossy = b.now.number, false, false
}

// judge checks that the receiver made of the state what it should, by the starts of the node's
// series.
func (b *backend) judge(starts map[pcommon.Timestamp]bool) {
	r := &b.resume
	if len(starts) == 0 || r.judged {
		return
	}
	r.judged = true
	since := slices.Min(slices.Collect(maps.Keys(starts)))
	switch {
	case b.w.plan.faulty(): // a zone may be available late
		r.since = since
	case since != r.since:
		b.w.fail("the node's series start at %v: the receiver should have "+r.how+", at %v", since.AsTime(), r.since.AsTime())
	case len(starts) > 1 && b.w.plan.restarts && !b.w.run.otherZones: // a kind that was not measured before begins later
		b.w.fail("the node's series start at %v", slices.Sorted(maps.Keys(starts)))
	}
}

// reckon has the meters counted from a moment on, in addition to what was taken.
func (b *backend) reckon(from *moment) {
	for _, kind := range power.Kinds {
		b.offset[kind] = b.total(kind, 0) - from.counted[kind]
	}
}

// total returns what was taken of the energy of a zone kind: of the series with one start time, or
// of all if that is 0.
func (b *backend) total(kind power.Kind, start pcommon.Timestamp) (sum int64) {
	for _, s := range b.series {
		if s.metric == "system.energy" && (start == 0 || s.start == start) && s.kind() == kind {
			sum += s.value
		}
	}
	return sum
}

// kind returns the zone kind of a series.
func (s *sentSeries) kind() power.Kind {
	kind, _, _ := strings.Cut(s.zone, " ")
	return power.Kind(kind)
}

// format returns attributes as text.
func format(attributes pcommon.Map) string {
	var list []string
	for k, v := range attributes.All() {
		list = append(list, k+"="+v.AsString())
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// zoneOf returns the zone and the state of a point.
func zoneOf(p pmetric.NumberDataPoint) string {
	zone, _ := p.Attributes().Get("energy.zone")
	state, _ := p.Attributes().Get("energy.state")
	return strings.TrimSpace(zone.Str() + " " + state.Str())
}

// find returns the series of a point.
func (b *backend) find(metric, resource string, process simProcess, p pmetric.NumberDataPoint) *sentSeries {
	identity := metric + " " + resource + " " + format(p.Attributes())
	key := identity + " " + p.StartTimestamp().String()
	s := b.series[key]
	if s == nil {
		s = &sentSeries{metric: metric, identity: identity, resource: resource, process: process, zone: zoneOf(p), start: p.StartTimestamp()}
		b.series[key] = s
	}
	return s
}

// takeZero checks that a zero point is later than what the backend is known to have of series with
// its attributes.
func (b *backend) takeZero(s *sentSeries, at pcommon.Timestamp) {
	if last := b.latest[s.identity]; last != nil && at <= last.acknowledged && !b.clock.turned && !b.resume.old {
		b.w.fail("%s: a zero point of %v, and the backend has one of %v", s.identity, at.AsTime(), last.acknowledged.AsTime())
	}
	s.zero = true
}

// take adds a point, and checks that the series continues.
func (b *backend) take(s *sentSeries, p pmetric.NumberDataPoint, taken, acknowledged bool) {
	scale := 1e6
	if s.metric == "process.cpu.time" {
		scale = 1e9
	}
	value, at := int64(math.Round(p.DoubleValue()*scale)), p.Timestamp()
	before := b.latest[s.identity]
	switch {
	case s.start > at:
		b.w.fail("%s starts %v after %v", s.identity, s.start.AsTime(), at.AsTime())
	case p.DoubleValue() < 0 || math.IsNaN(p.DoubleValue()):
		b.w.fail("%s is %v", s.identity, p.DoubleValue())
	case s.ended:
		b.w.fail("%s is back after its end was acknowledged", s.identity)
	case value < s.sent && s.behind && b.putBack:
		b.w.fired["series fell behind after a state that is too old"]++
	case value < s.sent:
		b.w.fail("%s went down from %d to %d", s.identity, s.sent, value)
	case (at < s.at || at == s.at && value != s.sent) && !s.behind:
		b.w.fail("%s: a point of %v after one of %v", s.identity, at.AsTime(), s.at.AsTime())
	case before != nil && before.start > s.start && !b.clock.turned && !before.behind:
		b.w.fail("%s starts %v, and did %v before", s.identity, s.start.AsTime(), before.start.AsTime())
	}
	s.sent, s.in, s.outcome = value, b.number.collection, acknowledged
	if taken {
		last := pcommon.Timestamp(0)
		if before != nil {
			last = before.acknowledged
		}
		s.at, s.value, s.behind = at, value, false
		s.acknowledged = max(s.acknowledged, last)
		b.latest[s.identity] = s
	}
	if acknowledged {
		b.checkBegin(s)
		s.acknowledged, b.clock.last = at, max(b.clock.last, at)
	}
}

// checkBegin checks that the first value of a series follows a zero point, if there is a
// millisecond for it since its zone began.
func (b *backend) checkBegin(s *sentSeries) {
	fits := b.w.run.passed > time.Millisecond && s.at/1e6 > max(s.start, b.clock.before)/1e6+1
	if fits && !s.zero && s.acknowledged == 0 && s.value > 0 && b.w.run.number == 1 {
		b.w.fail("%s begins with %d and no zero point", s.identity, s.value)
	}
}

// checkStart rejects series that start too early: before anything was measured or the process was
// created, unless the wall clock is wrong.
func (b *backend) checkStart(s *sentSeries, created time.Time) {
	start := s.start.AsTime()
	if b.w.faults.Fired["clock step"]+b.w.faults.Fired["suspend"] > 0 {
		return
	}
	// A state of before the first measurement, as where the meters fail, has the totals of one that
	// starts over.
	exactly := b.w.run.number == 1 || b.w.fired[zeroed] == 0 && !b.w.plan.faulty()
	if b.w.run.number == 1 && s.start < b.clock.first || exactly && start.Add(hostsim.Tick).Before(created) {
		b.w.fail("%s starts %v, before %v or %v", s.metric, start, b.clock.first.AsTime(), created)
	}
}

var byProcess = regexp.MustCompile(`^(worker-\d+|sh|qemu-system-x86(_64)?)-\d+-\d+$`)

// checkExists rejects resources that never existed. It returns a process, and its creation time.
func (b *backend) checkExists(attributes pcommon.Map) (simProcess, time.Time) {
	life := b.w.life
	has := func(name string, known map[string]bool) {
		if v, ok := attributes.Get(name); ok && !known[v.Str()] {
			b.w.fail("there never was a %s %s", name, v.Str())
		}
	}
	has("container.id", life.Containers)
	has("k8s.pod.uid", life.Pods)
	// A virtual machine whose arguments were truncated is identified by its process, and one that
	// was moved into a container by either from there.
	if v, ok := attributes.Get("vm.id"); ok {
		container, id, inside := strings.Cut(v.Str(), "/")
		if !inside {
			id = container
		}
		if inside && !life.Containers[container] || !life.VMs[id] && !byProcess.MatchString(id) {
			b.w.fail("there never was a vm.id %s", v.Str())
		}
	}
	pid, ok := attributes.Get("process.pid")
	if !ok {
		return simProcess{}, time.Time{}
	}
	name, _ := attributes.Get("process.executable.name")
	created, _ := attributes.Get("process.creation.time")
	at, err := time.Parse(time.RFC3339Nano, created.Str())
	if err != nil {
		b.w.fail("process.creation.time %q: %w", created.Str(), err)
	}
	ticks := at.Sub(life.Host.Booted) / hostsim.Tick
	p := hostsim.Program{PID: int(pid.Int()), Start: int64(ticks), Name: name.Str()}
	if life.Programs != nil && !life.Programs[p] {
		b.w.fail("there never was a process %+v", p)
	}
	return simProcess{int32(pid.Int()), ticks}, at
}

// exactly reports whether the counters and the clock are right.
func (b *backend) exactly() bool { return !b.w.plan.faulty() && !b.clock.stepped }

// checkProcess checks that a process's series has no energy or CPU time from before its start, that
// a series that lived through a restart continues, and that only processes that have opened a GPU
// have energy of one.
func (b *backend) checkProcess(s *sentSeries) {
	if s.process.pid == 0 {
		return
	}
	p, kind := s.process, s.kind()
	if kind == power.GPU && s.sent > 0 {
		b.checkGPU(p)
	}
	t, from, r := b.tasks[p], b.moments[s.start], &b.resume
	if t == nil || from == nil || from.abandoned || t.Born > from.before || b.w.life.Find(t.PID) != t || !b.exactly() {
		return // it began between two readings, or the end of its time is inferred
	}
	if s.metric == "process.cpu.time" {
		if used := b.now.used[p] - from.used[p]; s.sent > int64(used+2*hostsim.Tick) {
			b.w.fail("process %d has %v of CPU time since %v, it used %v", p.pid, time.Duration(s.sent), s.start.AsTime(), used)
		}
		return
	}
	if all, ok := b.now.counted[kind]; ok && s.sent > all-from.shared[kind] {
		b.w.fail("process %d has %d µJ of %s since %v, all together had %d", p.pid, s.sent, s.zone, s.start.AsTime(), all-from.shared[kind])
	}
	before := b.latest[s.identity]
	if r.how == resumed && b.w.plan.unlimited() && before != nil && before.start != s.start && from.uptime >= r.began.uptime &&
		t.Born < r.from.uptime && t.Execs == r.from.execs[p] && !r.behind && (b.w.run.settings|r.from.settings)&fewerSeries == 0 {
		b.w.fail("process %d starts again at %v, it had a series since %v", p.pid, s.start.AsTime(), before.start.AsTime())
	}
}

const chargedOfCards = "values of processes with energy of a GPU"

// checkGPU checks that a process has opened a GPU, unless the clock cannot distinguish it from an
// earlier process.
func (b *backend) checkGPU(p simProcess) {
	b.w.fired[chargedOfCards]++
	opened := func(c *hostsim.Context) bool { return simProcess{int32(c.Task.PID), c.Task.Born / hostsim.Tick} == p }
	if b.w.faults.Fired["suspend"]+b.w.faults.Fired["clock step"] == 0 && !slices.ContainsFunc(b.w.life.Contexts, opened) {
		b.w.fail("process %d has energy of a card that it never opened", p.pid)
	}
}

// checkUsed checks that no process has more CPU time than it used. User and system time are counted
// in ticks.
func (b *backend) checkUsed() {
	rounding, fired := b.w.inside.rounding(), b.w.faults.Fired
	if b.w.run.number > 1 || rounding > 0 && fired[syscall.ENOENT.Error()]+fired[syscall.ESRCH.Error()] > 0 {
		return // procfs had to count a process as ended, so another may have been given its time
	}
	sums := map[simProcess]time.Duration{}
	for _, s := range b.series {
		if s.metric == "process.cpu.time" {
			sums[s.process] += time.Duration(s.sent)
		}
	}
	for p, sum := range sums {
		t := b.w.life.Find(int(p.pid))
		if t != nil && p.started == t.Born/hostsim.Tick && sum > t.Used+rounding { // otherwise its end is inferred, or late
			b.w.fail("process %d has %v of CPU time, it used %v", t.PID, sum, t.Used)
		}
	}
}

// checkNode checks that the node's series have no energy from before their start.
func (b *backend) checkNode(s *sentSeries) {
	kind, from := s.kind(), b.moments[s.start]
	all, ok := b.now.counted[kind]
	switch {
	case !b.exactly() || !ok:
	case from == nil:
		b.w.fail("system.energy starts at %v, where nothing was read", s.start.AsTime())
	case s.sent > all-from.counted[kind]+b.rounding():
		b.w.fail("%s has %d µJ since %v, its meters counted %d", s.zone, s.sent, s.start.AsTime(), all-from.counted[kind])
	}
}

// rounding is the maximum rounding error of a model's sums, in µJ.
func (b *backend) rounding() int64 {
	if b.w.plan.modeled() {
		return int64(b.number.moment)
	}
	return 0
}

// checkTotals checks that no energy of a zone is lost or invented, over all starts. Worlds without
// restarts have intervals so short that energy is deferred: see inside.
func (b *backend) checkTotals(kinds map[power.Kind]bool) {
	if b.w.plan.faulty() || !b.w.plan.restarts {
		return
	}
	for kind := range kinds {
		got, want, r := b.total(kind, 0), b.offset[kind]+b.now.counted[kind], &b.resume
		diff := got - want
		switch {
		case r.lossy && diff <= 0, r.behind && diff >= 0:
			b.offset[kind] += diff
		case diff < -b.rounding():
			b.w.fail("%s: %d µJ are lost after the receiver has "+r.how+": %d of %d", kind, -diff, got, want)
		case diff > b.rounding():
			b.w.fail("%s: %d µJ are invented after the receiver has "+r.how+": %d of %d", kind, diff, got, want)
		}
	}
}

// checkSum checks that the energy of processes and the unattributed energy add up to what is
// attributed of the node, over all data ever received.
func (b *backend) checkSum() {
	sums := maps.Clone(b.sums)
	for _, s := range b.series {
		b.addTo(sums, s)
	}
	for zone, sum := range sums {
		if b.resume.behind {
			b.missing[zone] = sum
		}
		if sum != b.missing[zone] {
			b.w.fail("%s: processes and unattributed are %d µJ more than the node", zone, sum-b.missing[zone])
		}
	}
}

// addTo adds a series to sums by zone and state.
func (b *backend) addTo(sums map[string]int64, s *sentSeries) {
	zone := s.zone
	if state := strings.TrimPrefix(zone, string(s.kind())); state == "" {
		zone += " active"
	}
	shared := b.w.run.s.node.Rules.Idle != config.IdleNone
	switch s.metric {
	case "process.energy", "system.unattributed.energy":
		sums[zone] += s.value
	case "system.energy":
		if shared || !strings.HasSuffix(zone, " idle") {
			sums[zone] -= s.value
		}
	}
}

// takePower notes the power series that the backend has. It adds the power of processes and
// subtracts the node's, by zone and state.
func (b *backend) takePower(m pmetric.Metric, resource string, acknowledged bool, watts map[string]float64) {
	for _, p := range m.Gauge().DataPoints().All() {
		series := m.Name() + " " + resource + " " + format(p.Attributes())
		switch ended := p.Flags().NoRecordedValue(); {
		case acknowledged && ended:
			delete(b.gauges, series)
		case acknowledged:
			b.gauges[series] = resource
		}
		zone := strings.TrimSuffix(zoneOf(p), " active")
		switch m.Name() {
		case "process.power":
			watts[zone] += p.DoubleValue()
		case "system.power":
			watts[zone] -= p.DoubleValue()
		}
	}
}

// checkEnds checks that no power series stays for ever, and notes the series whose end was
// acknowledged. With a lower limit of series than before, there are more ended series than are
// kept, and the ends of some are not sent.
func (b *backend) checkEnds(acknowledged bool) {
	for series, resource := range b.gauges {
		switch {
		case b.lastIn[resource] >= b.number.collection:
		case b.resume.old || b.w.run.settings&fewerSeries != 0:
			delete(b.gauges, series)
		default:
			b.w.fail("the end of %s was not sent", series)
		}
	}
	for _, s := range b.series {
		// If all zones of a kind are gone, as a slow meter's may be, the series of remaining
		// resources continue later. So do those of zones that could not be listed since a start.
		mayGo := isSlow(s.kind()) || b.w.run.number > 1 && b.w.plan.faulty()
		mayReturn := b.lastIn[s.resource] == b.number.collection && mayGo
		if acknowledged && s.in < b.number.collection && s.outcome && !strings.HasPrefix(s.metric, "hw.") && !mayReturn {
			s.ended = true
		}
	}
}

// forget forgets series that have ended, moments, and resources.
func (b *backend) forget() {
	b.w.faults.Forget()
	clear(b.tasks)
	clear(b.moments)
	clear(b.latest)
	maps.DeleteFunc(b.series, func(_ string, s *sentSeries) bool {
		if s.ended {
			b.addTo(b.sums, s)
		}
		return s.ended
	})
	maps.DeleteFunc(b.lastIn, func(_ string, in int) bool { return in < b.number.collection })
}
