// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Follower makes values of a power.Sensor of the reports that a virtual machine reads again and
// again, over whichever way.
//
// A report is new if its epoch or generation differs from that of the previous report. Within an
// epoch, a step up is energy if power.NewReportCounter accepts it for the time since the total last
// changed. Energy that the host read late arrives in one step; a damaged total is rejected. An
// impossible step up is an error until the next report with a new generation. Under another epoch,
// and after a step down or an impossible step up, counting continues from the new total, and
// nothing is added. A new report without energy means that none was used.
//
// Reports without an epoch are not those of this package. Their steps are bounded by the power of
// the zone, and a counter with a range wraps.
//
// If there is no new report for longer than three of the host's usual intervals, and at least 30 s,
// every zone has an error, and energy that is reported later is added then. A zone that is missing
// in new reports has no reading for the same time, and is then left out: after a restart of the
// host's receiver some zones appear later than others. Time is from the guest's monotonic clock,
// which stops while the guest is suspended. The host's clock appears only in error messages.
//
// The zero Follower is not usable; call NewFollower. A Follower is not safe for concurrent use.
type Follower struct {
	from string // what is read, for errors
	want func(power.Kind) bool

	last    Report // the last news, without its zones
	started bool   // there was a report
	since   time.Time
	gaps    [5]time.Duration // the last times between news, 0 where there were fewer
	newest  int              // index of the newest of gaps
	zones   []*followed
	values  []power.Value
	stale   error // made when the news became stale
}

// Nothing new is stale after minPatience or later. As long as the host's interval is not known,
// that is after firstPatience.
const (
	minPatience   = 30 * time.Second
	firstPatience = 3 * time.Minute
)

var (
	errNothingNew = errors.New("nothing new is reported")
	errBeyond     = errors.New("the energy is beyond the range of the counter")
	errImpossible = errors.New("the energy rose by more than is possible in the elapsed time: the step is not counted")
)

// followed is a zone with its total.
type followed struct {
	power.Zone
	counter *power.Counter // of the epoch, nil before the first report that has the zone
	epoch   string
	total   units.Energy
	// Of the last news that had the zone:
	at     time.Time
	event  power.Event
	err    error
	listed bool // they were the last news
}

// NewFollower returns a follower of reports. from says in errors what they are read from. want
// reports whether zones of the kind are to be read; nil means all.
func NewFollower(from string, want func(power.Kind) bool) *Follower {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	return &Follower{from: from, want: want}
}

// Values returns the values of a report, which was read at the time now. They are valid until the
// next call. The error is that the report has no zone of a wanted kind.
func (f *Follower) Values(r *Report, now time.Time) ([]power.Value, error) {
	if !f.started || r.Epoch != f.last.Epoch || r.Generation != f.last.Generation {
		f.take(r, now)
	}
	return f.current(now, errNothingNew)
}

// Waiting returns the values where there is no report at the time now, for a reason that is likely
// to pass: they have nothing new. Once that is stale, the error is the reason.
func (f *Follower) Waiting(reason error, now time.Time) ([]power.Value, error) {
	if f.since.IsZero() {
		f.since = now
	}
	if f.started {
		return f.current(now, reason)
	}
	if now.Sub(f.since) <= minPatience {
		return nil, nil
	}
	return nil, fmt.Errorf("%s: %w", f.from, reason)
}

// take notes the news of a report.
func (f *Follower) take(r *Report, now time.Time) {
	if f.started {
		f.newest = (f.newest + 1) % len(f.gaps)
		f.gaps[f.newest] = now.Sub(f.since)
	}
	for _, z := range f.zones {
		z.listed = false
	}
	for i := range r.Zones {
		if f.want(r.Zones[i].Kind) {
			f.zone(&r.Zones[i]).take(&r.Zones[i], r.Epoch, now)
		}
	}
	f.last, f.since, f.started, f.stale = *r, now, true, nil
	f.last.Zones = nil
}

// zone returns the state of a reported zone, and makes it for a new one.
func (f *Follower) zone(reported *Zone) *followed {
	zone := power.Zone{
		ID: reported.ID, Name: reported.Name, Kind: reported.Kind, Parent: reported.Parent,
		Method: power.Reported, Domain: units.NodeCPUs, MaxWatts: power.MaxPlatformWatts, // of all sockets together
	}
	if zone.ID == "" {
		zone.ID, zone.Name, zone.Parent = Place(reported.Kind)
	}
	i := slices.IndexFunc(f.zones, func(z *followed) bool { return z.ID == zone.ID })
	switch {
	case i < 0:
		i = len(f.zones)
		f.zones = append(f.zones, &followed{Zone: zone})
	case f.zones[i].Zone != zone: // another zone has taken the ID
		f.zones[i] = &followed{Zone: zone}
	}
	return f.zones[i]
}

// take adds what a report of the epoch has of the zone. The reports before may have lacked the zone.
func (z *followed) take(reported *Zone, epoch string, now time.Time) {
	z.at, z.listed, z.err = now, true, nil
	again := z.counter != nil && z.epoch != epoch
	switch {
	case z.counter == nil, again && (epoch == "" || z.epoch == ""):
		z.counter = newCounter(reported, epoch)
	case again:
		z.counter.Restart()
	}
	z.epoch = epoch
	if reported.Energy > maxEnergy {
		z.err = fmt.Errorf("zone %s: %w", z.ID, errBeyond)
		return
	}
	before := z.counter.Raw()
	energy, event := z.counter.Add(reported.Energy, now)
	switch {
	case again:
		z.event = power.Rebased
	case event == power.Rebased && reported.Energy > before.Energy:
		z.event, z.err = event, fmt.Errorf("zone %s: %w", z.ID, errImpossible)
	case z.event != power.Rebased: // one that no value has had yet
		z.event = event
	}
	z.total = units.AddSaturating(z.total, energy)
}

// raw returns the counter as it was reported last.
func (z *followed) raw() power.Raw {
	raw := z.counter.Raw()
	raw.Epoch = z.epoch
	return raw
}

// newCounter returns a counter of the zone in an epoch, empty where there are none.
func newCounter(z *Zone, epoch string) *power.Counter {
	switch {
	case epoch != "":
		return power.NewReportCounter()
	case z.Range > 0 && z.Range < maxEnergy:
		return power.NewCounter(power.MaxWatts(z.Kind), z.Range)
	}
	return power.NewCounter(power.MaxPlatformWatts, 0)
}

// current returns the values of all zones as of the last news, or why they have nothing new if that is stale.
func (f *Follower) current(now time.Time, reason error) ([]power.Value, error) {
	if f.stale == nil && now.Sub(f.since) > f.patience() {
		f.stale = f.staleFor(reason)
	}
	f.values = f.values[:0]
	for _, z := range f.zones {
		if !z.listed && now.Sub(z.at) > f.patience() {
			continue
		}
		if err := cmp.Or(f.stale, z.err); err != nil {
			f.values = append(f.values, power.FailedValue(&z.Zone, err))
			continue
		}
		f.values = append(f.values, power.TotalValue(&z.Zone, z.total, z.raw(), z.event, z.at))
		z.event = power.NoEvent
	}
	if len(f.values) == 0 {
		return nil, fmt.Errorf("%s: no zone of a configured zone kind", f.from)
	}
	return f.values, nil
}

// staleFor returns the error of stale news. Its text stays the same until there are others.
func (f *Follower) staleFor(reason error) error {
	since := ""
	if !f.last.Time.IsZero() {
		since = " since " + f.last.Time.UTC().Format(time.RFC3339) + " by the hypervisor's clock"
	}
	return fmt.Errorf("%s is stale%s: %w", f.from, since, reason)
}

// patience returns how long nothing may be new: three times the median of the last gaps.
func (f *Follower) patience() time.Duration {
	sorted := f.gaps
	slices.Sort(sorted[:])
	known := sorted[:]
	for len(known) > 0 && known[0] == 0 {
		known = known[1:]
	}
	if len(known) == 0 {
		return firstPatience
	}
	return max(minPatience, 3*known[len(known)/2])
}
