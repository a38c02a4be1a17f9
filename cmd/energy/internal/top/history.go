// SPDX-License-Identifier: Apache-2.0

package top

import (
	"math"
	"strings"
	"time"
)

// A cell of a sparkline is the mean power of one step. The steps of all sparklines begin at the same times.
const (
	step      = 10 * time.Second
	rowCells  = 12
	nodeCells = 60
)

// history holds the power of the node and of all rows of the newest frame in the last minutes. Time
// is that of the frames.
type history struct {
	at      time.Time
	frames  uint64
	seconds *trace // time with figures
	node    *trace
	rows    [NumViews]map[string]*trace
}

// trace is a sum for each of the last steps, in a ring.
type trace struct {
	sums        []float64
	first, last int64  // steps since 1970
	frame       uint64 // the newest frame that has it
}

// part is a part of the time between two frames that is within one step.
type part struct {
	step    int64
	seconds float64
}

func newTrace(cells int, first int64) *trace {
	return &trace{sums: make([]float64, cells), first: first, last: first}
}

// add adds to a step, which is not before the last one.
func (t *trace) add(step int64, v float64) {
	n := int64(len(t.sums))
	for s := max(t.last+1, step-n+1); s <= step; s++ {
		t.sums[t.index(s)] = 0
	}
	t.last = max(t.last, step)
	t.sums[t.index(step)] += v
}

// index returns the place of a step, which is negative before 1970.
func (t *trace) index(step int64) int64 {
	n := int64(len(t.sums))
	return (step%n + n) % n
}

// of returns the sum of a step, and false if there is none.
func (t *trace) of(step int64) (sum float64, ok bool) {
	if t != nil && step >= t.first && step <= t.last && step > t.last-int64(len(t.sums)) {
		return t.sums[t.index(step)], true
	}
	return 0, false
}

// add adds a frame. A frame that is older than the last one begins a new history.
func (h *history) add(f *Frame) {
	if f.At.Before(h.at) || h.node == nil {
		first := stepOf(f.At)
		*h = history{at: f.At.Add(-time.Second), seconds: newTrace(nodeCells, first-1), node: newTrace(nodeCells, first-1)}
	}
	parts := partsOf(h.at, f.At)
	if len(parts) == 0 {
		return
	}
	h.at = f.At
	h.frames++
	node := sumOf(f.Zones)
	for _, p := range parts {
		h.seconds.add(p.step, p.seconds)
		h.node.add(p.step, p.seconds*(node.Active+node.Idle))
	}
	for v := range f.Tables {
		h.addRows(View(v), f.Tables[v], parts)
	}
}

// addRows adds the rows of a view, and removes the traces of rows that are gone.
func (h *history) addRows(v View, rows []Row, parts []part) {
	if h.rows[v] == nil {
		h.rows[v] = make(map[string]*trace, len(rows))
	}
	traces := h.rows[v]
	for i := range rows {
		r := &rows[i]
		t := traces[r.Key]
		if t == nil {
			t = newTrace(rowCells, parts[0].step)
			traces[r.Key] = t
		}
		t.frame = h.frames
		for _, p := range parts {
			t.add(p.step, zeroNaN(r.Power)*p.seconds)
		}
	}
	for key, t := range traces {
		if len(traces) == len(rows) {
			break
		}
		if t.frame != h.frames {
			delete(traces, key)
		}
	}
}

// stepOf returns the step that ends at or contains a time.
func stepOf(t time.Time) int64 { return (t.UnixNano() - 1) / int64(step) }

// partsOf divides the time between two frames by steps. Time before the oldest step is left out.
func partsOf(from, to time.Time) (parts []part) {
	last := stepOf(to)
	for s := max(stepOf(from), last-nodeCells+1); s <= last; s++ {
		begin, end := max(from.UnixNano(), s*int64(step)), min(to.UnixNano(), (s+1)*int64(step))
		if end > begin {
			parts = append(parts, part{s, time.Duration(end - begin).Seconds()})
		}
	}
	return parts
}

// powers returns the mean power in so many steps until a time. Steps without figures are NaN.
func (h *history) powers(t *trace, at time.Time, cells int) []float64 {
	out := make([]float64, cells)
	for i := range out {
		s := stepOf(at) - int64(cells-1-i)
		sum, ok := t.of(s)
		seconds, _ := h.seconds.of(s)
		if out[i] = sum / seconds; !ok || seconds == 0 {
			out[i] = math.NaN()
		}
	}
	return out
}

// bounds returns the least and the largest power, and how many there are.
func bounds(powers []float64) (least, largest float64, n int) {
	for _, p := range powers {
		if math.IsNaN(p) {
			continue
		}
		if n++; n == 1 {
			least, largest = p, p
		}
		least, largest = min(least, p), max(largest, p)
	}
	return least, largest, n
}

// sparkline draws powers between 0 and the largest of them. It is blank where there is no figure.
func sparkline(powers []float64) string {
	levels := []rune("▁▂▃▄▅▆▇")
	_, largest, _ := bounds(powers)
	var b strings.Builder
	for _, p := range powers {
		switch {
		case math.IsNaN(p):
			b.WriteByte(' ')
		case !(largest > 0):
			b.WriteRune(levels[0])
		default:
			b.WriteRune(levels[int(math.Round(max(p, 0)/largest*float64(len(levels)-1)))])
		}
	}
	return b.String()
}

// barOf draws a part of a whole in so many cells, with eighths. A part of 0.1 % is visible.
func barOf(part float64, cells int) string {
	if !(part >= 0.0005) || math.IsInf(part, 0) {
		return ""
	}
	eighths := max(int(math.Round(min(part, 1)*float64(8*cells))), 1)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}

// stackOf draws the active and the idle power of a zone next to each other.
func stackOf(z *Zone, largest float64, cells int) string {
	if !(largest > 0) || math.IsInf(largest, 0) {
		return ""
	}
	length := func(w float64) int { return int(math.Round(max(min(zeroNaN(w)/largest, 1), 0) * float64(cells))) }
	both := length(z.Active + z.Idle)
	active := min(length(z.Active), both)
	return strings.Repeat("█", active) + strings.Repeat("░", both-active)
}
