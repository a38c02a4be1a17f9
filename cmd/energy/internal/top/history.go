// SPDX-License-Identifier: Apache-2.0

package top

import (
	"math"
	"strings"
	"time"
)

// A cell of a sparkline is the mean power in one step. Steps are counted from 1970.
const (
	step      = 10 * time.Second
	rowCells  = 12
	nodeCells = 60
)

// history holds energies of the last steps, in rings: of the node, and of the rows of the newest
// frame. Time is the time of frames.
type history struct {
	at      time.Time
	seconds [nodeCells]float64 // time with figures
	node    [nodeCells]float64
	rows    [NumViews]map[string]*[rowCells]float64 // NaN before the first frame with the row
}

// stepOf returns the step that contains the moment before a time.
func stepOf(t time.Time) int64 { return (t.UnixNano() - 1) / int64(step) }

// ring returns the index of a step in a ring.
func ring(s int64, cells int) int { return int((s%int64(cells) + int64(cells)) % int64(cells)) }

// add adds a frame. A frame that is older than the last one begins a new history.
func (h *history) add(f *Frame) {
	if h.at.IsZero() || f.At.Before(h.at) {
		*h = history{at: f.At.Add(-time.Second)}
	}
	sum, last := Sum(f.Zones), stepOf(f.At)
	for s := max(stepOf(h.at), last-nodeCells+1); s <= last; s++ {
		begin, end := max(h.at.UnixNano(), s*int64(step)), min(f.At.UnixNano(), (s+1)*int64(step))
		if end <= begin {
			continue
		}
		seconds, at := time.Duration(end-begin).Seconds(), ring(s, nodeCells)
		begins := s > stepOf(h.at)
		if begins {
			h.seconds[at], h.node[at] = 0, 0
		}
		h.seconds[at] += seconds
		h.node[at] += seconds * (sum.Active + sum.Idle)
		for v := range f.Tables {
			h.addRows(View(v), f.Tables[v], ring(s, rowCells), seconds, begins)
		}
	}
	h.at = f.At
}

// addRows adds energy in one step, and removes rows that are no longer in the table.
func (h *history) addRows(v View, rows []Row, at int, seconds float64, begins bool) {
	known := h.rows[v]
	if known == nil || len(known) > len(rows) {
		h.rows[v] = make(map[string]*[rowCells]float64, len(rows))
	}
	for i := range rows {
		joules := known[rows[i].Key]
		if joules == nil {
			joules = new([rowCells]float64)
			for c := range joules {
				joules[c] = math.NaN()
			}
		}
		if begins || math.IsNaN(joules[at]) {
			joules[at] = 0
		}
		joules[at] += zeroNaN(rows[i].Power) * seconds
		h.rows[v][rows[i].Key] = joules
	}
}

// powers returns the mean power in each of the last steps until a time, NaN for steps without figures.
func (h *history) powers(joules []float64, at time.Time, cells int) []float64 {
	powers := make([]float64, cells)
	for i := range powers {
		s := stepOf(at) - int64(cells-1-i)
		powers[i] = math.NaN()
		if seconds := h.seconds[ring(s, nodeCells)]; len(joules) > 0 && seconds > 0 && s > stepOf(h.at)-int64(len(joules)) {
			powers[i] = joules[ring(s, len(joules))] / seconds
		}
	}
	return powers
}

// span returns the time with figures in the last steps until a time.
func (h *history) span(at time.Time, cells int) (span time.Duration) {
	for s := stepOf(at); s > stepOf(at)-int64(cells); s-- {
		span += time.Duration(h.seconds[ring(s, nodeCells)] * float64(time.Second))
	}
	return span
}

// sparkline draws powers between 0 and the largest of them.
func sparkline(powers []float64) string {
	largest := 0.0
	for _, p := range powers {
		largest = max(largest, zeroNaN(p))
	}
	levels := []rune("▁▂▃▄▅▆▇")
	var b strings.Builder
	for _, p := range powers {
		if math.IsNaN(p) {
			b.WriteByte(' ')
		} else {
			b.WriteRune(levels[int(zeroNaN(max(p, 0)/largest)*6+0.5)])
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
	length := func(w float64) int { return int(zeroNaN(max(0, min(w/largest, 1)))*float64(cells) + 0.5) }
	both := length(z.Active + z.Idle)
	active := min(length(z.Active), both)
	return strings.Repeat("█", active) + strings.Repeat("░", both-active)
}
