// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strconv"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// division is a way to divide the energy of a point: by the rows of a view, or by zones.
type division = top.View

// zones divides by the zones that are added.
const (
	zones        = top.NumViews
	numDivisions = zones + 1
)

// id identifies a row of a division. It is a keyed hash: no process can choose a name with the ID,
// and so the color, of another one.
type id uint64

// MarshalText implements encoding.TextMarshaler. A number would lose digits in JavaScript.
func (i id) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(i), 36), nil }

// identifier makes IDs.
type identifier struct{ seed maphash.Seed }

func (i identifier) of(d division, key string) id {
	var h maphash.Hash
	h.SetSeed(i.seed)
	_ = h.WriteByte(byte(d))
	_, _ = h.WriteString(key)
	return id(h.Sum64())
}

// point is the energy of an interval. The energies are differences, so that points can be joined and
// areas in a chart are energies.
type point struct {
	// Seq identifies the point. It increases.
	Seq int64 `json:"seq"`
	// End is the timestamp of the figures, in milliseconds since 1970.
	End     int64   `json:"t"`
	Seconds float64 `json:"s"`
	sums
	Shares divided `json:"v"`
	// version is the version of the server that changed the point last.
	version int64
}

// sums are the energies of the node. Active includes Unattributed.
type sums struct {
	Node         units.Energy `json:"node"`
	Active       units.Energy `json:"active"`
	Unattributed units.Energy `json:"un"`
}

func sumsOf(f *top.Frame) (s sums) {
	s.Node = f.Node
	for i := range f.Zones {
		if z := &f.Zones[i]; z.Besides == "" {
			s.Active += z.ActiveEnergy
			s.Unattributed += z.Unattributed
		}
	}
	return s
}

// since returns the energies since an earlier reading. It reports false if one of them is lower.
func (s sums) since(earlier sums) (sums, bool) {
	s, later := sums{s.Node - earlier.Node, s.Active - earlier.Active, s.Unattributed - earlier.Unattributed},
		s.Node >= earlier.Node && s.Active >= earlier.Active && s.Unattributed >= earlier.Unattributed
	return s, later
}

// divided holds the largest shares of each division.
type divided [numDivisions][]share

// MarshalJSON implements json.Marshaler. Divisions without shares are omitted.
func (d divided) MarshalJSON() ([]byte, error) {
	named := map[string][]share{}
	for i, shares := range d {
		if len(shares) > 0 {
			named[nameOfDivision(division(i))] = shares
		}
	}
	return json.Marshal(named)
}

func nameOfDivision(d division) string {
	if d == zones {
		return "zones"
	}
	return d.String()
}

type share struct {
	ID   id           `json:"i"`
	Used units.Energy `json:"e"`
}

// rowsOfZones returns the zones that are added as rows.
func rowsOfZones(f *top.Frame) (rows []top.Row) {
	for i := range f.Zones {
		if z := &f.Zones[i]; z.Besides == "" {
			r := top.Row{Key: keyOfZone(z), Energy: z.Energy}
			r.Text[top.Name] = titleOfZone(z.Name)
			rows = append(rows, r)
		}
	}
	return rows
}

// name copies the names of all shares of a point.
func (p *point) name(to, from map[id]string) {
	for _, shares := range p.Shares {
		for _, s := range shares {
			to[s.ID] = from[s.ID]
		}
	}
}

// plus returns the point joined with a later one. Seq stays.
func (p point) plus(next *point) point {
	p.End, p.version = next.End, next.version
	p.Seconds += next.Seconds
	p.Node += next.Node
	p.Active += next.Active
	p.Unattributed += next.Unattributed
	for d := range p.Shares {
		both := slices.Concat(p.Shares[d], next.Shares[d])
		slices.SortFunc(both, func(a, b share) int { return cmp.Compare(a.ID, b.ID) })
		var largest selection
		for i := 0; i < len(both); {
			s := both[i]
			for i++; i < len(both) && both[i].ID == s.ID; i++ {
				s.Used += both[i].Used
			}
			largest.add(s)
		}
		p.Shares[d] = slices.Clone(largest)
	}
	return p
}

// selection holds the largest shares, in descending order.
type selection []share

func (l *selection) add(s share) {
	if len(*l) == maxShares && (*l)[maxShares-1].Used >= s.Used {
		return
	}
	at, _ := slices.BinarySearchFunc(*l, s, func(a, b share) int { return cmp.Compare(b.Used, a.Used) })
	*l = slices.Insert(*l, at, s)
	*l = (*l)[:min(len(*l), maxShares)]
}
