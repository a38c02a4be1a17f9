// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// column is a column of a table of T, on the screen and in plain text.
type column[T any] struct {
	title string
	width int // the last column of a table takes the width that is left
	// from is the minimum width of a terminal that shows the column.
	from  int
	left  bool // aligned to the left
	graph bool // a bar or a sparkline, which plain text does not have
	text  func(t *T, m *Model) string
	order Order // sorts by this column, 0 if the column cannot be sorted by
	// has reports whether the text of a row justifies the column. If has is nil, any text does.
	has func(text string, t *T, m *Model) bool
}

// Order is the sort key of a table.
type Order uint8

// The orders.
const (
	unordered Order = iota
	ByPower
	ByEnergy
	ByTotal
	ByCPUTime
	ByName
	ByPID
	ByUser
)

// orders are the key of each order, its name, and how it compares rows: the first of two comes first.
var orders = [...]struct {
	key, name string
	compare   func(a, b *Row) int
}{
	ByPower:   {"p", "power", func(a, b *Row) int { return cmp.Compare(b.Power, a.Power) }},
	ByEnergy:  {"e", "energy", func(a, b *Row) int { return cmp.Compare(b.Energy, a.Energy) }},
	ByTotal:   {"t", "total", func(a, b *Row) int { return cmp.Compare(b.Total, a.Total) }},
	ByCPUTime: {"c", "CPU time", func(a, b *Row) int { return cmp.Compare(b.CPUTime, a.CPUTime) }},
	ByName:    {"n", "name", func(a, b *Row) int { return compareFold(a.Text[Name], b.Text[Name]) }},
	ByPID:     {"i", "PID", func(a, b *Row) int { return cmp.Compare(a.PID, b.PID) }},
	ByUser:    {"o", "user", func(a, b *Row) int { return compareFold(a.Text[User], b.Text[User]) }},
}

// has reports whether a row has a value for the order. Rows without a value are the last ones.
func (o Order) has(r *Row) bool {
	return (o != ByPower || !math.IsNaN(r.Power)) && (o != ByCPUTime || r.CPUTime >= 0) && (o != ByPID || r.PID != 0) &&
		(o != ByUser || r.Text[User] != "")
}

func compareFold(a, b string) int {
	return cmp.Or(cmp.Compare(strings.ToLower(a), strings.ToLower(b)), cmp.Compare(a, b))
}

// content returns the text of a workload in a column.
type content = func(r *Row, m *Model) string

// figureOf returns a column of figures.
func figureOf(title string, width, from int, order Order, of content) column[Row] {
	return column[Row]{title: title, width: width, from: from, order: order, text: of}
}

// words returns a column of texts.
func words(title string, t Text, width, from int) column[Row] {
	c := column[Row]{title: title, width: width, from: from, left: true, text: func(r *Row, _ *Model) string { return r.Text[t] }}
	if t == User {
		c.order = ByUser
	}
	return c
}

// The columns of workloads. A column of width 0 is a bar, whose width depends on the terminal.
var (
	pid     = figureOf("PID", 8, 0, ByPID, func(r *Row, _ *Model) string { return pidOf(r) })
	power   = figureOf("POWER", 9, 0, ByPower, func(r *Row, _ *Model) string { return watts(r.Power) })
	gpu     = figureOf("GPU", 9, 90, 0, func(r *Row, _ *Model) string { return watts(cmp.Or(r.GPU, math.NaN())) })
	share   = figureOf("SHARE", 7, 50, 0, func(r *Row, m *Model) string { return percent(r.Power / m.frame.Active) })
	bar     = column[Row]{from: 64, left: true, graph: true, text: shareBar, has: fillsCell}
	recent  = column[Row]{title: "2 MIN", width: rowCells, from: 104, left: true, graph: true, text: recentOf, has: isCourse}
	energy  = figureOf("ENERGY", 9, 0, ByEnergy, func(r *Row, m *Model) string { return m.energy(r.Energy) })
	total   = column[Row]{title: "TOTAL", width: 9, from: 130, order: ByTotal, text: totalOf, has: isOther}
	cpuTime = figureOf("CPU TIME", 9, 140, ByCPUTime, func(r *Row, _ *Model) string { return seconds(r) })
	busy    = figureOf("BUSY", 7, 0, 0, func(r *Row, _ *Model) string { return percent(r.Busy) })
	command = column[Row]{title: "COMMAND", width: 30, from: 96, left: true, text: commandOf}
)

// named returns the column of names, and the columns that follow it. Without a column for them,
// arguments follow the name.
func named(title string, more ...column[Row]) []column[Row] {
	name := column[Row]{title: title, width: 18, left: true, order: ByName, text: func(r *Row, m *Model) string {
		if m.width >= command.from || r.Text[Arguments] == "" {
			return r.Text[Name]
		}
		return r.Text[Name] + " " + r.Text[Arguments]
	}}
	return append([]column[Row]{name}, more...)
}

// figures are the columns of figures.
var figures = []column[Row]{power, share, bar, recent, gpu, energy, total, cpuTime}

// tables are the columns of each view.
var tables = [NumViews][]column[Row]{
	Programs: slices.Concat(figures, []column[Row]{words("USER", User, 12, 64)},
		named("PROGRAM", words("POD", Pod, 26, 180), words("UNIT", Unit, 22, wide), command)),
	Processes: slices.Concat([]column[Row]{pid}, figures, []column[Row]{words("USER", User, 9, 72)},
		named("PROCESS", words("POD", Pod, 26, 190), words("UNIT", Unit, 22, wide), command)),
	Users: slices.Concat(figures, named("USER")),
	Containers: slices.Concat(figures, named("CONTAINER", words("NAMESPACE", Namespace, 16, 140),
		words("POD", Pod, 26, 96), words("RUNTIME", Runtime, 10, 120), words("ID", ID, 12, 150), words("IMAGE", Image, 36, 180))),
	Pods: slices.Concat(figures, named("POD", words("NAMESPACE", Namespace, 16, 76), words("CLASS", Class, 10, 100),
		words("UID", ID, 36, 140))),
	Namespaces: slices.Concat(figures, named("NAMESPACE")),
	VMs:        slices.Concat(figures, named("VM", words("HYPERVISOR", Runtime, 12, 76), words("ID", ID, 36, 120))),
	Units:      slices.Concat(figures, named("UNIT")),
	Jobs:       slices.Concat(figures, named("JOB")),
	GPUs:       slices.Concat([]column[Row]{power, busy, recent, energy, total}, named("GPU", words("ID", ID, 40, 90))),
}

// zoneColumns are the columns of the node's zones.
var zoneColumns = []column[Zone]{
	{title: "ZONE", width: 18, left: true, text: func(z *Zone, _ *Model) string { return plainName(z.Name) }},
	{title: "POWER", width: 9, text: func(z *Zone, _ *Model) string { return watts(z.Active + z.Idle) }},
	{title: "ACTIVE", width: 9, from: 40, text: func(z *Zone, _ *Model) string { return watts(z.Active) }},
	{from: 64, left: true, graph: true, text: func(z *Zone, m *Model) string { return stackOf(z, m.largest, m.bar) }},
	{title: "IDLE", width: 9, from: 50, text: func(z *Zone, _ *Model) string { return watts(z.Idle) }},
	{title: "ENERGY", width: 9, from: 100, text: func(z *Zone, m *Model) string { return m.energy(z.Energy) }},
	{title: "SOURCE", width: 20, from: 66, left: true, text: func(z *Zone, _ *Model) string { return sourceOf(z) }},
}

// plainNames are words for the names of zone kinds.
var plainNames = map[string]string{
	"package": "CPU", "core": "CPU cores", "uncore": "CPU graphics", "dram": "Memory", "psys": "Mainboard",
	"platform": "Machine", "gpu": "GPU", "other": "Other parts",
}

// ZoneWords returns a zone kind in words, such as Memory for dram, or else its name.
func ZoneWords(zone string) string { return cmp.Or(plainNames[zone], zone) }

// plainName returns the name of a zone kind with words for it in front.
func plainName(zone string) string {
	words := ZoneWords(zone)
	if strings.EqualFold(words, zone) {
		return words
	}
	return words + " (" + zone + ")"
}

// sourceOf returns how the figures of a zone came to be, and their error.
func sourceOf(z *Zone) string {
	text := z.Source + uncertainty(z.Uncertainty)
	if z.Besides != "" {
		return text + ", not added"
	}
	return text
}

// uncertainty returns " ±74 %", or an empty text without an error.
func uncertainty(u float64) string {
	if !(u > 0) || math.IsInf(u, 0) {
		return ""
	}
	return " ±" + strconv.FormatFloat(100*u, 'f', 0, 64) + " %"
}

// fills reports whether a column has content for at least one row.
func (c *column[T]) fills(rows []T, m *Model) bool {
	if c.order == ByPower || c.order == ByEnergy || c.order == ByName {
		return true
	}
	for i := range rows {
		if r, isRow := any(&rows[i]).(*Row); isRow && (r.Pinned || m.empty(r) && !m.zeros) {
			continue // pinned below the rows, or hidden
		}
		if text := c.text(&rows[i], m); text != "" && text != "-" && (c.has == nil || c.has(text, &rows[i], m)) {
			return true
		}
	}
	return false
}

// fitting returns the columns that a table has at a width, and always the column that it is
// sorted by. Empty columns are left out.
func fitting[T any](all []column[T], rows []T, width int, m *Model) (columns []column[T]) {
	for _, c := range all {
		if c.from > width && (c.order == unordered || c.order != m.order) {
			continue
		}
		c.width = cmp.Or(c.width, m.bar)
		if c.graph && m.plain || !c.fills(rows, m) {
			continue
		}
		if c.order == ByName {
			c.width += max(width-100, 0) / 8
		}
		columns = append(columns, c)
	}
	return columns
}

// wide is the minimum width of a terminal that has a column of units.
const wide = 200

// commandOf returns the container or virtual machine of a program, and its command line. The unit
// replaces both if they are empty.
func commandOf(r *Row, m *Model) string {
	place, line := cmp.Or(r.Text[Container], r.Text[Pod]), cmp.Or(r.Text[Command], r.Text[Arguments])
	if place == "" && r.Text[VM] != "" {
		place = "vm " + r.Text[VM]
	}
	if place != "" && line != "" {
		return place + " · " + line
	}
	if m.width >= wide {
		return cmp.Or(place, line)
	}
	return cmp.Or(place, line, r.Text[Unit])
}

func pidOf(r *Row) string {
	if r.PID == 0 {
		return ""
	}
	return strconv.Itoa(int(r.PID))
}

// A column is shown for several steps of a sparkline, for a bar that fills a cell, or for a total that
// is another figure than the energy.
func isCourse(_ string, _ *Row, m *Model) bool    { return m.course }
func fillsCell(bar string, _ *Row, _ *Model) bool { return strings.HasPrefix(bar, "█") }
func isOther(total string, r *Row, m *Model) bool { return total != m.energy(r.Energy) }

func shareBar(r *Row, m *Model) string { return barOf(r.Power/m.frame.Active, m.bar) }
func totalOf(r *Row, m *Model) string  { return m.energy(r.Total) }

// recentOf returns the sparkline of a row.
func recentOf(r *Row, m *Model) string {
	var joules []float64
	if row := m.history.rows[m.view][r.Key]; row != nil {
		joules = row[:]
	}
	return sparkline(m.history.powers(joules, m.frame.At, rowCells))
}

func watts(w float64) string {
	switch {
	case math.IsNaN(w):
		return "-"
	case math.Abs(w) < shown: // not -0.00
		w = 0
	}
	return figure.Watts(w)
}

func percent(part float64) string {
	if math.IsNaN(part) || math.IsInf(part, 0) {
		return "-"
	}
	return strconv.FormatFloat(100*max(part, 0), 'f', 1, 64) + " %"
}

func seconds(r *Row) string {
	if r.CPUTime < 0 {
		return "-"
	}
	return figure.Seconds(r.CPUTime)
}
