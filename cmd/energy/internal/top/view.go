// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
)

// tall is the height from which on each zone has a row, and rows without a workload are always shown.
const tall = 16

// Draw returns the screen, and the model that knows how many rows are on it.
func (m Model) Draw(width, height int) (*screen.Grid, Model) {
	g := screen.NewGrid(width, height)
	p := painter{Grid: g, width: width, height: height}
	switch {
	case m.help:
		p.help(&m)
	case m.frame == nil:
		p.title(&m)
		p.explain(&m)
		p.hints(&m)
	default:
		p.title(&m)
		p.zones(m.frame, height >= tall)
		p.tabs(&m)
		m = p.table(m)
		p.hints(&m)
	}
	return g, m
}

// painter writes lines from the top down.
type painter struct {
	*screen.Grid
	width, height int
	y             int // the next line
}

// put writes a text from a column on, and returns the next column.
func (p *painter) put(x int, style screen.Style, text string) int {
	return x + p.Put(x, p.y, p.width-x, style, text)
}

// title writes what this is of, when, and from which source the figures are.
func (p *painter) title(m *Model) {
	x := p.put(0, screen.Bold, "energy top")
	if f := m.frame; f != nil {
		x = p.put(x+2, screen.Plain, f.At.Format("15:04:05"))
		word, style := origin(f.Zones)
		x = p.put(x+2, style, word)
		if m.paused {
			x = p.put(x+2, screen.Warning, "PAUSED")
		}
		if host := f.Host; figure.Width(host)+2 <= p.width-x {
			p.PutRight(x+2, p.y, p.width-x-2, screen.Plain, host)
		}
	}
	p.y++
}

// origin says how the zones' figures came to be.
func origin(zones []Zone) (string, screen.Style) {
	has := func(source string) bool {
		return slices.ContainsFunc(zones, func(z Zone) bool { return z.Source == source })
	}
	switch modeled, reported, measured := has("modeled"), has("reported"), has("measured"); {
	case modeled && (measured || reported):
		return "partly MODELED", screen.Warning
	case modeled:
		return "MODELED, not measured", screen.Warning
	case reported:
		return "reported by the hypervisor", screen.Good
	case measured:
		return "measured", screen.Good
	}
	return "", screen.Plain
}

// zones writes a row for each zone, and their sum if there are several. Without room it is only the sum.
func (p *painter) zones(f *Frame, room bool) {
	sum := Zone{Name: "sum", Energy: f.Node}
	added := 0
	for _, z := range f.Zones {
		if z.Besides == "" {
			sum.Active += z.Active
			sum.Idle += z.Idle
			added++
		}
	}
	if !room {
		p.put(0, screen.Plain, fmt.Sprintf("%s = %s active + %s idle", figure.Watts(sum.Active+sum.Idle), figure.Watts(sum.Active), figure.Watts(sum.Idle)))
		p.y++
		return
	}
	p.zone(screen.Head, "ZONE", "POWER", "ACTIVE", "IDLE", "ENERGY", "", "SINCE "+f.Since.Format("15:04:05"))
	zones := f.Zones
	if most := max(1, p.height/5-1); len(zones) > most { // those that are part of another are the first to go
		zones = slices.Clone(zones)
		slices.SortStableFunc(zones, func(a, b Zone) int { return len(a.Besides) - len(b.Besides) })
		zones = zones[:most]
	}
	for _, z := range zones {
		name, style := z.Name, screen.Plain
		if z.Besides != "" {
			name, style = "("+name+")", screen.Dim
		}
		source := z.Source
		if z.Besides != "" {
			source += ", not added"
		}
		p.zone(style, name, figure.Watts(z.Active+z.Idle), figure.Watts(z.Active), figure.Watts(z.Idle), figure.Joules(z.Energy), figure.WattHours(z.Energy), source)
	}
	if added > 1 || len(zones) > 1 {
		p.zone(screen.Bold, sum.Name, figure.Watts(sum.Active+sum.Idle), figure.Watts(sum.Active), figure.Watts(sum.Idle), figure.Joules(sum.Energy), figure.WattHours(sum.Energy), "")
	}
}

// zone writes a row of the zones' table.
func (p *painter) zone(style screen.Style, name, power, active, idle, joules, wattHours, source string) {
	if style == screen.Head {
		p.Fill(p.y, style)
	}
	x := p.Put(0, p.y, 10, style, name)
	x = max(x, 10)
	for _, c := range []struct {
		text        string
		width, from int
	}{{power, 10, 0}, {active, 10, 30}, {idle, 10, 50}, {joules, 10, 40}, {wattHours, 10, 66}} {
		if c.from > p.width {
			continue
		}
		p.PutRight(x+1, p.y, c.width-1, style, c.text)
		x += c.width
	}
	if p.width >= 72 {
		p.put(x+1, style, source)
	}
	p.y++
}

// tabs writes the views that have rows, and how the table is sorted.
func (p *painter) tabs(m *Model) {
	by := "by " + orders[m.order].name
	if m.reverse {
		by += ", reversed"
	}
	if m.filter != "" && !m.editing {
		by = fmt.Sprintf("/%s  %s", m.filter, by)
	}
	x, room := 0, p.width-min(figure.Width(by), p.width/2)-1
	for _, v := range m.views() {
		if v == m.view {
			x = p.put(x, screen.Bold, figure.Fit("["+m.tab(v)+"]", max(room-x, 0))) + 2
		} else if text := m.tab(v); x+figure.Width(text) <= room {
			x = p.put(x, screen.Dim, text) + 2
		}
	}
	if room := p.width - x; room >= 10 {
		p.PutRight(x, p.y, room, screen.Warning, by)
	}
	p.y++
}

// tab returns the name of a view and the number of its rows.
func (m *Model) tab(v View) string {
	if m.program != nil && v == m.view {
		return viewNames[v] + " of " + m.program.Text[Name]
	}
	n := 0
	for i := range m.frame.Tables[v] {
		if !m.frame.Tables[v][i].Pinned {
			n++
		}
	}
	return fmt.Sprintf("%s %d", viewNames[v], n)
}

// table writes the rows of a view, and the pinned rows below them.
func (p *painter) table(m Model) Model {
	columns := m.shown(p.width)
	p.head(columns, &m)
	rows, pinned, notes := m.rows(), m.pinned(), p.notes(&m)
	room := p.height - p.y - 1 // without the last line
	if p.height >= tall {
		room -= len(notes) + len(pinned)
	} else { // they are the last rows
		rows, pinned, notes = append(rows, pinned...), nil, nil
	}
	m.height = max(room, 0)
	m = m.movedIn(len(rows), 0)
	for i := range m.height {
		if at := m.scroll + i; at < len(rows) {
			p.row(columns, rows[at], &m, at == m.cursor)
		}
		p.y++
	}
	for _, r := range pinned {
		p.row(columns, r, &m, false)
		p.y++
	}
	for _, n := range notes {
		p.put(0, n.style, n.text)
		p.y++
	}
	return m
}

// head writes the titles of columns.
func (p *painter) head(columns []column, m *Model) {
	p.Fill(p.y, screen.Head)
	p.cells(columns, func(c *column) (string, screen.Style) {
		if c.order != unordered && c.order == m.order {
			return c.title, screen.Chosen
		}
		return c.title, screen.Head
	})
	p.y++
}

// row writes a row, and leaves the line.
func (p *painter) row(columns []column, r *Row, m *Model, chosen bool) {
	style := screen.Plain
	switch {
	case chosen:
		style = screen.Chosen
		p.Fill(p.y, style)
	case r.Pinned:
		style = screen.Dim
	}
	p.cells(columns, func(c *column) (string, screen.Style) { return c.text(r, m), style })
}

// cells writes a text in each column.
func (p *painter) cells(columns []column, text func(*column) (string, screen.Style)) {
	x := 0
	for i := range columns {
		c := &columns[i]
		written, style := text(c)
		switch last := i == len(columns)-1; {
		case last:
			p.Put(x, p.y, p.width-x, style, written)
		case c.left:
			p.Put(x, p.y, min(c.width, p.width-x), style, written)
		default:
			p.PutRight(x, p.y, min(c.width, p.width-x), style, written)
		}
		x += c.width + 1
	}
}

// note is a line below the table.
type note struct {
	text  string
	style screen.Style
}

// notes returns what is to be said below the table, as far as there is room.
func (p *painter) notes(m *Model) (notes []note) {
	if m.status != "" {
		notes = append(notes, note{firstLine(m.status), screen.Bad})
	}
	if m.frame.Wrong != "" {
		notes = append(notes, note{m.frame.Wrong, screen.Bad})
	}
	for _, n := range m.notes {
		notes = append(notes, note{n, screen.Warning})
	}
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
func (p *painter) hints(m *Model) {
	p.y = p.height - 1
	p.put(0, screen.Plain, strings.Repeat(" ", p.width)) // a terminal of three rows has the table's head there
	if m.editing {
		x := p.put(0, screen.Bold, "/"+m.filter)
		p.put(x, screen.Chosen, " ")
		p.put(x+2, screen.Dim, "Enter keeps the filter, Esc clears it")
		return
	}
	x := 0
	for _, hint := range []string{"q quit", "? help", "/ filter", "Tab view", "Enter open", "p e t c n i sort", "u Wh", "Space pause"} {
		if x+len(hint) > p.width {
			break
		}
		x = p.put(x, screen.Dim, hint) + 2
	}
}

// explain writes why there are no figures.
func (p *painter) explain(m *Model) {
	style := screen.Bold
	if m.failed {
		style = screen.Bad
	}
	p.y++
	p.wrap(m.status, style)
	p.y++
	for _, n := range m.notes {
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
func (p *painter) help(m *Model) {
	p.put(0, screen.Bold, "energy top: keys")
	p.y++
	for _, k := range keys {
		p.Put(1, p.y, 11, screen.Bold, k[0])
		p.put(13, screen.Plain, k[1])
		p.y++
	}
	for _, n := range m.notes {
		p.wrap(n, screen.Warning)
	}
	p.y = p.height - 1
	p.put(0, screen.Plain, strings.Repeat(" ", p.width)) // a note may be there
	p.put(0, screen.Dim, "Any key goes back")
}

// keys lists the keys that ? and docs/command-line.md show.
var keys = [][2]string{
	{"q, Ctrl-C", "quit"},
	{"Tab, 1 to 9", "the next view, or the one of that number"},
	{"Enter", "the processes of the chosen program"},
	{"p, e, t", "sort by power, energy since the start of top, total of the series"},
	{"c, n, i", "sort by CPU time, name, PID"},
	{"", "the key of a column once more: the other way round"},
	{"/", "filter by name, arguments, user, container, pod, namespace, image"},
	{"Esc", "clear the filter, or go back from a program"},
	{"Up, Down", "choose a row, as PgUp, PgDn, Home and End do"},
	{"u", "energies in watt-hours, or in joules"},
	{"Space", "pause, or go on"},
	{"Ctrl-L", "draw the screen again"},
	{"Ctrl-Z", "stop, until fg"},
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
