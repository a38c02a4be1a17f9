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

// tall is the height from which on zones and rows without a workload have lines of their own.
const tall = 16

// roomy is the height from which on a blank line separates the node from the workloads.
const roomy = 30

// Draw returns the screen, and the model that has its layout.
func (m Model) Draw(width, height int) (*screen.Grid, Model) {
	p := painter{Grid: screen.NewGrid(width, height), m: &m, width: width, height: height}
	p.Mouse = m.mouse
	m.layout = layout{width: width, bar: max(6, min(width/10, 24))}
	switch {
	case m.help:
		p.help()
	case m.frame == nil:
		p.title()
		p.explain()
		p.hints()
	default:
		p.title()
		p.zones()
		if p.height >= roomy {
			p.y++
		}
		p.tabs()
		p.table()
		p.hints()
	}
	return p.Grid, m
}

// plainWidth is the width of plain tables.
const plainWidth = 130

// Text returns the node's zones and the tables of all views as plain text, of each table the first rows.
func (m Model) Text(rows int) string {
	const around = 12 // lines besides the rows of a table
	height := around + len(m.frame.Zones) + 10*len(m.notes)
	for _, v := range m.views() {
		height += around + min(rows, len(m.frame.Tables[v]))
	}
	p := painter{Grid: screen.NewGrid(plainWidth, height), m: &m, width: plainWidth, height: height}
	m.layout = layout{plain: true, width: plainWidth}
	p.title()
	p.zones()
	for _, m.view = range m.views() {
		l := m.list(rows)
		columns := fitting(tables[m.view], m.frame.Tables[m.view], p.width, &m)
		p.y++
		p.head(columns)
		for _, r := range append(l.rows, l.pinned...) {
			p.row(columns, r, false)
		}
		p.put(0, screen.Plain, m.sums(&l, l.rows))
		p.y++
	}
	for _, n := range m.lines() {
		p.wrap(n.text, n.style)
	}
	return strings.TrimRight(p.String(), "\n") + "\n"
}

// painter writes lines from the top down.
type painter struct {
	*screen.Grid
	m             *Model
	width, height int
	y             int // the next line
}

// put writes a text from a column on, and returns the next column.
func (p *painter) put(x int, style screen.Style, text string) int {
	return x + p.Put(x, p.y, p.width-x, style, text)
}

// key writes a text at which a click is the same as a key.
func (p *painter) key(x int, style screen.Style, text string, k screen.Key) int {
	end := p.put(x, style, text)
	p.m.spots = append(p.m.spots, spot{p.y, x, end, k})
	return end
}

// title writes the source of the figures and their error, and then, as far as there is room, the
// node and the time.
func (p *painter) title() {
	x := 0
	if p.width >= 60 || p.m.frame == nil {
		x = p.put(0, screen.Bold, "energy top") + 2
	}
	if f := p.m.frame; f != nil {
		word, style := origin(f.Zones)
		x = p.put(x, style, word) + 2
		if p.m.paused {
			x = p.put(x, screen.Warning, "PAUSED") + 2
		}
		clock := f.At.Format("15:04:05")
		if figure.Width(f.Host)+len(clock)+2 <= p.width-x {
			x = p.put(x, screen.Plain, f.Host) + 2
		}
		if room := p.width - x; p.m.plain {
			p.put(x, screen.Plain, clock)
		} else if room >= len(clock) {
			p.PutRight(x, p.y, room, screen.Plain, clock)
		}
	}
	p.y++
}

// origin returns the source of the figures of zones, and their expected error.
func origin(zones []Zone) (string, screen.Style) {
	var modeled, reported, measured bool
	for i := range zones {
		switch zones[i].Source {
		case "modeled":
			modeled = true
		case "reported":
			reported = true
		case "measured":
			measured = true
		}
	}
	within := uncertainty(sumOf(zones).Uncertainty)
	switch {
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

// tone is the style of bars and sparklines: that of the source of the figures.
func tone(zones []Zone) screen.Style {
	_, style := origin(zones)
	return style
}

// sumOf returns the sum of the zones that are added. Its uncertainty is that of the zones that have one.
func sumOf(zones []Zone) Zone {
	var sum Zone
	var watts, doubt float64
	for _, z := range zones {
		if z.Besides != "" {
			continue
		}
		sum.Active += zeroNaN(z.Active)
		sum.Idle += zeroNaN(z.Idle)
		sum.Energy += z.Energy
		sum.ActiveEnergy += z.ActiveEnergy
		sum.Unattributed += z.Unattributed
		if z.Uncertainty > 0 {
			w := max(zeroNaN(z.Active+z.Idle), 1e-9)
			watts += w
			doubt += w * z.Uncertainty
		}
	}
	if watts > 0 {
		sum.Uncertainty = doubt / watts
	}
	return sum
}

// zones writes the node's power, and a row for each zone if there is room.
func (p *painter) zones() {
	f := p.m.frame
	sum := sumOf(f.Zones)
	both := figure.Watts(sum.Active + sum.Idle)
	if p.height < tall {
		p.put(0, screen.Plain, fmt.Sprintf("%s = %s active + %s idle", both, figure.Watts(sum.Active), figure.Watts(sum.Idle)))
		p.y++
		return
	}
	p.node(both)
	zones := f.Zones
	if most := max(1, p.height/5-1); len(zones) > most { // those that are not added are the first to go
		zones = slices.Clone(zones)
		slices.SortStableFunc(zones, func(a, b Zone) int { return len(a.Besides) - len(b.Besides) })
		zones = zones[:most]
	}
	for i := range zones {
		p.m.largest = max(p.m.largest, zeroNaN(zones[i].Active+zones[i].Idle))
	}
	columns := fitting(zoneColumns, zones, p.width, p.m)
	cells(p, columns, func(c *column[Zone]) (string, screen.Style) { return c.title, screen.Dim })
	for i := range zones {
		z := &zones[i]
		cells(p, columns, func(c *column[Zone]) (string, screen.Style) {
			switch {
			case c.graph && z.Source == "modeled", c.title == "SOURCE" && z.Source == "modeled":
				return c.text(z, p.m), screen.Warning
			case z.Besides != "":
				return c.text(z, p.m), screen.Dim
			case c.graph:
				return c.text(z, p.m), screen.Good
			}
			return c.text(z, p.m), screen.Plain
		})
	}
}

// node writes the power of the node, its course, and its energy.
func (p *painter) node(power string) {
	x := p.put(0, screen.Bold, power) + 2
	energy := p.m.energy(p.m.frame.Node) + " since " + p.m.frame.Since.Format("15:04:05")
	powers := p.m.history.powers(p.m.history.node, p.m.frame.At, max(0, min(nodeCells, p.width-60)))
	least, largest, n := bounds(powers)
	if n > 1 && !p.m.plain {
		x = p.put(x, screen.Plain, strings.TrimLeft(sparkline(powers), " ")) + 2
		span := time.Duration(n) * step
		course := figure.Watts(least) + " to " + figure.Watts(largest) + " in "
		if figure.Watts(least) == figure.Watts(largest) {
			course = "for "
		}
		x = p.put(x, screen.Dim, course+short(span)) + 2
	}
	if p.m.plain {
		p.put(x, screen.Plain, energy)
	} else if room := p.width - x; room >= figure.Width(energy) {
		p.PutRight(x, p.y, room, screen.Plain, energy)
	}
	p.y++
}

// short returns a time in minutes, or in seconds below one.
func short(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
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
	x := 0
	room := p.width - min(figure.Width(by), p.width/2) - 1
	for i, v := range p.m.views() {
		digit := string(rune('0' + (i+1)%10))
		name := viewNames[v]
		if v == p.m.view && p.m.program != nil {
			name += " of " + p.m.program.Text[Name]
		}
		text, style := fmt.Sprintf(" %s %s ", digit, name), screen.Dim
		if v == p.m.view {
			text, style = figure.Fit(text, max(room-x, 0)), screen.Chosen
		}
		if x+figure.Width(text) <= room {
			x = p.key(x, style, text, screen.Key(digit))
		}
	}
	if room := p.width - x - 1; room >= 10 {
		p.PutRight(x+1, p.y, room, screen.Plain, by)
	}
	p.y++
}

// table writes the rows of the view, and below them the rows without a workload, sums and notes.
func (p *painter) table() {
	columns := fitting(tables[p.m.view], p.m.frame.Tables[p.m.view], p.width, p.m)
	p.head(columns)
	p.m.first = p.y
	most := max(p.height-p.y-1, 0) // without the last line
	l := p.m.list(max(p.m.scroll, min(p.m.cursor, math.MaxInt/2)) + most + 1)
	rows, below, notes := l.rows, l.pinned, p.notes()
	p.m.height, p.m.count = most, l.matched.workloads
	if p.height >= tall {
		p.m.height = max(most-len(below)-len(notes)-1, 0)
	} else { // they are the last rows
		p.m.count += len(below)
		if len(rows) == l.matched.workloads {
			rows = append(rows, below...)
		}
		below, notes = nil, nil
	}
	p.m.within()
	rows = rows[min(p.m.scroll, len(rows)):min(p.m.scroll+p.m.height, len(rows))]
	for i, r := range rows {
		p.row(columns, r, p.m.scroll+i == p.m.cursor)
	}
	for _, r := range below {
		p.row(columns, r, false)
	}
	if p.height >= tall {
		p.put(0, screen.Dim, p.m.sums(&l, rows))
	}
	p.y = p.height - 1 - len(notes)
	for _, n := range notes {
		p.put(0, n.style, n.text)
		p.y++
	}
}

// plurals returns the word for the rows of a view.
func plurals(v View) string {
	if v == VMs || v == GPUs {
		return viewNames[v]
	}
	return strings.ToLower(viewNames[v])
}

// head writes the titles of columns.
func (p *painter) head(columns []column[Row]) {
	p.Fill(p.y, screen.Head)
	arrow := "▼"
	if p.m.reverse {
		arrow = "▲"
	}
	x, y := 0, p.y
	for _, c := range columns {
		if c.order != unordered {
			p.m.spots = append(p.m.spots, spot{y, x, x + c.width, screen.Key(orders[c.order].key)})
		}
		x += c.width + 1
	}
	cells(p, columns, func(c *column[Row]) (string, screen.Style) {
		if c.order != unordered && c.order == p.m.order && !p.m.plain {
			return c.title + arrow, screen.Chosen
		}
		return c.title, screen.Head
	})
}

// row writes a row.
func (p *painter) row(columns []column[Row], r *Row, chosen bool) {
	style, graphs := screen.Plain, tone(p.m.frame.Zones)
	switch {
	case chosen:
		style, graphs = screen.Chosen, screen.Chosen
		p.Fill(p.y, style)
	case r.Pinned:
		style, graphs = screen.Dim, screen.Dim
	}
	if r.Pinned { // its name takes all that is left
		if at := slices.IndexFunc(columns, func(c column[Row]) bool { return c.order == ByName }); at >= 0 {
			columns = columns[:at+1]
		}
	}
	cells(p, columns, func(c *column[Row]) (string, screen.Style) {
		switch {
		case !c.graph:
			return c.text(r, p.m), style
		case c.title == recent.title && !chosen:
			return c.text(r, p.m), screen.Dim
		}
		return c.text(r, p.m), graphs
	})
}

// cells writes a line with a text in each column.
func cells[T any](p *painter, columns []column[T], text func(*column[T]) (string, screen.Style)) {
	x := 0
	for i := range columns {
		c := &columns[i]
		written, style := text(c)
		switch last := i == len(columns)-1; {
		case last:
			p.put(x, style, written)
		case c.left:
			p.Put(x, p.y, min(c.width, p.width-x), style, written)
		default:
			p.PutRight(x, p.y, min(c.width, p.width-x), style, written)
		}
		x += c.width + 1
	}
	p.y++
}

// sums says how the rows of the table compare to the active power, and what is not on the screen.
func (m *Model) sums(l *listing, shown []*Row) string {
	text := ""
	switch sum, active := figure.Watts(l.all.Power), figure.Watts(m.frame.Active); {
	case m.view == GPUs:
	case sum == active:
		text = "Rows add up to the active power: " + active + ". "
	default:
		text = fmt.Sprintf("Rows add up to %s of %s active power. ", sum, active)
	}
	power, n := l.matched.Power, l.matched.workloads
	if m.filter == "" && m.program == nil {
		power, n = l.all.Power, l.all.workloads
		for _, r := range l.pinned {
			power -= zeroNaN(r.Power)
		}
	}
	for _, r := range shown {
		if !r.Pinned {
			power -= zeroNaN(r.Power)
			n--
		}
	}
	if n > 0 {
		if power < 5e-6 {
			power = 0
		}
		text += "Not shown: " + plural(n, oneOf[m.view], plurals(m.view)) + ", " + figure.Watts(power) + "."
	}
	return text
}

// note is a line below the table.
type note struct {
	text  string
	style screen.Style
}

// lines returns all that is to be said below the tables.
func (m *Model) lines() (notes []note) {
	if m.status != "" {
		notes = append(notes, note{firstLine(m.status), screen.Bad})
	}
	if m.frame.Wrong != "" {
		notes = append(notes, note{m.frame.Wrong, screen.Bad})
	}
	for _, n := range m.told.notes {
		notes = append(notes, note{n, screen.Warning})
	}
	return notes
}

// notes returns the lines below the table for which there is room.
func (p *painter) notes() []note {
	notes := p.m.lines()
	if most := max(1, p.height/12); len(notes) > most {
		more := len(notes) - most
		notes = notes[:most]
		last := &notes[most-1]
		tail := fmt.Sprintf(" (%d more: ?)", more)
		last.text = figure.Fit(last.text, p.width-len(tail)) + tail
	}
	return notes
}

// hints writes the last line: the filter while it is written, or the most important keys.
func (p *painter) hints() {
	p.y = p.height - 1
	p.put(0, screen.Plain, strings.Repeat(" ", p.width)) // a terminal of three rows has the table's head there
	if p.m.editing {
		x := p.put(0, screen.Bold, "/"+p.m.filter)
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

// explain writes why there are no figures.
func (p *painter) explain() {
	style := screen.Bold
	if p.m.failed {
		style = screen.Bad
	}
	p.y++
	p.wrap(p.m.status, style)
	p.y++
	for _, n := range p.m.told.notes {
		p.wrap(n, screen.Plain)
	}
}

// wrap writes the lines of a text, in as many lines as they need.
func (p *painter) wrap(text string, style screen.Style) {
	for paragraph := range strings.Lines(text) {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			if line != "" && figure.Width(line+" "+word) > p.width {
				p.put(0, style, line)
				p.y++
				line = "  "
			} else if line != "" {
				line += " "
			}
			line += word
		}
		p.put(0, style, line)
		p.y++
	}
}

// help writes all keys, and all notes.
func (p *painter) help() {
	p.put(0, screen.Bold, "energy top: keys")
	p.y++
	for _, k := range keys {
		p.Put(1, p.y, 14, screen.Bold, k[0])
		p.put(16, screen.Plain, k[1])
		p.y++
	}
	for _, n := range p.m.told.notes {
		p.wrap(n, screen.Warning)
	}
	p.y = p.height - 1
	p.put(0, screen.Plain, strings.Repeat(" ", p.width)) // a note may be there
	p.put(0, screen.Dim, "Any key goes back")
}

// keys lists the keys that ? and docs/command-line.md show.
var keys = [][2]string{
	{"q, F10", "quit, as Ctrl-C does"},
	{"Tab, 1 to 9", "the next view, or the view of that number"},
	{"Up, Down", "choose a row, as PgUp, PgDn, Home and End do"},
	{"Enter", "the processes of the chosen program; Esc goes back"},
	{"Left, Right", "sort by another column: p power, e energy since the start,"},
	{"", "t total, c CPU time, n name, i PID. r: the other way round"},
	{"/, f, F4", "filter by name, arguments, user, container, pod, namespace"},
	{"Esc", "clear the filter"},
	{"z", "show or hide rows of 0"},
	{"u", "energies in watt-hours, or in joules"},
	{"Space", "pause, or continue"},
	{"m", "mouse off or on: click a view, a column or a row. Shift and the"},
	{"", "mouse select text"},
	{"Ctrl-L, Ctrl-Z", "draw the screen again; stop until fg"},
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
