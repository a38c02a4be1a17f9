// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// The bounds of the history. If there are more points, adjacent points are joined: no energy is lost, and the
// time between two points doubles.
const (
	maxPoints = 720
	// maxShares is the maximum number of shares of a point in each view.
	maxShares    = 12
	maxNameBytes = 64
	// maxVanished is the minimum number of rows whose energy is kept after they disappear.
	maxVanished = 4_096
)

// zones is the name of the zones in points. All other names belong to views.
const zones = "zones"

// id identifies a row of a view. It is a keyed hash: no process can choose a name with the ID, and so
// the color, of another one.
type id uint64

// MarshalText implements encoding.TextMarshaler. A number would lose digits in JavaScript.
func (i id) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(i), 36), nil }

func idOf(seed maphash.Seed, view, key string) id {
	return id(maphash.Comparable(seed, struct{ view, key string }{view, key}))
}

// point is the energy of an interval. The energies are differences, so that points can be joined and
// areas in a chart are energies.
type point struct {
	// End is the timestamp of the figures, in milliseconds since 1970.
	End     int64   `json:"t"`
	Seconds float64 `json:"s"`
	sums
	// Shares are the largest shares by view.
	Shares map[string][]share `json:"v"`
	// version is the version of the server that changed the point last.
	version int64
}

// sums are the energies of the node. Active includes Unattributed.
type sums struct {
	Node         units.Energy `json:"node"`
	Active       units.Energy `json:"active"`
	Unattributed units.Energy `json:"un"`
}

func sumsOf(f *top.Frame) sums {
	z := top.Sum(f.Zones)
	return sums{f.Node, z.ActiveEnergy, z.Unattributed}
}

func (s sums) plus(b sums) sums {
	return sums{s.Node + b.Node, s.Active + b.Active, s.Unattributed + b.Unattributed}
}

// since returns the energies since an earlier reading. It returns false if one of them is lower.
func (s sums) since(earlier sums) (sums, bool) {
	return sums{s.Node - earlier.Node, s.Active - earlier.Active, s.Unattributed - earlier.Unattributed},
		s.Node >= earlier.Node && s.Active >= earlier.Active && s.Unattributed >= earlier.Unattributed
}

type share struct {
	ID   id           `json:"i"`
	Used units.Energy `json:"e"`
	name string
}

// history makes points of frames, and bounds their number.
type history struct {
	seed      maphash.Seed
	points    []point
	rows      map[id]units.Energy // of each row in the last frame with it
	at, since time.Time           // of the last frame
	sums      sums                // of the last frame
	shortest  float64             // a point of fewer seconds is joined with the next one
	joined    int64               // the version that joined all points last
}

func newHistory() *history { return &history{seed: maphash.MakeSeed()} }

// add adds a frame, and reports whether it has news. The first frame, and the first one after a
// restart, make no point, since a part of the energy would be missing: there is a gap. A frame of the
// same collection as the last one completes its point.
func (h *history) add(f *top.Frame, version int64) (news bool) {
	sums := sumsOf(f)
	used, later := sums.since(h.sums)
	begin := h.at
	switch {
	case f.At.Equal(begin) && f.Since.Equal(h.since) && sums == h.sums:
		return false
	case begin.IsZero() || !f.Since.Equal(h.since) || f.At.Before(begin) || !later:
		h.rows = nil
		// If energy counts from Since, which is the start of the first period, all of it is in the period.
		begin, used, later = f.Since, sums, !f.At.Before(begin) && f.At.Sub(f.Since) == f.Period
	}
	h.at, h.since, h.sums = f.At, f.Since, sums
	p := point{
		End: f.At.UnixMilli(), Seconds: f.At.Sub(begin).Seconds(), sums: used, Shares: h.divide(f, used), version: version,
	}
	last := len(h.points) - 1
	switch {
	case !later || f.Period == 0: // a gap
	case last >= 0 && h.points[last].End == begin.UnixMilli() && (p.Seconds == 0 || h.points[last].Seconds < h.shortest):
		h.points[last].join(&p)
	case p.Seconds > 0:
		h.points = append(h.points, p)
	}
	if len(h.points) > maxPoints {
		h.joinAll(version)
	}
	return true
}

// divide returns the largest shares of an energy in each view. Processes are not in the history.
func (h *history) divide(f *top.Frame, whole sums) map[string][]share {
	all, now := map[string][]share{}, map[id]units.Energy{}
	add := func(view string, rows []top.Row, whole units.Energy) {
		if shares := h.sharesOf(view, rows, whole, now); len(shares) > 0 {
			all[view] = shares
		}
	}
	for view := range top.NumViews {
		switch view {
		case top.Processes:
		case top.GPUs:
			add(view.String(), f.Tables[view], whole.Node)
		default:
			add(view.String(), f.Tables[view], units.Advance(whole.Unattributed, whole.Active))
		}
	}
	add(zones, rowsOfZones(f.Zones), whole.Node)
	if len(h.rows) > 2*len(now)+maxVanished || h.rows == nil {
		h.rows = now
	}
	maps.Copy(h.rows, now)
	return all
}

// sharesOf returns the largest shares of rows in an energy, and sets the energies of the rows in now.
// With the energy of other rows, the shares add up to at most the whole. Rows with the same key are one
// row. A row that vanished and appeared again is not counted twice, and a new row whose energy exceeds
// the whole is older than the interval.
func (h *history) sharesOf(view string, rows []top.Row, whole units.Energy, now map[id]units.Energy) (shares []share) {
	for i := range rows {
		r := &rows[i]
		if r.Pinned || r.Energy == 0 {
			continue
		}
		id := idOf(h.seed, view, r.Key)
		if now[id] == 0 {
			shares = append(shares, share{ID: id, name: nameOf(view, r)})
		}
		now[id] += r.Energy
	}
	for i := range shares {
		s := &shares[i]
		before, known := h.rows[s.ID]
		if s.Used = units.Advance(before, now[s.ID]); !known && s.Used > whole {
			s.Used = 0
		}
	}
	shares = largest(shares)
	for i := range shares {
		s := &shares[i]
		s.Used = min(s.Used, whole)
		s.name = strings.Clone(s.name) // the name of a row is a part of all that was read
		whole -= s.Used
	}
	return slices.DeleteFunc(shares, func(s share) bool { return s.Used == 0 })
}

// largest returns the largest shares, in descending order.
func largest(shares []share) []share {
	slices.SortFunc(shares, func(a, b share) int { return cmp.Compare(b.Used, a.Used) })
	return slices.Clone(shares[:min(len(shares), maxShares)])
}

// join joins a point with a later one.
func (p *point) join(next *point) {
	p.End, p.version = next.End, next.version
	p.Seconds += next.Seconds
	p.sums = p.plus(next.sums)
	for view, shares := range next.Shares {
		both := slices.Concat(p.Shares[view], shares)
		slices.SortFunc(both, func(a, b share) int { return cmp.Compare(a.ID, b.ID) })
		sum := both[:0]
		for _, s := range both {
			if last := len(sum) - 1; last >= 0 && sum[last].ID == s.ID {
				sum[last].Used += s.Used
			} else {
				sum = append(sum, s)
			}
		}
		p.Shares[view] = largest(sum)
	}
}

// joinAll joins pairs of points.
func (h *history) joinAll(version int64) {
	half, seconds := h.points[:0], 0.0
	for pair := range slices.Chunk(h.points, 2) {
		p := pair[0]
		if len(pair) == 2 {
			p.join(&pair[1])
		}
		half = append(half, p)
		seconds += p.Seconds
	}
	clear(h.points[len(half):])
	h.points, h.joined, h.shortest = half, version, 0.9*seconds/float64(len(half))
}

// rowsOfZones returns the zones that are added as rows.
func rowsOfZones(zones []top.Zone) (rows []top.Row) {
	for i := range zones {
		if z := &zones[i]; z.Besides == "" {
			r := top.Row{Key: keyOfZone(z), Energy: z.Energy}
			r.Text[top.Name] = top.ZoneWords(z.Name)
			rows = append(rows, r)
		}
	}
	return rows
}

// keyOfZone distinguishes a zone from others of a frame.
func keyOfZone(z *top.Zone) string { return z.Name + "\x00" + z.Source }

// nameOf returns the name of a row in the history. It is cleaned when it is sent.
func nameOf(view string, r *top.Row) string {
	name := r.Text[top.Name]
	if of := cmp.Or(r.Text[top.Pod], r.Text[top.Container], r.Text[top.VM]); of != "" && view == top.Programs.String() {
		name += " · " + of
	}
	return name[:min(len(name), maxNameBytes)]
}
