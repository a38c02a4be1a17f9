// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
)

// Screens of fewer lines than tall have no lines for zones, sums and notes. Screens of at least
// roomy lines have a blank line below the zones.
const tall, roomy = 16, 30

// plainWidth is the width of plain tables.
const plainWidth = 130

// painter writes lines from the top down.
type painter struct {
	*screen.Grid
	m             *Model
	width, height int
	y             int // the next line
}

// Draw returns the screen, and the model with its layout.
func (m Model) Draw(width, height int) (*screen.Grid, Model) {
	p := painter{Grid: screen.NewGrid(width, height), m: &m, width: width, height: height}
	p.Mouse = m.mouse
	m.layout = layout{width: width, bar: max(6, min(width/10, 24))}
	m.course = m.frame != nil && !math.IsNaN(m.history.powers(m.history.node[:], m.frame.At, 2)[0])
	switch {
	case m.help:
		p.help()
		return p.Grid, m
	case m.frame == nil:
		p.line(screen.Bold, "energy top")
		p.y++
		style := screen.Bold
		if m.failed {
			style = screen.Bad
		}
		p.wrap(style, m.status)
		p.y++
		for _, n := range m.message.notes {
			p.wrap(screen.Plain, n)
		}
	default:
		p.title()
		p.node()
		if height >= roomy {
			p.y++
		}
		p.tabs()
		p.table()
	}
	p.hints()
	return p.Grid, m
}

// Text returns the zones and the first rows of the tables of all views as plain text. The model must
// have a frame.
func (m Model) Text(rows int) string {
	const around = 12 // lines besides the rows of a table
	height := around + len(m.frame.Zones) + 10*len(m.message.notes)
	for _, v := range m.views() {
		height += around + min(rows, len(m.frame.Tables[v]))
	}
	p := painter{Grid: screen.NewGrid(plainWidth, height), m: &m, width: plainWidth, height: height}
	m.layout = layout{plain: true, width: plainWidth}
	p.title()
	p.node()
	for _, m.view = range m.views() {
		l := m.list()
		shown := l.rows[:min(rows, len(l.rows))]
		columns := fitting(tables[m.view], m.frame.Tables[m.view], p.width, &m)
		p.y++
		p.head(columns)
		for _, r := range slices.Concat(shown, l.pinned) {
			p.row(columns, r, false)
		}
		p.line(screen.Plain, m.sums(&l, shown))
	}
	notes, faults := m.notes()
	for i, text := range notes {
		p.wrap(noteStyle(i, faults), text)
	}
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// put writes a text from a column on, and returns the column two after it.
func (p *painter) put(x int, style screen.Style, text string) int {
	return x + p.Put(x, p.y, p.width-x, style, text) + 2
}

// end writes a text at the end of the line if there is room, in plain text from a column on.
func (p *painter) end(x int, text string) {
	if p.m.plain {
		p.put(x, screen.Plain, text)
	} else if figure.Width(text) <= p.width-x {
		p.PutRight(x, p.y, p.width-x, screen.Plain, text)
	}
	p.y++
}

// line writes a line.
func (p *painter) line(style screen.Style, text string) {
	p.put(0, style, text)
	p.y++
}

// wrap writes the lines of a text, in as many lines as they need.
func (p *painter) wrap(style screen.Style, text string) {
	for paragraph := range strings.Lines(text) {
		var b strings.Builder
		figure.WrapIn(&b, paragraph, p.width)
		for line := range strings.Lines(b.String()) {
			p.line(style, strings.TrimSuffix(line, "\n"))
		}
	}
}

// key writes a text. A click on it is the same as a key.
func (p *painter) key(x int, style screen.Style, text string, k screen.Key) int {
	end := p.put(x, style, text) - 2
	p.m.spots = append(p.m.spots, spot{p.y, x, end, k})
	return end
}

// title writes the source of the figures and their error, and then the node and the time if there
// is room.
func (p *painter) title() {
	f, x := p.m.frame, 0
	if p.width >= 60 {
		x = p.put(x, screen.Bold, "energy top")
	}
	word, style := origin(f.Zones)
	x = p.put(x, style, word)
	if p.m.paused {
		x = p.put(x, screen.Bold, "PAUSED")
	}
	clock := f.At.Format("15:04:05")
	if figure.Width(f.Host)+len(clock)+2 <= p.width-x {
		x = p.put(x, screen.Plain, f.Host)
	}
	p.end(x, clock)
}

// origin returns the source of the figures of zones, and the expected error of the sum of their powers.
func origin(zones []Zone) (string, screen.Style) {
	has := func(source string) bool {
		return slices.ContainsFunc(zones, func(z Zone) bool { return z.Source == source })
	}
	within := uncertainty(Sum(zones).Uncertainty)
	switch modeled, reported, measured := has("modeled"), has("reported"), has("measured"); {
	case modeled && (measured || reported):
		return "PARTLY ESTIMATED" + within, screen.Warning
	case modeled:
		return "ESTIMATED" + cmp.Or(within, ", not measured"), screen.Warning
	case reported:
		return "reported by the hypervisor" + within, screen.Good
	case measured:
		return "measured" + within, screen.Good
	}
	return "", screen.Plain
}

// Sum returns the sum of the zones that are added. The error of its power is the root of the sum of
// the squares of their errors, since these are independent. It is NaN if a modeled zone has no error.
func Sum(zones []Zone) (sum Zone) {
	errors := 0.0
	for _, z := range zones {
		if z.Besides != "" {
			continue
		}
		sum.Active += zeroNaN(z.Active)
		sum.Idle += zeroNaN(z.Idle)
		sum.Energy += z.Energy
		sum.ActiveEnergy += z.ActiveEnergy
		sum.Unattributed += z.Unattributed
		switch {
		case z.Uncertainty > 0:
			errors = math.Hypot(errors, z.Uncertainty*zeroNaN(z.Active+z.Idle))
		case z.Source == "modeled":
			errors = math.NaN()
		}
	}
	sum.Uncertainty = errors / (sum.Active + sum.Idle)
	return sum
}

// node writes the node's power, its course and its energy, and its zones. A low screen has only the
// power.
func (p *painter) node() {
	f := p.m.frame
	sum := Sum(f.Zones)
	both, energy := sum.Active+sum.Idle, p.m.energy(f.Node)+since(f)
	x := p.put(0, screen.Bold, watts(both))
	x = p.put(x-1, screen.Plain, "= "+watts(sum.Active)+" active + "+watts(sum.Idle)+" idle")
	if p.height < tall {
		p.y++
		return
	}
	if p.m.course && !p.m.plain {
		p.course(x, p.width-x-figure.Width(energy)-2, both)
	}
	p.end(x, energy)
	zones, most := slices.Clone(f.Zones), max(1, p.height/5-1)
	slices.SortStableFunc(zones, func(a, b Zone) int { return cmp.Compare(min(len(a.Besides), 1), min(len(b.Besides), 1)) })
	if p.height < roomy && !p.m.plain {
		p.zoneLines(zones, p.y+most)
		return
	}
	zones = zones[:min(most, len(zones))]
	for i := range zones {
		p.m.largest = max(p.m.largest, zeroNaN(zones[i].Active+zones[i].Idle))
	}
	columns := fitting(zoneColumns, zones, p.width, p.m)
	cells(p, columns, func(c *column[Zone]) (string, screen.Style) { return c.title, screen.Dim })
	for i := range zones {
		cells(p, columns, func(c *column[Zone]) (string, screen.Style) {
			return c.text(&zones[i], p.m), zoneStyle(&zones[i], c)
		})
	}
}

// since returns the time at the start of energies, with the date if it is on another day.
func since(f *Frame) string {
	switch day := f.At.Format(time.DateOnly); {
	case f.Since.IsZero():
		return " in total"
	case f.Since.Format(time.DateOnly) != day:
		return " since " + f.Since.Format(time.DateTime)
	}
	return " since " + f.Since.Format(time.TimeOnly)
}

// course writes the power of the last minutes in so many columns: their time, a sparkline, and the
// range of the power if there is room.
func (p *painter) course(x, room int, now float64) {
	h, at, edges := p.m.history, p.m.frame.At, ""
	powers := h.powers(h.node[:], at, max(0, min(nodeCells, room-len("10m00s "))))
	least, largest := now, now
	for _, w := range powers {
		if !math.IsNaN(w) {
			least, largest = min(least, w), max(largest, w)
		}
	}
	span := min(h.span(at, len(powers)), at.Sub(p.m.frame.Since))
	if edges = watts(least); edges != watts(largest) {
		edges += " to " + watts(largest)
	}
	end := p.put(x, screen.Dim, span.Round(time.Second).String()) - 1
	line := strings.TrimLeft(sparkline(powers), " ")
	if end = p.put(end, screen.Bar, line) - 1; figure.Width(edges) <= x+room-end {
		p.put(end, screen.Dim, edges)
	}
}

// zoneLines writes the power of each zone and its source, in as few lines as they need above an end.
func (p *painter) zoneLines(zones []Zone, end int) {
	x := 0
	for i := range zones {
		z := &zones[i]
		name, source := plainName(z.Name)+" "+watts(z.Active+z.Idle), sourceOf(z)
		if x > 0 && x+figure.Width(name)+1+figure.Width(source) > p.width {
			if x, p.y = 0, p.y+1; p.y == end {
				return
			}
		}
		style := zoneStyle(z, &zoneColumns[len(zoneColumns)-1])
		x = p.put(x, min(style, screen.Dim), name) - 1
		x = p.put(x, style, source) + 1
	}
	p.y++
}

// zoneStyle returns the style of a cell of a zone.
func zoneStyle(z *Zone, c *column[Zone]) screen.Style {
	switch {
	case z.Besides != "":
		return screen.Dim
	case c.graph:
		return screen.Bar
	case c.title != "SOURCE":
		return screen.Plain
	case z.Source == "modeled":
		return screen.Warning
	}
	return screen.Good
}

// tabs writes the views that have rows, and the filter and the order of the table.
func (p *painter) tabs() {
	by := "by " + orders[p.m.order].name
	if p.m.reverse {
		by += ", reversed"
	}
	if p.m.filter != "" && !p.m.editing {
		by = fmt.Sprintf("/%s  %s", p.m.filter, by)
	}
	x, room := 0, p.width-min(figure.Width(by), p.width/2)-1
	chosen := viewNames[p.m.view]
	if p.m.program != nil {
		chosen += " of " + p.m.program.Text[Name]
	}
	reserved := min(figure.Width(chosen)+4, room) // for the chosen view, until it is written
	for i, v := range p.m.views() {
		digit, name, style := string(rune('0'+(i+1)%10)), viewNames[v], screen.Dim
		if v == p.m.view {
			name, style, reserved = figure.Fit(chosen, max(room-x-4, 0)), screen.Chosen, 0
		}
		if text := " " + digit + " " + name + " "; x+figure.Width(text) <= room-reserved {
			x = p.key(x, style, text, screen.Key(digit))
		} else if reserved == 0 {
			break
		}
	}
	p.end(x+1, by)
}

// table writes the rows of the view, and below them the rows without a workload, sums and notes.
func (p *painter) table() {
	m := p.m
	m.first, m.height = p.y+1, max(p.height-p.y-2, 0) // the last line has the keys
	l := m.list()
	columns := fitting(tables[m.view], m.frame.Tables[m.view], p.width, m)
	p.head(columns)
	rows, below := l.rows, l.pinned
	m.count = l.matched.workloads
	notes, faults := m.notes()
	notes = p.room(notes, m.height-m.count-len(below)-1)
	if p.height >= tall {
		m.height = max(m.height-len(below)-len(notes)-1, 0)
	} else { // they are the last rows
		m.count += len(below)
		rows = slices.Concat(rows, below)
		below, notes = nil, nil
	}
	m.within()
	rows = rows[min(m.scroll, len(rows)):min(m.scroll+m.height, len(rows))]
	for i, r := range rows {
		p.row(columns, r, m.scroll+i == m.cursor)
	}
	for _, r := range below {
		p.row(columns, r, false)
	}
	if p.height >= tall {
		p.line(screen.Dim, m.sums(&l, rows))
	}
	p.y = p.height - 1 - len(notes)
	for i, text := range notes {
		p.line(noteStyle(i, faults), text)
	}
}

// head writes the titles of columns. A click on a title sorts.
func (p *painter) head(columns []column[Row]) {
	p.Fill(p.y, screen.Head)
	x := 0
	for _, c := range columns {
		if c.order != unordered {
			p.m.spots = append(p.m.spots, spot{p.y, x, x + c.width, screen.Key(orders[c.order].key)})
		}
		x += c.width + 1
	}
	cells(p, columns, func(c *column[Row]) (string, screen.Style) {
		switch {
		case c.order == unordered || c.order != p.m.order || p.m.plain:
			return c.title, screen.Head
		case p.m.reverse:
			return c.title + "▲", screen.Sorted
		}
		return c.title + "▼", screen.Sorted
	})
}

// row writes a row. Rows without a workload or without power are dim.
func (p *painter) row(columns []column[Row], r *Row, chosen bool) {
	text, bars := screen.Plain, screen.Bar
	switch {
	case chosen:
		text, bars = screen.Chosen, screen.Chosen
		p.Fill(p.y, text)
	case r.Pinned || !(r.Power >= shown):
		text, bars = screen.Dim, screen.Dim
	}
	if r.Pinned { // the name takes the rest of the line
		columns = columns[:slices.IndexFunc(columns, func(c column[Row]) bool { return c.order == ByName })+1]
	}
	cells(p, columns, func(c *column[Row]) (string, screen.Style) {
		switch {
		case !c.graph:
			return c.text(r, p.m), text
		case !chosen && c.title == recent.title:
			return c.text(r, p.m), screen.Dim
		}
		return c.text(r, p.m), bars
	})
}

// cells writes a line with a text in each column.
func cells[T any](p *painter, columns []column[T], text func(*column[T]) (string, screen.Style)) {
	x := 0
	for i := range columns {
		c := &columns[i]
		width := min(c.width, p.width-x)
		if i == len(columns)-1 && c.left {
			width = p.width - x
		}
		if written, style := text(c); c.left {
			p.Put(x, p.y, width, style, written)
		} else {
			p.PutRight(x, p.y, width, style, written)
		}
		x += c.width + 1
	}
	p.y++
}

// sums compares the rows of the table with the active power, and counts the rows that are not shown.
func (m *Model) sums(l *listing, shown []*Row) (text string) {
	sum, active := watts(l.all.Power), watts(m.frame.Active)
	switch {
	case m.filter != "" || m.program != nil:
		text = fmt.Sprintf("%d of %s: %s of %s. ", l.matched.workloads, plural(l.all.workloads, oneOf[m.view]), watts(l.matched.Power), active)
	case m.view == GPUs:
	case sum == active:
		text = "Rows add up to the active power: " + active + ". "
	default:
		text = "Rows add up to " + sum + " of " + active + " active power. "
	}
	if rest := l.matched.workloads - len(shown); rest > 0 {
		left := l.matched.Power
		for _, r := range shown {
			left -= zeroNaN(r.Power)
		}
		text += "Not shown: " + plural(rest, oneOf[m.view]) + ", " + watts(max(left, 0)) + "."
	}
	return text
}

// notes returns the texts below the table. The first ones are faults.
func (m *Model) notes() (notes []string, faults int) {
	status, _, _ := strings.Cut(m.status, "\n")
	notes = slices.DeleteFunc([]string{status, m.frame.Wrong}, func(text string) bool { return text == "" })
	return append(notes, m.message.notes...), len(notes)
}

// noteStyle returns the style of a note.
func noteStyle(i, faults int) screen.Style {
	if i < faults {
		return screen.Bad
	}
	return screen.Dim
}

// room returns the notes that fit in so many lines below the table, and at least one.
func (p *painter) room(notes []string, lines int) []string {
	most := max(1, lines)
	if len(notes) <= most {
		return notes
	}
	tail := fmt.Sprintf(" (%d more: ?)", len(notes)-most)
	notes[most-1] = figure.Fit(notes[most-1], p.width-len(tail)) + tail
	return notes[:most]
}

// last clears the last line, which may have text on a low screen.
func (p *painter) last() {
	p.y = p.height - 1
	p.put(0, screen.Plain, strings.Repeat(" ", p.width))
}

// hints writes the last line: the filter while it is written, or the most important keys.
func (p *painter) hints() {
	p.last()
	if p.m.editing {
		x := p.put(0, screen.Bold, "/"+p.m.filter) - 2
		p.put(x, screen.Chosen, " ")
		p.put(x+2, screen.Dim, "Enter keeps the filter, Esc clears it")
		return
	}
	x := 0
	for _, hint := range []struct {
		key  screen.Key
		text string
	}{
		{"q", "q quit"}, {"?", "? help"}, {"/", "/ filter"}, {screen.KeyTab, "Tab view"}, {screen.KeyEnter, "Enter open"},
		{screen.KeyRight, "← → sort"}, {"r", "r reverse"}, {"u", "u Wh"}, {" ", "Space pause"}, {"z", "z zeros"},
	} {
		if x+figure.Width(hint.text) > p.width {
			break
		}
		x = p.key(x, screen.Dim, hint.text, hint.key) + 2
	}
}

// help writes all keys, and all notes.
func (p *painter) help() {
	p.line(screen.Bold, "energy top: keys")
	for _, k := range keys {
		p.Put(1, p.y, 14, screen.Bold, k[0])
		p.put(16, screen.Plain, k[1])
		p.y++
	}
	p.wrap(screen.Dim, "±: expected error of the power of the node, active and idle: the root of the sum of the squares of its zones' errors")
	for _, n := range p.m.message.notes {
		p.wrap(screen.Plain, n)
	}
	p.last()
	p.put(0, screen.Dim, "Any key goes back")
}

// keys lists the keys that ? shows.
var keys = [][2]string{
	{"q, F10", "quit, as Ctrl-C does"},
	{"Tab, 1 to 9", "the next view, or the view of that number"},
	{"Up, Down", "choose a row, as PgUp, PgDn, Home and End do"},
	{"Enter", "the processes of the chosen program; Esc goes back"},
	{"Left, Right", "sort by another column: p power, e energy since the start,"},
	{"", "t total, c CPU time, n name, i PID, o user; r reverses"},
	{"/, f, F4", "filter by name, arguments, user, container, pod, namespace"},
	{"Esc", "clear the filter"},
	{"z", "show or hide rows of 0"},
	{"u", "energies in watt-hours, or in joules"},
	{"Space", "pause, or continue"},
	{"m", "mouse off or on: click a view, a column or a row. Shift and the"},
	{"", "mouse select text"},
	{"Ctrl-L, Ctrl-Z", "draw the screen again; stop until fg"},
}
