// SPDX-License-Identifier: Apache-2.0

// Package web serves a page of live figures, and writes reports as files of one page.
package web

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// maxPoints bounds the history. Where it is full, neighbors are joined: no energy is lost, and
	// the time between two points doubles.
	maxPoints = 720
	// maxShares is the maximum number of rows that a point has of each view.
	maxShares = 16
)

// charted are the views that the chart can show.
var charted = []top.View{top.Programs, top.Users, top.Containers, top.Pods, top.VMs, top.Units, top.Jobs, top.GPUs}

var viewNames = [top.NumViews]string{"Programs", "Processes", "Users", "Containers", "Pods", "Namespaces", "VMs", "Units", "Jobs", "GPUs"}

// point is the energy of an interval. Energies are differences, so that the area of the chart is energy and
// points can be joined.
type point struct {
	Seq          int64              `json:"seq"`
	End          int64              `json:"t"` // milliseconds since 1970
	Seconds      float64            `json:"s"`
	Node         units.Energy       `json:"node"` // microjoules
	Active       units.Energy       `json:"active"`
	Unattributed units.Energy       `json:"un"`
	Shares       map[string][]share `json:"v"`
}

type share struct {
	ID   string       `json:"i"`
	Used units.Energy `json:"e"`
}

// history makes points of frames.
type history struct {
	seed     maphash.Seed
	points   []point
	names    map[string]string // of the IDs in points
	previous map[string]units.Energy
	node     units.Energy
	at       time.Time
	seq      int64
	join     int // a point is appended to the last one until it has so many parts
	parts    int
}

func newHistory() *history {
	return &history{seed: maphash.MakeSeed(), names: map[string]string{}, join: 1}
}

// id is short, and no name of a process can be chosen to collide with another one's.
func (h *history) id(view top.View, key string) string {
	return strconv.FormatUint(maphash.String(h.seed, viewNames[view]+"\x00"+key), 36)
}

// add adds a frame. The first one, and one of a source that began anew, only begin.
func (h *history) add(f *top.Frame) {
	now := map[string]units.Energy{}
	h.seq++
	p := point{Seq: h.seq, End: f.At.UnixMilli(), Seconds: f.At.Sub(h.at).Seconds(), Shares: map[string][]share{}}
	for _, view := range charted {
		var shares []share
		rows := map[string]*top.Row{}
		for i := range f.Tables[view] {
			r := &f.Tables[view][i]
			id := h.id(view, r.Key)
			now[id] = r.Energy
			used := units.Advance(h.previous[id], r.Energy)
			if view == top.Programs {
				p.Active += used
			}
			if r.Pinned && view == top.Programs && isUnattributed(r) {
				p.Unattributed += used
			}
			if r.Pinned || used == 0 {
				continue
			}
			shares, rows[id] = append(shares, share{id, used}), r
		}
		if len(shares) > 0 {
			p.Shares[viewNames[view]] = largest(shares)
		}
		for _, s := range p.Shares[viewNames[view]] {
			if h.names[s.ID] == "" {
				h.names[s.ID] = figure.Line(nameOf(view, rows[s.ID]))
			}
		}
	}
	p.Node = units.Advance(h.node, f.Node)
	began := h.previous == nil || f.Node < h.node
	h.previous, h.node, h.at = now, f.Node, f.At
	if began || p.Seconds <= 0 {
		return
	}
	if n := len(h.points); n > 0 && h.parts < h.join {
		h.points[n-1] = joined(h.points[n-1], p)
		h.parts++
	} else {
		h.points, h.parts = append(h.points, p), 1
	}
	if len(h.points) > maxPoints {
		h.halve()
	}
}

// nameOf returns a name that tells programs of one name apart.
func nameOf(view top.View, r *top.Row) string {
	name := r.Text[top.Name]
	if where := cmp.Or(r.Text[top.Pod], r.Text[top.Container], r.Text[top.VM]); where != "" && view == top.Programs {
		name += " · " + where
	}
	return name
}

func isUnattributed(r *top.Row) bool { return len(r.Key) > 12 && r.Key[:12] == "unattributed" }

// halve joins neighbors, and forgets the names of what no point has.
func (h *history) halve() {
	half := h.points[:0]
	for i := 0; i+1 < len(h.points); i += 2 {
		half = append(half, joined(h.points[i], h.points[i+1]))
	}
	if len(h.points)%2 == 1 {
		half = append(half, h.points[len(h.points)-1])
	}
	h.points, h.join, h.parts = slices.Clip(half), h.join*2, 1
	names := map[string]string{}
	for i := range h.points {
		for _, shares := range h.points[i].Shares {
			for _, s := range shares {
				names[s.ID] = h.names[s.ID]
			}
		}
	}
	h.names = names
}

func joined(a, b point) point {
	p := point{
		Seq: b.Seq, End: b.End, Seconds: a.Seconds + b.Seconds, Node: a.Node + b.Node, Active: a.Active + b.Active,
		Unattributed: a.Unattributed + b.Unattributed, Shares: map[string][]share{},
	}
	views := maps.Clone(a.Shares)
	maps.Copy(views, b.Shares)
	for view := range views {
		sum := map[string]units.Energy{}
		for _, s := range slices.Concat(a.Shares[view], b.Shares[view]) {
			sum[s.ID] += s.Used
		}
		var shares []share
		for id, used := range sum {
			shares = append(shares, share{id, used})
		}
		p.Shares[view] = largest(shares)
	}
	return p
}

func largest(shares []share) []share {
	slices.SortFunc(shares, func(a, b share) int { return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.ID, b.ID)) })
	return shares[:min(len(shares), maxShares)]
}
