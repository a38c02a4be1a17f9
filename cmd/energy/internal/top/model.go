// SPDX-License-Identifier: Apache-2.0

package top

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Model is the state of the screen. The zero Model is not usable; call New. Its methods return a
// changed model and do not modify the receiver.
type Model struct {
	frame   *Frame // nil before the first
	newest  *Frame // while it is paused: shown afterwards
	status  string // what is done while there are no figures, or why there are no newer ones
	failed  bool   // status is an error
	notes   []string
	view    View
	order   Order
	reverse bool
	filter  string
	editing bool // keys are written to the filter
	program *Row // whose processes are shown, nil if those of all programs are
	cursor  int  // the index of the chosen row
	scroll  int  // rows above the first that is shown
	height  int  // rows that were shown last
	help    bool
	paused  bool
	watth   bool // energies are in watt-hours
}

// New returns a model that shows what is done until there are figures.
func New(status string) Model { return Model{status: status, order: ByPower} }

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
	m.status, m.failed, m.notes = "", false, notes
	if m.paused && m.frame != nil {
		m.newest = f
		return m
	}
	m.frame = f
	if len(f.Tables[m.view]) == 0 {
		m = m.show(Programs)
	}
	return m.moved(0)
}

// Explain shows why there are no newer figures: what is done, or an error.
func (m Model) Explain(status string, failed bool, notes []string) Model {
	m.status, m.failed, m.notes = status, failed, notes
	return m
}

// Press returns what a key does.
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
	case "q", "Q":
		return m, Quit
	case "?", "h":
		m.help = true
	case "/":
		m.editing = true
	case screen.KeyEnter:
		m = m.enter()
	case screen.KeyEscape:
		m = m.leave()
	case " ":
		m = m.pause()
	case "u":
		m.watth = !m.watth
	case screen.KeyTab, screen.KeyBackTab:
		m = m.turn(k == screen.KeyBackTab)
	case screen.KeyUp, "k":
		m = m.moved(-1)
	case screen.KeyDown, "j":
		m = m.moved(1)
	case screen.KeyPageUp:
		m = m.moved(-m.height)
	case screen.KeyPageDown:
		m = m.moved(m.height)
	case screen.KeyHome, "g":
		m.cursor, m.scroll = 0, 0
	case screen.KeyEnd, "G":
		m = m.moved(len(m.rows()))
	default:
		m = m.choose(string(k))
	}
	return m, Nothing
}

// choose sorts by the column of a key, or the other way round if it does already, or shows the view of a number.
func (m Model) choose(key string) Model {
	for order, o := range orders {
		if o.key == key {
			m.reverse = m.order == order && !m.reverse
			m.order, m.cursor, m.scroll = order, 0, 0
		}
	}
	if n, err := strconv.Atoi(key); err == nil && n >= 1 {
		if there := m.views(); n <= len(there) {
			m = m.show(there[n-1])
		}
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
	case screen.KeyUp, screen.KeyDown, screen.KeyPageUp, screen.KeyPageDown, screen.KeyHome, screen.KeyEnd, screen.KeyTab, screen.KeyBackTab:
	default:
		const longest = 200
		if len(m.filter)+len(k) <= longest {
			m.filter += string(k)
		}
	}
	m.cursor, m.scroll = 0, 0
	return m
}

// pause keeps what is shown, or goes on with the newest figures.
func (m Model) pause() Model {
	m.paused = !m.paused
	if newest := m.newest; !m.paused && newest != nil {
		m.newest = nil
		m.frame = newest
		return m.moved(0)
	}
	return m
}

// turn shows the next view, or the one before.
func (m Model) turn(back bool) Model {
	there := m.views()
	step := 1
	if back {
		step = len(there) - 1
	}
	return m.show(there[(slices.Index(there, m.view)+step)%len(there)])
}

// show shows a view from its first row on.
func (m Model) show(v View) Model {
	m.view, m.program, m.cursor, m.scroll = v, nil, 0, 0
	return m
}

// enter shows the processes of the chosen program.
func (m Model) enter() Model {
	rows := m.rows()
	if m.view != Programs || m.cursor >= len(rows) {
		return m
	}
	program := *rows[m.cursor]
	m.filter = "" // it may leave none of the processes
	m = m.show(Processes)
	m.program = &program
	return m
}

// leave clears the filter, or else goes back from the processes of a program to the programs.
func (m Model) leave() Model {
	switch {
	case m.filter != "":
		m.filter = ""
	case m.program != nil:
		return m.show(Programs)
	}
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

// moved moves the cursor by so many rows, and scrolls as far as the chosen row requires.
func (m Model) moved(by int) Model { return m.movedIn(len(m.rows()), by) }

// movedIn is moved in a table of so many rows.
func (m Model) movedIn(rows, by int) Model {
	height := max(m.height, 1)
	m.cursor = max(0, min(m.cursor+by, rows-1))
	m.scroll = max(0, min(m.scroll, rows-height), m.cursor-height+1)
	m.scroll = min(m.scroll, m.cursor)
	return m
}

// rows returns the rows that the filter leaves, sorted. Rows that compare equal are in the order of
// their keys, so that they do not change places.
func (m Model) rows() (rows []*Row) {
	if m.frame == nil {
		return nil
	}
	all := m.frame.Tables[m.view]
	for i := range all {
		if r := &all[i]; !r.Pinned && (m.program == nil || r.Program == m.program.Key) && m.matches(r) {
			rows = append(rows, r)
		}
	}
	compare := orders[m.order].compare
	slices.SortFunc(rows, func(a, b *Row) int {
		if c := compare(a, b); c != 0 {
			if m.reverse {
				return -c
			}
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
	return rows
}

// pinned returns the rows that stand below the others. Where rows are left out, that is the sum of the others.
func (m Model) pinned() (rows []*Row) {
	if m.frame == nil {
		return nil
	}
	if m.filter != "" || m.program != nil {
		return []*Row{m.matching()}
	}
	all := m.frame.Tables[m.view]
	for i := range all {
		if all[i].Pinned {
			rows = append(rows, &all[i])
		}
	}
	return rows
}

// matching returns the sum of the rows that the filter leaves.
func (m Model) matching() *Row {
	rows := m.rows()
	sum := &Row{Text: [numTexts]string{Name: plural(len(rows), "row matches", "rows match") + " the filter"}}
	if m.program != nil && m.filter == "" {
		sum.Text[Name] = plural(len(rows), "row", "rows") + " of " + m.program.Text[Name]
	}
	for _, r := range rows {
		sum.Power += zeroNaN(r.Power)
		sum.GPU += zeroNaN(r.GPU)
		sum.Energy += r.Energy
		sum.Total += r.Total
		sum.CPUTime += max(r.CPUTime, 0)
	}
	return sum
}

func zeroNaN(v float64) float64 {
	if v != v {
		return 0
	}
	return v
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

// matches reports whether the filter leaves a row: all of its words are in the row's texts, in upper or lower case.
func (m Model) matches(r *Row) bool {
	if m.filter == "" {
		return true
	}
	text := strings.ToLower(strings.Join(r.Text[:], "\n")) + "\n" + number(r.PID)
	for word := range strings.FieldsSeq(strings.ToLower(m.filter)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// energy returns an energy in the unit that was chosen.
func (m Model) energy(e units.Energy) string {
	if m.watth {
		return figure.WattHours(e)
	}
	return figure.Joules(e)
}
