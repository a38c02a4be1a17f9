// SPDX-License-Identifier: Apache-2.0

// Package plot draws the power of measured commands over time.
package plot

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Panel is one command's power over time.
type Panel struct {
	// Title names the command. It is cut where it is longer than the plot is wide.
	Title string
	// Note, if set, says which of several runs is drawn.
	Note   string
	Result *measure.Result
}

const (
	width       = 720 // of the image, in points
	panelHeight = 330
	margin      = 12
)

// SVG writes panels, at least one, below each other and of the same scales. The same panels are always the same bytes.
//
// The command's zones are stacked, so that their upper edge is the command's power. Zones that are
// not added to others are dashed lines. The power of the node, idle power included, is a thin line;
// where it is far above the command's, the scale is the command's.
func SVG(w io.Writer, panels ...Panel) error {
	drawn := make([]*panel, len(panels))
	for i, p := range panels {
		drawn[i] = newPanel(p)
	}
	scale := commonScale(drawn)
	var c canvas
	c.open(box{right: width, bottom: float64(panelHeight * len(drawn))})
	for i, p := range drawn {
		top := float64(panelHeight * i)
		p.draw(&c, box{left: margin, top: top + margin, right: width - margin, bottom: top + panelHeight - margin/2}, scale)
	}
	c.close()
	_, err := w.Write(c.Bytes())
	return err
}

// The colors are those of Okabe and Ito (Color Universal Design, 2008), which color-blind readers
// can distinguish, in the order in which they read best as areas.
var (
	palette = []string{"#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#0072B2"}
	tints   = []string{"#E3E9F2", "#F3EDE0"}
)

const (
	ink      = "#222222"
	faintInk = "#666666"
	nodeLine = "#999999"
	gridLine = "#E4E4E4"
)

// panel is a Panel with what is drawn of it.
type panel struct {
	Panel
	steps
	bands          []band
	nodeTotal      []float64 // watts by step
	highest, node  float64   // power of the command and of the node, in watts
	added, besides []int     // zones, by index
}

func newPanel(p Panel) *panel {
	n := &panel{Panel: p, steps: stepsOf(p.Result), bands: bands(p.Result)}
	zones := p.Result.Zones
	for i, z := range zones {
		if z.Besides != "" {
			n.besides = append(n.besides, i)
		} else {
			n.added = append(n.added, i)
		}
	}
	if len(n.edges) == 0 {
		return n
	}
	n.nodeTotal = sum(zones, n.steps.node)
	n.node = highest(n.nodeTotal)
	n.highest = highest(sum(zones, n.used))
	for _, i := range n.besides {
		n.highest = max(n.highest, highest(n.used[i]))
	}
	return n
}

func highest(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Max(values)
}

// scale is that of both axes.
type scale struct {
	seconds, watts float64 // the largest
	x, y           unit
}

// unit is the unit of an axis.
type unit struct {
	name   string
	factor float64 // of seconds or watts
}

// nodeWithin is how many times the command's power the node's may be to be within the scale.
const nodeWithin = 4

func commonScale(panels []*panel) scale {
	var s scale
	node, named := 0.0, false
	for _, p := range panels {
		if len(p.edges) > 0 {
			s.seconds = max(s.seconds, p.edges[len(p.edges)-1].Seconds())
		}
		s.watts, node = max(s.watts, p.highest), max(node, p.node)
		named = named || len(p.bands) > 0
	}
	if s.watts == 0 || node <= nodeWithin*s.watts {
		s.watts = max(s.watts, node)
	}
	s.watts *= 1.08
	if named {
		s.watts *= 1.1 // for the names of phases
	}
	s.x = pick(s.seconds, unit{"ms", 1e3}, unit{"s", 1}, unit{"min", 1.0 / 60}, unit{"h", 1.0 / 3600})
	s.y = pick(s.watts, unit{"mW", 1e3}, unit{"W", 1}, unit{"kW", 1e-3})
	if s.seconds == 0 {
		s.seconds = 1
	}
	if s.watts == 0 {
		s.watts = 1
	}
	return s
}

// pick returns the largest unit, in the order given, in which a value is at least 3, and of an
// unknown one the unit of factor 1.
func pick(value float64, units ...unit) unit {
	best := units[0]
	for _, u := range units {
		if value == 0 && u.factor == 1 || value*u.factor >= 3 || value > 0 && u.factor == 1 && value >= 1 {
			best = u
		}
	}
	return best
}

func (p *panel) draw(c *canvas, b box, s scale) {
	b.top += p.drawHead(c, b)
	b.top += p.drawLegend(c, b, s) + 4
	area := box{left: b.left + 44, top: b.top, right: b.right, bottom: b.bottom - 30}
	highest := s.watts * s.y.factor

	c.open(area)
	p.drawBands(c, area, s)
	for _, t := range ticker(6).ticks(highest) {
		y := area.height() * (1 - t.value/highest)
		c.line(stroke{color: gridLine, width: 0.5}, []point{{0, y}, {area.width(), y}})
	}
	p.drawPower(c, area, s)
	c.close()
	p.drawAxes(c, b, area, s)
}

// drawAxes draws the axes, left of and below the area of a box.
func (p *panel) drawAxes(c *canvas, b, area box, s scale) {
	const mark = 4
	axis, label := stroke{color: faintInk, width: 0.5}, textStyle(9, faintInk)
	c.line(axis, []point{{area.left, area.top}, {area.left, area.bottom}, {area.right, area.bottom}})
	longest, highest := s.seconds*s.x.factor, s.watts*s.y.factor
	label.anchor = "middle"
	for _, t := range ticker(12).ticks(longest) {
		x := area.left + area.width()*t.value/longest
		c.line(axis, []point{{x, area.bottom}, {x, area.bottom + mark}})
		c.text(point{x, area.bottom + mark + 9}, label, t.label)
	}
	c.text(point{(area.left + area.right) / 2, b.bottom - 2}, label, "time ("+s.x.name+")")
	c.upward(point{b.left + 9, (area.top + area.bottom) / 2}, label, "power ("+s.y.name+")")
	label.anchor = "end"
	for _, t := range ticker(6).ticks(highest) {
		y := area.bottom - area.height()*t.value/highest
		c.line(axis, []point{{area.left - mark, y}, {area.left, y}})
		c.text(point{area.left - mark - 2, y + 3}, label, t.label)
	}
}

// ticker marks an axis at multiples of 1, 2 or 5 times a power of ten, with about as many marks.
type ticker int

// tick is a mark of an axis.
type tick struct {
	value float64
	label string
}

// ticks returns the marks from 0 to highest.
func (t ticker) ticks(highest float64) (ticks []tick) {
	rough := highest / float64(t)
	power := math.Floor(math.Log10(rough))
	step := math.Pow(10, power)
	for _, times := range []float64{2, 5, 10} {
		if step >= rough {
			break
		}
		step = times * math.Pow(10, power)
	}
	decimals := max(0, int(-math.Floor(math.Log10(step*1.0001))))
	for i := 0; float64(i)*step <= highest*1.0001; i++ {
		ticks = append(ticks, tick{float64(i) * step, strconv.FormatFloat(float64(i)*step, 'f', decimals, 64)})
	}
	return ticks
}

// drawHead writes the title and below it the sums, and returns their height.
func (p *panel) drawHead(c *canvas, b box) float64 {
	wide := 0.85 * b.width() // a viewer may have a wider font
	title := textStyle(12, ink)
	title.bold = true
	c.text(point{b.left, b.top + 12}, title, fit(title, figure.Clean(p.Title), wide))
	used := p.Result.Used()
	sums := fmt.Sprintf("%s in %s, %s on average", figure.Joules(used), figure.Seconds(p.Result.Wall), figure.Watts(units.Watts(used, p.Result.Wall)))
	if p.Note != "" {
		sums += "  ·  " + figure.Clean(p.Note)
	}
	plain := textStyle(9.5, faintInk)
	c.text(point{b.left, b.top + 27}, plain, fit(plain, sums, wide))
	return 32
}

// key is an entry of the legend.
type key struct {
	name   string
	color  string
	line   bool
	dashed bool
}

func (p *panel) legend(s scale) (keys []key) {
	zones := p.Result.Zones
	name := func(i int) string {
		n := figure.Clean(zones[i].Name)
		if zones[i].Source == "modeled" {
			n += ", modeled"
		}
		return n + ": " + figure.Joules(zones[i].Used)
	}
	for _, i := range p.added {
		keys = append(keys, key{name: name(i), color: p.color(i)})
	}
	for _, i := range p.besides {
		keys = append(keys, key{name: name(i) + " (not added)", color: p.color(i), line: true, dashed: true})
	}
	if p.node > 0 {
		node := "whole node"
		if p.node > s.watts {
			node += ", up to " + figure.Watts(p.node)
		}
		keys = append(keys, key{name: node, color: nodeLine, line: true})
	}
	return keys
}

// color returns that of a zone. Those that are added up have the first.
func (p *panel) color(zone int) string {
	place := slices.Index(p.added, zone)
	if place < 0 {
		place = len(p.added) + slices.Index(p.besides, zone)
	}
	return palette[place%len(palette)]
}

// drawLegend writes the legend in rows, and returns their height.
func (p *panel) drawLegend(c *canvas, b box, s scale) float64 {
	const row, mark, gap = 13, 14, 20
	style := textStyle(9, ink)
	x, y := b.left, b.top+row/2
	for _, k := range p.legend(s) {
		name := fit(style, k.name, b.width()-mark)
		wide := mark + 4 + style.width(name)
		if x+wide > b.right && x > b.left {
			x, y = b.left, y+row
		}
		if k.line {
			c.line(stroke{color: k.color, width: 1.2, dashed: k.dashed}, []point{{x, y}, {x + mark, y}})
		} else {
			c.fill(k.color, rectangle(x, y-4, x+mark, y+4))
		}
		c.text(point{x + mark + 4, y + 3}, style, name)
		x += wide + gap
	}
	return y - b.top + row/2
}

// drawBands draws the phases.
func (p *panel) drawBands(c *canvas, area box, s scale) {
	style := textStyle(9, faintInk)
	style.anchor = "middle"
	for i, b := range p.bands {
		from, to := area.width()*b.from.Seconds()/s.seconds, area.width()*b.to.Seconds()/s.seconds
		if to-from < 0.5 {
			continue // too short to be seen, and there may be thousands
		}
		c.fill(tints[i%len(tints)], rectangle(from, 0, to, area.height()))
		if name := fit(style, figure.Clean(b.name), to-from-4); name != "" {
			c.text(point{(from + to) / 2, 11}, style, name)
		}
	}
}

// drawPower draws the powers.
func (p *panel) drawPower(c *canvas, area box, s scale) {
	if len(p.edges) == 0 {
		style := textStyle(10, faintInk)
		style.anchor = "middle"
		c.text(point{area.width() / 2, area.height() / 2}, style, "nothing was measured")
		return
	}
	upper := make([]float64, len(p.edges)-1)
	for _, zone := range p.added {
		lower := slices.Clone(upper)
		for i, w := range p.used[zone] {
			upper[i] += w
		}
		outline := p.outline(area, s, lower)
		slices.Reverse(outline)
		c.fill(p.color(zone), append(p.outline(area, s, upper), outline...))
	}
	for _, zone := range p.besides {
		c.line(stroke{color: p.color(zone), width: 1.2, dashed: true}, p.outline(area, s, p.used[zone]))
	}
	c.line(stroke{color: nodeLine, width: 0.8}, p.outline(area, s, p.nodeTotal))
}

// outline returns the upper edge of steps of powers, in an area.
func (p *panel) outline(area box, s scale, watts []float64) (points []point) {
	x := func(i int) float64 { return area.width() * p.edges[i].Seconds() / s.seconds }
	for i, w := range watts {
		height := area.height() * (1 - w/s.watts)
		points = append(points, point{x(i), height}, point{x(i + 1), height})
	}
	return points
}

// fit returns as much of a text as is no wider than width, with an ellipsis where it was cut. It is
// empty where next to nothing fits.
func fit(style style, s string, width float64) string {
	if style.width(s) <= width {
		return s
	}
	runes := []rune(s)
	low, high := 0, len(runes) // the first runes of this number fit, and do not
	for low+1 < high {
		if middle := (low + high) / 2; style.width(string(runes[:middle])+"…") <= width {
			low = middle
		} else {
			high = middle
		}
	}
	if low < 2 {
		return ""
	}
	return strings.TrimRight(string(runes[:low]), " ") + "…"
}
