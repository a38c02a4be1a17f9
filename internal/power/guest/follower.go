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

// Follower converts the reports that a virtual machine reads to readings of zones. The reports may
// come from a directory or over vsock.
//
// A report is new if its epoch or generation differs from the previous report. If the energy of a
// zone is unchanged in a new report, the zone used no energy. Reports without an epoch come from
// another program, and their counters may wrap.
//
// If there is no new report for longer than three usual intervals of the host, and at least 30 s,
// every zone has an error. The next new report adds the energy of this time. If new reports do not
// contain a zone, its last reading is repeated for the same time, and the zone is then omitted.
// After a restart of the host's receiver, some zones appear later than others. All times are from
// the guest's monotonic clock, which stops while the guest is suspended. The host's clock is used
// only in error messages.
//
// The zero Follower is not usable; call NewFollower. A Follower is not safe for concurrent use.
type Follower struct {
	from string // source of the reports, for errors
	want func(power.Kind) bool

	last    Report // the last new report, without its zones
	started bool   // at least one report was read
	since   time.Time
	gaps    [5]time.Duration // the last times between new reports, 0 if there were fewer
	newest  int              // index of the newest of gaps
	zones   []*followed
	shown   []power.Shown
	stale   error // error since the last report became stale, or nil
}

// minPatience is the minimum time until a report becomes stale. Until the host's interval has been
// determined, a report becomes stale after firstPatience.
const (
	minPatience   = 30 * time.Second
	firstPatience = 3 * time.Minute
)

var (
	errNothingNew = errors.New("nothing new is reported")
	errBeyond     = errors.New("the energy is beyond the range of the counter")
)

// followed is a zone with its last reading.
type followed struct {
	power.Shown
	listed bool // the last report contained the zone
}

// NewFollower returns a follower. from is the source of the reports in errors, such as a path. want
// reports whether to read zones of a kind. If want is nil, all zones are read.
func NewFollower(from string, want func(power.Kind) bool) *Follower {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	return &Follower{from: from, want: want}
}

// Show returns the zones of a report that was read at the time now. The result is valid until the
// next call. If the report has no zone of a wanted kind, Show returns an error.
func (f *Follower) Show(r *Report, now time.Time) ([]power.Shown, error) {
	if !f.started || r.Epoch != f.last.Epoch || r.Generation != f.last.Generation {
		f.take(r, now)
	}
	return f.current(now, errNothingNew)
}

// Waiting returns the last readings of the zones. It is called instead of Show if no report could
// be read at the time now, for a reason that is probably temporary. If the last report is stale,
// the zones have this reason as their error.
func (f *Follower) Waiting(reason error, now time.Time) ([]power.Shown, error) {
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

// take stores a new report.
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
			f.show(&r.Zones[i], r.Epoch, now)
		}
	}
	f.last, f.since, f.started, f.stale = *r, now, true, nil
	f.last.Zones = nil
}

// show stores the reading of a zone in a report with the given epoch.
func (f *Follower) show(reported *Zone, epoch string, now time.Time) {
	zone := power.Zone{
		ID: reported.ID, Name: reported.Name, Kind: reported.Kind, Parent: reported.Parent,
		Method: power.Reported, Domain: units.NodeCPUs, MaxWatts: power.MaxPlatformWatts, // of all sockets together
	}
	if zone.ID == "" {
		zone.ID, zone.Name, zone.Parent = Place(reported.Kind)
	}
	shown := power.Shown{At: now, Counter: reported.Energy, Epoch: epoch}
	if epoch == "" && reported.Range > 0 && reported.Range < maxEnergy { // a counter of one zone, which wraps
		shown.Range, zone.MaxWatts = reported.Range, power.MaxWatts(zone.Kind)
	}
	if reported.Energy > maxEnergy {
		shown.Err = fmt.Errorf("zone %s: %w", zone.ID, errBeyond)
	}
	i := slices.IndexFunc(f.zones, func(z *followed) bool { return z.Zone.ID == zone.ID })
	if i < 0 {
		i = len(f.zones)
		f.zones = append(f.zones, new(followed))
	}
	shown.Zone = f.zones[i].Zone
	if shown.Zone == nil || !isSame(*shown.Zone, zone) { // another zone may have taken the ID
		other := zone // only a new zone is allocated
		shown.Zone = &other
	}
	*f.zones[i] = followed{shown, true}
}

// isSame reports whether two zones are the same. The range of a zone can be missing in some
// reports. It determines MaxWatts.
func isSame(a, b power.Zone) bool {
	a.MaxWatts = b.MaxWatts
	return a == b
}

// current returns the readings of all zones in the last new report. If that report is stale, the
// zones have an error with the given reason.
func (f *Follower) current(now time.Time, reason error) ([]power.Shown, error) {
	if f.stale == nil && now.Sub(f.since) > f.patience() {
		f.stale = f.staleFor(reason)
	}
	f.shown = f.shown[:0]
	for _, z := range f.zones {
		if !z.listed && now.Sub(z.At) > f.patience() {
			continue
		}
		shown := z.Shown
		shown.Err = cmp.Or(f.stale, shown.Err)
		f.shown = append(f.shown, shown)
	}
	if len(f.shown) == 0 {
		return nil, fmt.Errorf("%s: no zone of a configured zone kind", f.from)
	}
	return f.shown, nil
}

// staleFor returns the error of a stale report. Its text is the same until there is a new report.
func (f *Follower) staleFor(reason error) error {
	since := ""
	if !f.last.Time.IsZero() {
		since = " since " + f.last.Time.UTC().Format(time.RFC3339) + " by the hypervisor's clock"
	}
	return fmt.Errorf("%s is stale%s: %w", f.from, since, reason)
}

// patience returns the time after which the last report is stale: three times the median of the
// last gaps, and at least minPatience.
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
