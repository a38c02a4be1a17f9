// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit/emittest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
)

// restartBackend has what the receivers of a history sent, and compares it with the machine. It
// knows nothing of a receiver but the time stamps of its readings.
type restartBackend struct {
	sim     *restarts
	series  map[string]*sentSeries        // by identity and start
	moments map[pcommon.Timestamp]*moment // by the stamps of readings
	latest  map[string]*sentSeries        // that was taken, by identity
	// acknowledged are the times of the last points of which the receiver has to know that they were taken, by identity.
	acknowledged map[string]pcommon.Timestamp
	gauges       map[string]string    // the resources of the power series that it has
	lastIn       map[string]int       // the last collection with a resource
	now          *moment              // the machine at the reading that is being made
	taken        int                  // the number of the last moment of which a collection was taken
	read         int                  // moments so far
	in           int                  // collections so far
	offset       map[power.Kind]int64 // what is known of a kind is its counter and this, in µJ
	missing      map[string]int64     // of the active energy, by zone and state, in µJ
	stepped      bool                 // the wall clock was set
	// turned reports whether the receiver began anew when the wall clock may have been behind what it was.
	turned bool
	// Of this start.
	from   *record // the state that it found
	began  *moment
	since  pcommon.Timestamp // the start of the node's series
	how    string            // what it has to make of the state
	judged bool              // and did
	lossy  bool              // a counter may have gone round, and no collection was taken since
	old    bool              // the state is older than what was taken
	// putBack reports whether an older state ever replaced a newer state.
	putBack bool
	behind  bool // and no collection was taken since
}

// sentSeries is a series with one start time, in µJ or ns.
type sentSeries struct {
	metric, identity, resource string
	zone                       string // and the state
	start, at                  pcommon.Timestamp
	value, sent                int64 // what was taken last, and what this receiver sent last
	// behind reports whether a receiver has continued from a state older than the series' last point, and no point of the
	// series was taken since then. A series can stay away for many collections, for example while its zone cannot be read.
	behind bool
}

// moment is the machine when the receiver read it.
type moment struct {
	number  int
	uptime  time.Duration
	counted map[power.Kind]int64 // by the meters since the boot, in µJ
	zones   map[string]uint64    // the same of each zone
	used    map[simProcess]time.Duration
	execs   map[simProcess]uint64
	// abandoned reports whether a later receiver continued from a state older than the moment. To that receiver, a process
	// that was created at the moment was created between two readings.
	abandoned bool
}

// record is the state of the simulation when a receiver state was stored.
type record struct {
	*moment
	boot     int
	bootID   string
	stamp    pcommon.Timestamp
	since    pcommon.Timestamp
	offset   map[power.Kind]int64
	settings uint32
	behind   bool // see restartBackend
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

func newRestartBackend(sim *restarts) *restartBackend {
	return &restartBackend{
		sim: sim, series: map[string]*sentSeries{}, moments: map[pcommon.Timestamp]*moment{}, latest: map[string]*sentSeries{},
		acknowledged: map[string]pcommon.Timestamp{}, gauges: map[string]string{}, lastIn: map[string]int{}, offset: map[power.Kind]int64{}, missing: map[string]int64{},
	}
}

// observe notes the machine as the receiver is going to read it.
func (b *restartBackend) observe() {
	life := b.sim.life
	b.read++
	b.now = &moment{
		number: b.read, uptime: life.Host.Uptime,
		counted: map[power.Kind]int64{}, zones: map[string]uint64{}, used: map[simProcess]time.Duration{}, execs: map[simProcess]uint64{},
	}
	for id, z := range life.Host.Zones {
		kind, _, _ := strings.Cut(z.Name, "-")
		b.now.counted[power.Kind(kind)] += int64(z.Counted)
		b.now.zones[id] = z.Counted
	}
	if b.sim.modeled() {
		b.now.counted[power.Package] = modelWatts * (life.Host.Uptime - life.Host.Suspended).Microseconds()
	}
	for p, t := range b.sim.tasks {
		b.now.used[p], b.now.execs[p] = t.Used, t.Execs
	}
	if b.how == fresh && !b.sim.s.ledger.Begun() { // nothing was measured before
		b.began, b.turned = b.now, b.turned || b.stepped
		b.reckon(b.began)
	}
}

// stamp returns the time stamp of the reading that is being made.
func (b *restartBackend) stamp() pcommon.Timestamp {
	at := pcommon.NewTimestampFromTime(b.sim.s.windows.Timeline.Stamp)
	if b.moments[at] == nil { // else this reading failed
		b.moments[at] = b.now
	}
	if b.how == fresh && b.now == b.began {
		b.since = at
	}
	return at
}

// record notes what a state that is stored now must have.
func (b *restartBackend) record() *record {
	if b.sim.starting && b.from != nil { // what it found, with a new lease
		r := *b.from
		r.settings, r.since, r.offset, r.behind, r.lossy = b.sim.running, b.since, maps.Clone(b.offset), b.behind, b.lossy
		if b.how == zeroed {
			r.stamp, r.covers = b.since, b.taken
		}
		return &r
	}
	return &record{moment: b.now, covers: b.now.number, boot: b.sim.boots, bootID: b.sim.bootID, stamp: b.stamp(), since: b.since, offset: maps.Clone(b.offset), settings: b.sim.running, behind: b.behind, lossy: b.lossy, kinds: b.sim.s.cfg.Zones}
}

// started notes a start, the state that it finds, if one is good, and what the receiver has to make of it.
func (b *restartBackend) started(from *record) {
	b.from, b.began, b.judged, b.lossy, b.behind, b.old = from, b.now, false, false, false, false
	var past state.Totals
	hasEnded, changed := false, from != nil && (from.settings^b.sim.running)&dependsOn != 0
	if from != nil {
		past = b.sim.store.totals()
		hasEnded = b.sim.life.Host.Now().Sub(past.ReadAt) > past.Lease
	}
	switch {
	case from == nil:
		b.how, b.turned = fresh, b.turned || b.stepped
		b.reckon(b.began)
	case changed, hasEnded:
		if !changed {
			b.sim.fired[expired]++
		}
		b.how, b.since = zeroed, from.stamp+1
		b.moments[b.since] = from.moment
		b.reckon(b.began)
		for _, kind := range from.kinds {
			b.offset[kind] += b.began.counted[kind] - from.counted[kind] - b.totalSince(kind, b.since) // which are sent once more
		}
	default:
		b.how, b.since = resumed, from.since
		b.reckon(b.began) // kinds that are not in the state
		for _, kind := range from.kinds {
			b.offset[kind] = from.offset[kind]
		}
	}
	b.sim.fired[b.how]++
	if b.how != resumed {
		clear(b.gauges)
	}
	if from == nil {
		return
	}
	b.lossy = from.lossy
	for id, z := range b.sim.life.Host.Zones {
		if z.Counted-from.zones[id] >= z.Max-z.Max>>14 {
			b.lossy = true
		}
	}
	for _, m := range b.moments {
		m.abandoned = m.abandoned || m.number > from.number && m.number < b.began.number
	}
	b.putBack = b.putBack || b.sim.store.putBack
	b.behind = from.behind || from.covers < b.taken
	if b.old = b.behind; b.old {
		b.sim.fired["went on from a state that is too old"]++
		clear(b.gauges) // the receiver cannot know which power series were sent since that state
		for _, s := range b.series {
			s.behind = true
		}
	}
}

// ended notes that the receiver is gone, and with it what was sent and not taken.
func (b *restartBackend) ended() {
	for _, s := range b.series {
		s.sent = s.value
	}
}

// receive takes a collection, or has it refused. The receiver need not know that it was taken.
func (b *restartBackend) receive(md pmetric.Metrics, taken, acknowledged bool) {
	b.stamp()
	b.in++
	if !b.judged {
		b.judge(md)
	}
	for _, rm := range md.ResourceMetrics().All() {
		var resource strings.Builder
		for k, v := range rm.Resource().Attributes().All() {
			resource.WriteString(k + "=" + v.AsString() + ",")
		}
		if taken {
			b.lastIn[resource.String()] = b.in
		}
		process, isProcess := b.process(rm.Resource().Attributes())
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if strings.HasSuffix(m.Name(), ".power") && m.Type() == pmetric.MetricTypeGauge && acknowledged {
				b.takeGauge(m, resource.String())
			}
			if m.Type() != pmetric.MetricTypeSum || !workloadMetrics[m.Name()] && m.Name() != "process.cpu.time" {
				continue
			}
			for i, p := range m.Sum().DataPoints().All() {
				if emittest.IsZeroPoint(m.Sum().DataPoints(), i) {
					b.checkZero(m.Name(), resource.String(), p)
				} else if s := b.take(m.Name(), resource.String(), p, taken, acknowledged); isProcess {
					b.checkProcess(s, process)
				} else if m.Name() == "system.energy" {
					b.checkNode(s)
				}
			}
		}
	}
	if !taken {
		return
	}
	b.checkEnds()
	b.checkTotals(md)
	b.checkSum()
	b.taken, b.behind, b.lossy = b.now.number, false, false
}

// judge checks that the receiver made of the state what it should, by the start of the node's series.
func (b *restartBackend) judge(md pmetric.Metrics) {
	starts := map[pcommon.Timestamp]bool{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == "system.energy" {
				for _, p := range m.Sum().DataPoints().All() {
					starts[p.StartTimestamp()] = true
				}
			}
		}
	}
	if len(starts) == 0 {
		return
	}
	b.judged = true
	since := slices.Min(slices.Collect(maps.Keys(starts)))
	switch {
	case b.sim.faulty(): // a zone may be known late
		b.since = since
	case since != b.since:
		b.sim.fail("the node's series start at %v: the receiver should have "+b.how+", at %v", since.AsTime(), b.since.AsTime())
	case len(starts) > 1 && !b.sim.otherZones: // a kind that was not measured before begins later
		b.sim.fail("the node's series start at %v", slices.Sorted(maps.Keys(starts)))
	}
}

// reckon has the meters counted from a moment on, in addition to what was taken.
func (b *restartBackend) reckon(from *moment) {
	for _, kind := range power.Kinds {
		b.offset[kind] = b.total(kind) - from.counted[kind]
	}
}

// total returns what was taken of the energy of a zone kind, over all start times.
func (b *restartBackend) total(kind power.Kind) (sum int64) {
	for _, s := range b.series {
		if s.metric == "system.energy" && strings.HasPrefix(s.zone, string(kind)+" ") {
			sum += s.value
		}
	}
	return sum
}

// totalSince returns the same of the series with one start time.
func (b *restartBackend) totalSince(kind power.Kind, start pcommon.Timestamp) (sum int64) {
	for _, s := range b.series {
		if s.metric == "system.energy" && s.start == start && strings.HasPrefix(s.zone, string(kind)+" ") {
			sum += s.value
		}
	}
	return sum
}

// identifySent returns what distinguishes the series of a point, but for its start, and its zone and state.
func identifySent(metric, resource string, p pmetric.NumberDataPoint) (identity, zone string) {
	var attributes []string
	state := ""
	for k, v := range p.Attributes().All() {
		attributes = append(attributes, k+"="+v.AsString())
		switch k {
		case "energy.zone":
			zone = v.AsString()
		case "energy.state":
			state = v.AsString()
		}
	}
	slices.Sort(attributes)
	return metric + " " + resource + strings.Join(attributes, ","), strings.TrimSpace(zone + " " + state)
}

// checkZero checks that a zero point is later than what the backend is known to have of series with its attributes.
func (b *restartBackend) checkZero(metric, resource string, p pmetric.NumberDataPoint) {
	identity, _ := identifySent(metric, resource, p)
	if last := b.acknowledged[identity]; p.Timestamp() <= last && !b.turned && !b.old {
		b.sim.fail("%s: a zero point of %v, and the backend has one of %v", identity, p.Timestamp().AsTime(), last.AsTime())
	}
}

// take adds a point, and checks that the series goes on.
func (b *restartBackend) take(metric, resource string, p pmetric.NumberDataPoint, taken, acknowledged bool) *sentSeries {
	identity, zone := identifySent(metric, resource, p)
	scale := 1e6
	if metric == "process.cpu.time" {
		scale = 1e9
	}
	value := int64(math.Round(p.DoubleValue() * scale))
	start, at := p.StartTimestamp(), p.Timestamp()
	key := identity + " " + start.String()
	s := b.series[key]
	if s == nil {
		s = &sentSeries{metric: metric, identity: identity, resource: resource, zone: zone, start: start}
		b.series[key] = s
	}
	switch {
	case start > at:
		b.sim.fail("%s starts %v after %v", identity, start.AsTime(), at.AsTime())
	case value < s.sent:
		if s.behind && b.putBack {
			b.sim.fired["series fell behind after a state that is too old"]++
			break
		}
		b.sim.fail("%s went down from %d to %d", identity, s.sent, value)
	case (at < s.at || at == s.at && value != s.sent) && !s.behind:
		b.sim.fail("%s: a point of %v after one of %v", identity, at.AsTime(), s.at.AsTime())
	}
	if before := b.latest[identity]; before != nil && before.start > start && !b.turned && !before.behind {
		b.sim.fail("%s starts %v, and did %v before", identity, start.AsTime(), before.start.AsTime())
	}
	s.sent = value
	if taken {
		s.at, s.value, s.behind = at, value, false
		b.latest[identity] = s
	}
	if acknowledged {
		b.acknowledged[identity] = at
	}
	return s
}

// process returns the process that a resource is, if it is one.
func (b *restartBackend) process(attributes pcommon.Map) (simProcess, bool) {
	pid, ok := attributes.Get("process.pid")
	if !ok {
		return simProcess{}, false
	}
	created, _ := attributes.Get("process.creation.time")
	at, err := time.Parse(time.RFC3339Nano, created.Str())
	if err != nil {
		b.sim.fail("process.creation.time %q: %w", created.Str(), err)
	}
	return simProcess{int32(pid.Int()), at.Sub(b.sim.life.Host.Booted) / hostsim.Tick}, true
}

// checkProcess checks that a process's series has nothing of before its start, and that one that
// lived through a restart goes on.
func (b *restartBackend) checkProcess(s *sentSeries, p simProcess) {
	t := b.sim.tasks[p]
	from := b.moments[s.start]
	if t == nil || from == nil || from.abandoned || b.sim.life.Find(t.PID) != t {
		return // it began between two readings, or the end of its time is inferred
	}
	switch s.metric {
	case "process.cpu.time":
		used := int64(b.now.used[p] - from.used[p])
		if most := used + int64(2*hostsim.Tick); s.sent > most && !b.sim.faulty() && !b.stepped {
			b.sim.fail("process %d has %v of CPU time since %v, it used %v", p.pid, time.Duration(s.sent), s.start.AsTime(), time.Duration(used))
		}
	case "process.energy":
		kind, _, _ := strings.Cut(s.zone, " ")
		most := b.now.counted[power.Kind(kind)] - from.counted[power.Kind(kind)]
		if s.sent > most && !b.sim.faulty() && !b.stepped {
			b.sim.fail("process %d has %d µJ of %s since %v, all together had %d", p.pid, s.sent, s.zone, s.start.AsTime(), most)
		}
		before := b.latest[s.identity]
		if b.how == resumed && !b.sim.faulty() && b.sim.unlimited() && before != nil && before.start != s.start && from.uptime >= b.began.uptime &&
			t.Born < b.from.uptime && t.Execs == b.from.execs[p] && !b.behind && (b.sim.running|b.from.settings)&fewerSeries == 0 {
			b.sim.fail("process %d starts again at %v, it had a series since %v", p.pid, s.start.AsTime(), before.start.AsTime())
		}
	}
}

// checkNode checks that the node's series have nothing of before their start.
func (b *restartBackend) checkNode(s *sentSeries) {
	from := b.moments[s.start]
	if b.sim.faulty() || b.stepped {
		return
	}
	if from == nil {
		b.sim.fail("system.energy starts at %v, where nothing was read", s.start.AsTime())
		return
	}
	kind, _, _ := strings.Cut(s.zone, " ")
	if most := b.now.counted[power.Kind(kind)] - from.counted[power.Kind(kind)] + b.rounding(); s.sent > most {
		b.sim.fail("%s has %d µJ since %v, its meters counted %d", s.zone, s.sent, s.start.AsTime(), most)
	}
}

// rounding is the maximum rounding error of a model's sums, in µJ.
func (b *restartBackend) rounding() int64 {
	if b.sim.modeled() {
		return int64(b.read)
	}
	return 0
}

// checkTotals checks that nothing of a zone's energy is lost or invented, over all starts.
func (b *restartBackend) checkTotals(md pmetric.Metrics) {
	if b.sim.faulty() {
		return
	}
	kinds := map[power.Kind]bool{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == "system.energy" {
				for _, p := range m.Sum().DataPoints().All() {
					zone, _ := p.Attributes().Get("energy.zone")
					kinds[power.Kind(zone.AsString())] = true
				}
			}
		}
	}
	for kind := range kinds {
		got, want := b.total(kind), b.offset[kind]+b.now.counted[kind]
		diff := got - want
		switch {
		case b.lossy && diff <= 0, b.behind && diff >= 0:
			b.offset[kind] += diff
		case diff < -b.rounding():
			b.sim.fail("%s: %d µJ are lost after the receiver has "+b.how+": %d of %d", kind, -diff, got, want)
		case diff > b.rounding():
			b.sim.fail("%s: %d µJ are invented after the receiver has "+b.how+": %d of %d", kind, diff, got, want)
		}
	}
}

// checkSum checks that the energy of processes and the unattributed energy add up to the active
// energy, over all data ever received.
func (b *restartBackend) checkSum() {
	sums := map[string]int64{} // by zone and state
	shared := b.sim.s.node.Rules.Idle != config.IdleNone
	for _, s := range b.series {
		zone := s.zone
		if shared {
			zone, _, _ = strings.Cut(zone, " ")
		} else if s.metric == "process.energy" || s.metric == "system.unattributed.energy" {
			zone = cmp.Or(zone, "") + " active"
			zone = strings.Replace(zone, " active active", " active", 1)
		}
		switch s.metric {
		case "process.energy", "system.unattributed.energy":
			sums[zone] += s.value
		case "system.energy":
			sums[zone] -= s.value
		}
	}
	for zone, sum := range sums {
		if strings.HasSuffix(zone, " idle") {
			continue // idle energy belongs to no workload
		}
		if b.behind {
			b.missing[zone] = sum
		}
		if sum != b.missing[zone] {
			b.sim.fail("%s: processes and unattributed are %d µJ more than active", zone, sum-b.missing[zone])
		}
	}
}

func (b *restartBackend) takeGauge(m pmetric.Metric, resource string) {
	for _, p := range m.Gauge().DataPoints().All() {
		series := m.Name() + " " + resource
		for k, v := range p.Attributes().All() {
			series += k + "=" + v.AsString() + ","
		}
		if p.Flags().NoRecordedValue() {
			delete(b.gauges, series)
		} else {
			b.gauges[series] = resource
		}
	}
}

// checkEnds checks that no power series stays for ever. With a lower limit of series than before,
// there are more ended series than are kept, and the ends of some are not sent.
func (b *restartBackend) checkEnds() {
	for series, resource := range b.gauges {
		if b.lastIn[resource] >= b.in {
			continue
		}
		if b.old || b.sim.running&fewerSeries != 0 {
			delete(b.gauges, series)
			continue
		}
		b.sim.fail("the end of %s was not sent", series)
	}
}
