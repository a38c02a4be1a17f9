// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// column is a column of tables.
type column struct {
	title string
	width int // the last column of a table takes what is left
	// from is the width of the terminal from which on the column is shown.
	from  int
	left  bool // its texts are words, not figures
	text  func(r *Row, m *Model) string
	order Order // by which a table is sorted that is sorted by this column, 0 if there is none
}

// Order is by what a table is sorted.
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
)

// orders are the key of each order, its name, and how it compares rows: the first of two comes first.
var orders = map[Order]struct {
	key, name string
	compare   func(a, b *Row) int
}{
	ByPower:   {"p", "power", func(a, b *Row) int { return descending(a.Power, b.Power) }},
	ByEnergy:  {"e", "energy", func(a, b *Row) int { return cmp.Compare(b.Energy, a.Energy) }},
	ByTotal:   {"t", "total", func(a, b *Row) int { return cmp.Compare(b.Total, a.Total) }},
	ByCPUTime: {"c", "CPU time", func(a, b *Row) int { return cmp.Compare(b.CPUTime, a.CPUTime) }},
	ByName:    {"n", "name", func(a, b *Row) int { return compareFold(a.Text[Name], b.Text[Name]) }},
	ByPID:     {"i", "PID", func(a, b *Row) int { return cmp.Compare(a.PID, b.PID) }},
}

// descending compares figures, of which one that is not known is the least.
func descending(a, b float64) int { return cmp.Compare(b, a) } // NaN is below all numbers

func compareFold(a, b string) int {
	return cmp.Or(cmp.Compare(strings.ToLower(a), strings.ToLower(b)), cmp.Compare(a, b))
}

// The columns.
var (
	pid     = column{title: "PID", width: 7, text: func(r *Row, _ *Model) string { return number(r.PID) }, order: ByPID}
	power   = column{title: "POWER", width: 9, text: func(r *Row, _ *Model) string { return watts(r.Power) }, order: ByPower}
	gpu     = column{title: "GPU", width: 9, from: 70, text: func(r *Row, _ *Model) string { return some(r.GPU) }}
	share   = column{title: "SHARE", width: 6, from: 56, text: func(r *Row, m *Model) string { return percent(r.Power / m.frame.Active) }}
	energy  = column{title: "ENERGY", width: 9, text: func(r *Row, m *Model) string { return m.energy(r.Energy) }, order: ByEnergy}
	total   = column{title: "TOTAL", width: 9, from: 100, text: func(r *Row, m *Model) string { return m.energy(r.Total) }, order: ByTotal}
	cpuTime = column{title: "CPU TIME", width: 8, from: 74, text: func(r *Row, _ *Model) string { return seconds(r) }, order: ByCPUTime}
	busy    = column{title: "BUSY", width: 6, text: func(r *Row, _ *Model) string { return percent(r.Busy) }}
)

// words returns a column of texts.
func words(title string, t Text, width, from int) column {
	return column{title: title, width: width, from: from, left: true, text: func(r *Row, _ *Model) string { return r.Text[t] }}
}

// named returns the column of names, which takes what is left of the width.
func named(title string) column {
	return column{title: title, left: true, order: ByName, text: func(r *Row, _ *Model) string {
		return strings.TrimRight(r.Text[Name]+" "+r.Text[Arguments], " ")
	}}
}

// tables are the columns of each view, the last of which takes what is left of the width.
var tables = [NumViews][]column{
	Programs: {
		words("USER", User, 8, 64), power, gpu, share, energy, total, cpuTime,
		words("CONTAINER", Container, 18, 110), words("UNIT", Unit, 22, 132), words("POD", Pod, 28, 150), words("VM", VM, 14, 170), named("PROGRAM"),
	},
	Processes: {
		pid, words("USER", User, 8, 64), power, gpu, share, energy, total, cpuTime,
		words("CONTAINER", Container, 18, 110), words("POD", Pod, 28, 150), words("VM", VM, 14, 170), words("UNIT", Unit, 22, 190), named("PROCESS"),
	},
	Users: {power, gpu, share, energy, total, cpuTime, named("USER")},
	Containers: {
		power, gpu, share, energy, total, cpuTime, words("ID", ID, 12, 64), words("RUNTIME", Runtime, 10, 86), words("POD", Pod, 24, 110),
		words("NAMESPACE", Namespace, 16, 132), words("IMAGE", Image, 36, 150), named("CONTAINER"),
	},
	Pods:       {power, gpu, share, energy, total, words("NAMESPACE", Namespace, 16, 60), words("CLASS", Class, 10, 80), words("UID", ID, 36, 132), named("POD")},
	Namespaces: {power, gpu, share, energy, total, cpuTime, named("NAMESPACE")},
	VMs:        {power, gpu, share, energy, total, words("HYPERVISOR", Runtime, 16, 70), words("ID", ID, 36, 110), named("VM")},
	Units: {
		power, gpu, share, energy, total, named("UNIT"),
	},
	Jobs: {power, gpu, share, energy, total, named("JOB")},
	GPUs: {power, busy, energy, total, words("ID", ID, 40, 100), named("GPU")},
}

// shown returns the columns of a view that are shown. Columns in which no row has anything are left out.
func (m *Model) shown(width int) (columns []column) {
	rows := m.frame.Tables[m.view]
	for _, c := range tables[m.view] {
		if c.from > width {
			continue
		}
		used := c.order == ByPower || c.order == ByEnergy || c.order == ByName
		for i := 0; i < len(rows) && !used; i++ {
			text := c.text(&rows[i], m)
			used = text != "" && text != "-"
		}
		if used {
			columns = append(columns, c)
		}
	}
	return columns
}

func number(pid int32) string {
	if pid == 0 {
		return ""
	}
	return strconv.Itoa(int(pid))
}

func watts(w float64) string {
	if math.IsNaN(w) {
		return "-"
	}
	return figure.Watts(w)
}

// some returns a power, if there is any.
func some(w float64) string {
	if w > 0 {
		return figure.Watts(w)
	}
	return "-"
}

func percent(part float64) string {
	if math.IsNaN(part) || math.IsInf(part, 0) {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*part)
}

func seconds(r *Row) string {
	if r.CPUTime < 0 {
		return "-"
	}
	return figure.Seconds(r.CPUTime)
}
