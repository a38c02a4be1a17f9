// SPDX-License-Identifier: Apache-2.0

package top

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Model is the state of the screen. The zero Model is not usable; call New. Its methods return a
// changed model and do not modify the receiver, except for the history, which all models that come
// from one New share.
type Model struct {
	frame   *Frame // nil before the first
	newest  *Frame // while it is paused: shown afterwards
	history *history
	message
	choice
	layout
}

// message is the text next to the figures.
type message struct {
	status string // the activity while there are no figures, or the reason why there are no newer ones
	failed bool   // status is an error
	notes  []string
}

// choice is the state that keys change.
type choice struct {
	view    View
	order   Order
	reverse bool
	filter  string
	editing bool // keys are written to the filter
	program *Row // whose processes are shown, nil for all processes
	zeros   bool // rows of 0 are shown
	help    bool
	paused  bool
	watth   bool // energies are in watt-hours
	mouse   bool // clicks are taken
	cursor  int  // the index of the chosen row, or noRow
	scroll  int  // rows above the first that is shown
}

// layout is the result of the last Draw.
type layout struct {
	plain   bool    // without bars, sparklines and keys
	width   int     // of the screen
	bar     int     // cells of a bar
	largest float64 // power of the zone with the largest one
	course  bool    // the history has several steps
	first   int     // line of the first row
	height  int     // rows that were shown
	count   int     // rows that there are
	spots   []spot
}

// spot is a place on the screen. A click on it is the same as a key.
type spot struct {
	y, from, to int
	key         screen.Key
}

// New returns a model that shows the status until there are figures.
func New(status string) Model {
	return Model{history: &history{}, message: message{status: status}, choice: choice{order: ByPower, mouse: true, cursor: noRow}}
}

// noRow is the cursor while no row is chosen.
const noRow = -1

// Action is a request of a key to the program, in addition to a changed model.
type Action uint8

// The actions.
const (
	Nothing Action = iota
	Quit
	Suspend
	Redraw
)

// Show shows the figures of a reading, and notes below them, each one line.
func (m Model) Show(f *Frame, notes []string) Model {
	m.message = message{notes: notes}
	m.history.add(f)
	if m.paused && m.frame != nil {
		m.newest = f
		return m
	}
	m.frame = f
	if len(f.Tables[m.view]) == 0 {
		return m.show(Programs)
	}
	return m.sorted()
}

// Explain shows the reason why there are no newer figures: the current activity, or an error.
func (m Model) Explain(status string, failed bool, notes []string) Model {
	m.message = message{status, failed, notes}
	return m
}

// Press returns the model after a key, and the action that the key requests.
func (m Model) Press(k screen.Key) (Model, Action) {
	switch {
	case k == screen.KeyInterrupt:
		return m, Quit
	case k == screen.KeySuspend:
		return m, Suspend
	case k == screen.KeyRedraw:
		return m, Redraw
	case m.editing:
		return m.edit(k), Nothing
	case m.help:
		m.help = false
		return m, Nothing
	}
	switch k {
	case "q", "Q", screen.KeyQuit:
		return m, Quit
	case "?", "h", screen.KeyHelp:
		m.help = true
	case "/", "f", "\\", screen.KeyFilter:
		m.editing = true
	case screen.KeyEnter:
		m = m.enter()
	case screen.KeyEscape:
		m = m.leave()
	case " ":
		m = m.pause()
	case "u":
		m.watth = !m.watth
	case "z":
		m.zeros = !m.zeros
	case "m":
		m.mouse = !m.mouse
	case "r", "I":
		m = m.sort(m.order)
	case screen.KeyTab:
		m = m.show(neighbor(m.views(), m.view, 1))
	case screen.KeyBackTab:
		m = m.show(neighbor(m.views(), m.view, -1))
	case screen.KeyLeft, "<":
		m = m.sort(neighbor(m.sortable(), m.order, -1))
	case screen.KeyRight, ">":
		m = m.sort(neighbor(m.sortable(), m.order, 1))
	default:
		m = m.move(k)
	}
	return m, Nothing
}

// move moves the cursor.
func (m Model) move(k screen.Key) Model {
	switch k {
	case screen.KeyUp, "k":
		m.cursor--
	case screen.KeyDown, "j":
		m.cursor++
	case screen.KeyPageUp:
		m.cursor -= m.height
	case screen.KeyPageDown:
		m.cursor += m.height
	case screen.KeyHome, "g":
		m.cursor = 0
	case screen.KeyEnd, "G":
		m.cursor = math.MaxInt / 2
	default:
		return m.choose(string(k))
	}
	m.cursor = max(m.cursor, 0)
	return m
}

// Click returns the model after a click or a step of the wheel, and the action that it requests.
func (m Model) Click(e screen.Mouse) (Model, Action) {
	at := e.Y - m.first
	switch {
	case m.help:
		m.help = false
		return m, Nothing
	case e.Wheel != 0:
		m.scroll = max(m.scroll+3*e.Wheel, 0)
		if m.cursor != noRow {
			m.cursor = max(m.cursor+3*e.Wheel, 0)
		}
		return m, Nothing
	case at >= 0 && at < m.height && m.scroll+at < m.count && m.cursor == m.scroll+at:
		return m.enter(), Nothing
	case at >= 0 && at < m.height && m.scroll+at < m.count:
		m.cursor = m.scroll + at
		return m, Nothing
	}
	for _, s := range m.spots {
		if s.y == e.Y && e.X >= s.from && e.X < s.to {
			m.editing = false
			return m.Press(s.key)
		}
	}
	return m, Nothing
}

// sortable returns the orders of the view's columns that have something to show.
func (m *Model) sortable() (orders []Order) {
	if m.frame == nil {
		return []Order{ByPower}
	}
	for _, c := range tables[m.view] {
		if c.order != unordered && c.fills(m.frame.Tables[m.view], m) {
			orders = append(orders, c.order)
		}
	}
	return orders
}

// sorted sorts by power if the column of the previous order is empty.
func (m Model) sorted() Model {
	if m.order != ByPower && !slices.Contains(m.sortable(), m.order) {
		m.order, m.reverse = ByPower, false
	}
	return m
}

// neighbor returns the value that follows another after so many places in a cyclic list.
func neighbor[T comparable](list []T, of T, by int) T {
	return list[(slices.Index(list, of)+by+len(list))%len(list)]
}

// sort sorts by a figure or text, in reverse if it already does.
func (m Model) sort(by Order) Model {
	m.reverse = m.order == by && !m.reverse
	m.order, m.cursor, m.scroll = by, noRow, 0
	return m
}

// choose sorts by the column of a key, or shows the view of a digit. 0 is the tenth view.
func (m Model) choose(key string) Model {
	for _, order := range m.sortable() {
		if orders[order].key == key {
			return m.sort(order)
		}
	}
	if n, err := strconv.Atoi(key); err == nil && (n+9)%10 < len(m.views()) {
		return m.show(m.views()[(n+9)%10])
	}
	return m
}

// edit changes the filter, which is in effect while it is written.
func (m Model) edit(k screen.Key) Model {
	switch k {
	case screen.KeyEnter:
		m.editing = false
	case screen.KeyEscape:
		m.editing, m.filter = false, ""
	case screen.KeyClear:
		m.filter = ""
	case screen.KeyBackspace:
		if m.filter == "" {
			m.editing = false
		}
		_, last := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-last]
	default:
		const longest = 200
		if utf8.RuneCountInString(string(k)) == 1 && len(m.filter)+len(k) <= longest {
			m.filter += string(k)
		}
	}
	m.cursor, m.scroll = noRow, 0
	return m
}

// pause stops at the shown frame, or continues with the newest one.
func (m Model) pause() Model {
	m.paused = !m.paused
	if !m.paused && m.newest != nil {
		m.frame, m.newest = m.newest, nil
	}
	return m
}

// show shows a view from its first row on.
func (m Model) show(v View) Model {
	m.view, m.program, m.cursor, m.scroll = v, nil, noRow, 0
	return m.sorted()
}

// enter shows the processes of the chosen program, or of the first one.
func (m Model) enter() Model {
	rows := m.list().rows
	if m.view != Programs || len(rows) == 0 {
		return m
	}
	program := *rows[max(0, min(m.cursor, len(rows)-1))]
	m.filter = "" // it may not match the processes
	m = m.show(Processes)
	m.program = &program
	return m
}

// leave clears the choice and the filter, or else goes back from the processes of a program to the
// programs.
func (m Model) leave() Model {
	if m.filter == "" && m.program != nil {
		return m.show(Programs)
	}
	m.filter, m.cursor = "", noRow
	return m
}

// views returns the views that have rows. Programs are always one of them.
func (m Model) views() []View {
	views := []View{Programs}
	for v := Programs + 1; m.frame != nil && v < NumViews; v++ {
		if len(m.frame.Tables[v]) > 0 {
			views = append(views, v)
		}
	}
	return views
}

// within moves the cursor into the rows, and scrolls to the chosen row.
func (m *Model) within() {
	height := max(m.height, 1)
	m.cursor = min(m.cursor, m.count-1)
	m.scroll = max(0, min(m.scroll, m.count-height), m.cursor-height+1)
	if m.cursor != noRow {
		m.scroll = min(m.scroll, m.cursor)
	}
}

// listing is the content of a table.
type listing struct {
	rows    []*Row // sorted
	pinned  []*Row // stand below
	matched sum    // all workloads that match the filter
	all     sum    // all rows of the table, pinned ones too
}

// sum holds the totals of rows.
type sum struct {
	workloads int
	Row
}

func (s *sum) add(r *Row) {
	if !r.Pinned {
		s.workloads++
	}
	s.Power += zeroNaN(r.Power)
	s.GPU += zeroNaN(r.GPU)
	s.Energy += r.Energy
	s.Total += r.Total
	s.CPUTime += max(r.CPUTime, 0)
}

// list returns the content of the view's table. Rows that compare equal are in the order of their
// keys, so that they do not change places.
func (m *Model) list() (l listing) {
	if m.frame == nil {
		return l
	}
	l.rows = make([]*Row, 0, len(m.frame.Tables[m.view]))
	for i := range m.frame.Tables[m.view] {
		r := &m.frame.Tables[m.view][i]
		l.all.add(r)
		switch {
		case r.Pinned && !m.empty(r):
			l.pinned = append(l.pinned, r)
		case !r.Pinned && m.leaves(r):
			l.matched.add(r)
			l.rows = append(l.rows, r)
		}
	}
	slices.SortFunc(l.rows, m.compare)
	if m.filter != "" || m.program != nil {
		l.pinned = []*Row{m.matching(&l.matched)}
	}
	return l
}

// compare compares rows in the chosen order, and equal ones by their keys.
func (m *Model) compare(a, b *Row) int {
	c := orders[m.order].compare(a, b)
	switch known := m.order.has(a); {
	case known != m.order.has(b):
		if known {
			return -1
		}
		return 1
	case c == 0:
		return strings.Compare(a.Key, b.Key)
	case m.reverse:
		return -c
	}
	return c
}

// leaves reports whether a row is in the table: it matches the filter, and is not a row of 0.
// With a filter, rows of 0 are shown, too.
func (m *Model) leaves(r *Row) bool {
	if m.program != nil && r.Program != m.program.Key {
		return false
	}
	if m.filter == "" {
		return m.zeros || m.view == GPUs || !m.empty(r)
	}
	return m.matches(r)
}

// shown is the smallest power in watts that is not displayed as 0.
const shown = 1e-8

// empty reports whether a row has no power and no energy.
func (m *Model) empty(r *Row) bool {
	return !(r.Power >= shown) && r.Energy == 0 && (m.order != ByTotal || r.Total == 0)
}

// matching returns the row for the sum of the rows that match the filter.
func (m *Model) matching(all *sum) *Row {
	row := all.Row
	row.Pinned = true
	row.Text[Name] = plural(all.workloads, "matching row")
	if m.program != nil && m.filter == "" {
		row.Text[Name] = plural(all.workloads, "row") + " of " + m.program.Text[Name]
	}
	return &row
}

func zeroNaN(v float64) float64 {
	if v != v {
		return 0
	}
	return v
}

// plural returns a number with a noun.
func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return strconv.Itoa(n) + " " + noun + "es"
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// matches reports whether all words of the filter are in the row's texts, in upper or lower case.
func (m *Model) matches(r *Row) bool {
	text := strings.ToLower(strings.Join(r.Text[:], "\n")) + "\n" + pidOf(r)
	for word := range strings.FieldsSeq(strings.ToLower(m.filter)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// energy returns an energy in the unit that was chosen.
func (m *Model) energy(e units.Energy) string {
	if m.watth {
		return figure.WattHours(e)
	}
	return figure.Joules(e)
}
