// SPDX-License-Identifier: Apache-2.0

package web

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// maxPoints is the maximum number of points. If there are more, neighbors are joined: no energy
	// is lost, and the time between two points doubles.
	maxPoints = 720
	// maxShares is the maximum number of shares of a point in each division.
	maxShares = 16
	// maxNames is the maximum number of names in the history. If there are more, points are joined.
	maxNames = 20_000
	// maxVanished is the minimum number of rows whose energy is kept after they have vanished.
	maxVanished = 4_096
)

// history makes points of frames, and bounds their number and the bytes of their names.
type history struct {
	identifier
	points []point
	names  map[id]string // of the IDs in points; cut cleans them
	rows   map[id]*energyOfRow
	at     time.Time // of the last frame, as the following fields
	since  time.Time
	sums   sums
	number int64 // number of frames with news
	joined int64 // the version that joined all points last
	join   int   // number of readings of a point
	parts  int   // number of readings of the last point
}

// energyOfRow is the energy of a row in the last two frames with it.
type energyOfRow struct {
	before, now units.Energy
	number      int64 // of the last frame with the row, 0 before the first
}

func newHistory() *history {
	return &history{
		identifier: identifier{maphash.MakeSeed()}, names: map[id]string{}, rows: map[id]*energyOfRow{},
		join: 1, parts: 1,
	}
}

// add adds a frame, and reports whether it has news. The first frame, and the first one after a
// restart, make no point, since a part of the energy would be missing: there is a gap. A frame of the
// same collection as the last one completes its point.
func (h *history) add(f *top.Frame, version int64) (news bool) {
	sums := sumsOf(f)
	used, later := sums.since(h.sums)
	again := f.At.Equal(h.at) && f.Since.Equal(h.since) && later
	if again && sums == h.sums {
		return false
	}
	if h.at.IsZero() || !f.Since.Equal(h.since) || f.At.Before(h.at) || !later {
		clear(h.rows)
		// If energy counts from Since, which is the start of the first period, all of it is in the period.
		h.at, used, later = f.Since, sums, f.Period > 0 && f.At.Sub(f.Since) == f.Period
	}
	h.number++
	p := point{Seq: h.number, End: f.At.UnixMilli(), Seconds: f.At.Sub(h.at).Seconds(), sums: used, version: version}
	h.at, h.since, h.sums = f.At, f.Since, sums
	for d := range numDivisions {
		p.Shares[d] = h.divide(f, d, used)
	}
	h.forgetRows()
	switch last := len(h.points) - 1; {
	case again && last >= 0 && h.points[last].End == p.End:
		h.points[last] = h.points[last].plus(&p)
	case again:
	case !later || f.Period == 0: // a gap
		h.parts = h.join
	case h.parts < h.join:
		h.points[last] = h.points[last].plus(&p)
		h.parts++
	default:
		h.points, h.parts = append(h.points, p), 1
	}
	h.bound(version)
	return true
}

// divide returns the largest shares of a division. With the energy of other rows, they add up to at
// most the energy that is divided.
func (h *history) divide(f *top.Frame, d division, used sums) (shares []share) {
	whole, rows := units.Advance(used.Unattributed, used.Active), []top.Row(nil)
	switch d {
	case top.Processes: // are not in the history
		return nil
	case zones:
		whole, rows = used.Node, rowsOfZones(f)
	case top.GPUs:
		whole, rows = used.Node, f.Tables[d]
	default:
		rows = f.Tables[d]
	}
	changes := h.follow(rows, d)
	var largest selection
	for i := range changes {
		if e := changes[i].used(h.number, whole); e > 0 {
			largest.add(share{changes[i].id, e})
		}
	}
	shares = slices.Clone(largest)
	for i := range shares {
		if whole == 0 { // rows have appeared with energy of earlier intervals, or the source is wrong
			shares = shares[:i]
			break
		}
		shares[i].Used = min(shares[i].Used, whole)
		whole -= shares[i].Used
	}
	for _, c := range changes {
		if slices.ContainsFunc(shares, func(s share) bool { return s.ID == c.id }) && h.names[c.id] == "" {
			h.names[c.id] = nameOf(d, c.row)
		}
	}
	return shares
}

// change is the energy of a row before and after an interval.
type change struct {
	id
	*energyOfRow
	row      *top.Row
	previous int64 // number of the last frame with the row, 0 before the first
}

// follow sets the energies of rows to the energies in a frame. Rows with the same key are one row.
func (h *history) follow(rows []top.Row, d division) (changes []change) {
	for i := range rows {
		r := &rows[i]
		if r.Pinned || r.Energy == 0 {
			continue
		}
		id := h.of(d, r.Key)
		e := h.rows[id]
		if e == nil {
			e = &energyOfRow{}
			h.rows[id] = e
		}
		if e.number != h.number {
			changes = append(changes, change{id, e, r, e.number})
			e.before, e.now, e.number = e.now, 0, h.number
		}
		e.now += r.Energy
	}
	return changes
}

// used returns the energy of a row in an interval with an energy. It is not negative, and energy of a
// row that vanished and appeared again is not counted twice.
func (c *change) used(number int64, whole units.Energy) units.Energy {
	switch {
	case c.previous == number-1 || c.previous > 0 && c.now >= c.before:
		return units.Advance(c.before, c.now)
	case c.now > whole: // it is older than the interval
		return 0
	}
	return c.now
}

// forgetRows bounds the rows that have vanished.
func (h *history) forgetRows() {
	current := 0
	for _, e := range h.rows {
		if e.number == h.number {
			current++
		}
	}
	if len(h.rows) <= 2*current+maxVanished {
		return
	}
	for id, e := range h.rows {
		if e.number != h.number {
			delete(h.rows, id)
		}
	}
}

// bound joins points if there are too many of them, or too many names.
func (h *history) bound(version int64) {
	tooMany := len(h.names) > maxNames
	if tooMany {
		h.forgetNames()
	}
	if len(h.points) <= maxPoints && (!tooMany || len(h.names) <= maxNames*3/4) {
		return
	}
	half := h.points[:0]
	for pair := range slices.Chunk(h.points, 2) {
		p := pair[0]
		if len(pair) == 2 {
			p = p.plus(&pair[1])
		}
		half = append(half, p)
	}
	clear(h.points[len(half):])
	h.points, h.join, h.parts, h.joined = half, h.join*2, h.join, version
	h.forgetNames()
}

// forgetNames removes the names that no point needs.
func (h *history) forgetNames() {
	names := map[id]string{}
	for i := range h.points {
		h.points[i].name(names, h.names)
	}
	h.names = names
}
