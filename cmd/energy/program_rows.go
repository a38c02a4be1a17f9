// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// programs holds the totals of programs between frames, so that the energy of a program does not shrink when
// a series of its processes ends.
type programs struct {
	members map[string]member // the series of the last snapshot, by key
	ended   map[string]member // the series that have ended since the first snapshot, by program
	owners  map[string]string // users that no label names, by the key of the series
}

// member is one or several series of a program.
type member struct {
	program     string
	labels      map[string]string // of the program
	used, total microjoules
}

func newPrograms() programs {
	return programs{members: map[string]member{}, ended: map[string]member{}, owners: map[string]string{}}
}

// nameOwners adds the label of the owner to processes that lack it, if their rows have it from /proc.
func (p *programs) nameOwners(processes []*consumer, rows []top.Row) {
	for i := range rows {
		if r := &rows[i]; r.PID != 0 && r.Text[top.User] != "" {
			p.owners[r.Key] = r.Text[top.User]
		}
	}
	there := make(map[string]bool, len(processes))
	for _, c := range processes {
		there[c.key] = true
		if owner := p.owners[c.key]; owner != "" && c.labels[labelOwner] == "" {
			c.labels[labelOwner] = owner
		}
	}
	maps.DeleteFunc(p.owners, func(key, _ string) bool { return !there[key] })
}

// programRows returns a row for each program, which has the energy of its ended series, too, and
// the rows of the processes that are pinned. It notes in the rows of processes which program they
// are of.
func (f *framer) programRows(processes []*consumer, names names, ofProcesses []top.Row) (rows []top.Row) {
	used, programOf := f.follow(processes)
	all := programsOf(processes)
	for key, m := range f.ended {
		if !slices.ContainsFunc(all, func(c *consumer) bool { return c.key == key }) {
			all = append(all, &consumer{key: key, labels: m.labels, ended: true, cpuTime: -1})
		}
	}
	for _, c := range all {
		gone := f.ended[c.key]
		r := top.Row{
			Key: c.key, Program: c.key, Power: c.power, GPU: c.gpu, Busy: math.NaN(), CPUTime: c.cpuTime,
			Energy: units.Energy(used[c.key] + gone.used), Total: units.Energy(c.energy + gone.total),
		}
		describe(&r, top.Programs, c, names)
		rows = append(rows, r)
	}
	for i := range ofProcesses {
		r := &ofProcesses[i]
		r.Program = programOf[r.Key].program
		if r.Pinned {
			rows = append(rows, *r)
		}
	}
	return rows
}

// follow returns the energy of each program since the first snapshot, without that of the series
// that the snapshot lacks, and the series of the snapshot. It adds the lacking ones to the ended
// ones.
func (f *framer) follow(processes []*consumer) (used map[string]microjoules, now map[string]member) {
	used, now = map[string]microjoules{}, map[string]member{}
	for _, c := range processes {
		if isOverflow(c) {
			continue
		}
		m := member{labels: programLabels(c.labels), used: microjoules(f.used(c.key, c.energy)), total: c.energy}
		m.program = keyOf(m.labels)
		used[m.program] += m.used
		now[c.key] = m
	}
	for key, m := range f.members {
		if _, there := now[key]; there {
			continue
		}
		gone := f.ended[m.program]
		gone.program, gone.labels = m.program, m.labels
		gone.used += m.used
		gone.total += m.total
		f.ended[m.program] = gone
		delete(f.first, key) // another series of these labels begins at 0
	}
	f.members = now
	return used, now
}

// userRows returns the sums of programs by user, and the rows that are pinned, or none if no user is known.
func userRows(programs []top.Row) (rows []top.Row) {
	const unknown = "(unknown)"
	index := map[string]int{}
	var pinned []top.Row
	known := false
	for i := range programs {
		p := &programs[i]
		if p.Pinned {
			pinned = append(pinned, *p)
			continue
		}
		user := p.Text[top.User]
		known = known || user != ""
		if user == "" {
			user = unknown
		}
		at, there := index[user]
		if !there {
			at = len(rows)
			index[user] = at
			r := top.Row{Key: "user " + user, Busy: math.NaN()}
			r.Text[top.Name] = user
			rows = append(rows, r)
		}
		r := &rows[at]
		r.Power += p.Power
		r.GPU += p.GPU
		r.Energy += p.Energy
		r.Total += p.Total
		if r.CPUTime += p.CPUTime; p.CPUTime < 0 {
			r.CPUTime = math.MinInt64 / 2 // it stays unknown
		}
	}
	if !known {
		return nil
	}
	return append(rows, pinned...)
}
