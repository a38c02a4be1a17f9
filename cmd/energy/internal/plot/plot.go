// SPDX-License-Identifier: Apache-2.0

// Package plot draws the power of measured commands over time, and the energy of functions as flame graphs.
package plot

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Panel is one command's power over time.
type Panel struct {
	// Title names the command. It is cut if it is longer than the plot is wide.
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

// SVG writes panels, at least one, below each other and with the same scales. The same panels are always the same bytes.
//
// The command's zones are stacked, so that their upper edge is the command's power. Zones that are
// not added to others are dashed lines. The power of the node, idle power included, is a thin line.
// If it is far above the command's, the scale is the command's, and the legend has the node's highest power.
func SVG(w io.Writer, panels ...Panel) error {
	drawn := make([]*panel, len(panels))
	for i, p := range panels {
		drawn[i] = newPanel(p)
	}
	x, y := commonScale(drawn)
	var c canvas
	c.image(width, float64(panelHeight*len(drawn)))
	for i, p := range drawn {
		top := float64(panelHeight * i)
		p.draw(&c, box{left: margin, top: top + margin, right: width - margin, bottom: top + panelHeight - margin/2}, x, y)
	}
	c.close()
	_, err := w.Write(c.Bytes())
	return err
}

// The colors of Okabe and Ito (Color Universal Design, 2008), which color-blind readers can
// distinguish. Their order is the most legible one for areas.
var (
	palette = []string{"#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#0072B2"}
	tints   = []string{"#E3E9F2", "#F3EDE0"}
)

// Attributes of texts and lines.
const (
	ink      = `fill="#222222"`
	faintInk = `fill="#666666"`
	axisLine = `stroke="#666666" stroke-width="0.5"`
	gridLine = `stroke="#E4E4E4" stroke-width="0.5"`
	nodeLine = `stroke="#999999" stroke-width="0.8"`
	centered = ` text-anchor="middle"`
	atEnd    = ` text-anchor="end"`
	// halo makes a text legible on every color.
	halo = ` stroke="#FFFFFF" stroke-width="2" paint-order="stroke"`
)

func dashed(color string) string {
	return fmt.Sprintf(`stroke=%q stroke-width="1.2" stroke-dasharray="4,2"`, color)
}

// panel is a Panel with the powers by step.
type panel struct {
	Panel
	edges   []time.Duration // of the steps of all powers
	layers  []layer         // the zones that are added up, the lowest first, and then the others
	node    []float64       // watts of the node by step
	bands   []band
	highest float64 // power of the command, in watts
}

// layer is the power of a zone.
type layer struct {
	name  string // in the legend
	color string
	line  bool      // the zone is not added to others
	watts []float64 // by step
}

func newPanel(p Panel) *panel {
	n := &panel{Panel: p, edges: edgesOf(p.Result.Samples), bands: bands(p.Result)}
	n.node = make([]float64, max(0, len(n.edges)-1))
	total := make([]float64, len(n.node))
	for _, line := range []bool{false, true} {
		for i, z := range p.Result.Zones {
			if line != (z.Besides != "") {
				continue
			}
			used, node := powers(p.Result.Samples, n.edges, i)
			n.layers = append(n.layers, layer{legendOf(z), palette[len(n.layers)%len(palette)], line, used})
			for step, w := range used {
				if !line {
					total[step] += w
					n.node[step] += node[step]
					w = total[step]
				}
				n.highest = max(n.highest, w)
			}
		}
	}
	return n
}

// legendOf returns the text of a zone in the legend.
func legendOf(z measure.Zone) string {
	text := z.Name
	if z.Source == string(power.Modeled) {
		text += ", modeled"
	}
	text += ": " + figure.Joules(z.Used)
	if z.Besides != "" {
		text += " (not added)"
	}
	return text
}

// nodeWithin is the maximum ratio of the node's power to the command's for a scale that includes the node's power.
const nodeWithin = 4

// commonScale returns the axes of time, in seconds, and of power, in watts.
func commonScale(panels []*panel) (x, y axis) {
	var seconds, watts, node float64
	headroom := 1.08
	for _, p := range panels {
		if len(p.edges) > 0 {
			seconds = max(seconds, p.edges[len(p.edges)-1].Seconds())
		}
		watts, node = max(watts, p.highest), max(node, highest(p.node))
		if len(p.bands) > 0 {
			headroom = 1.19 // for the names of phases
		}
	}
	if watts == 0 || node <= nodeWithin*watts {
		watts = max(watts, node)
	}
	return newAxis(seconds, unit{"ms", 1e3}, unit{"s", 1}, unit{"min", 1.0 / 60}, unit{"h", 1.0 / 3600}),
		newAxis(watts*headroom, unit{"mW", 1e3}, unit{"W", 1}, unit{"kW", 1e-3})
}

func highest(values []float64) float64 { return slices.Max(append(values, 0)) }

// area is the part of a panel with the power. Its axes are below and to the left of it.
type area struct {
	box
	x, y axis
}

// at returns the point of a time, in seconds, and a power, in watts.
func (a area) at(seconds, watts float64) point {
	return point{a.left + a.width()*seconds/a.x.most, a.bottom - a.height()*watts/a.y.most}
}

func (p *panel) draw(c *canvas, b box, x, y axis) {
	c.open(b, "")
	p.drawHead(c, b.width())
	top := p.drawLegend(c, b.width(), y)
	a := area{box{left: 44, top: top, right: b.width() - margin, bottom: b.height() - 30}, x, y}
	for i, band := range p.bands {
		if from, to := a.at(band.from.Seconds(), 0), a.at(band.to.Seconds(), 0); isVisible(from, to) {
			c.fillBox(tints[i%len(tints)], box{left: from.x, top: a.top, right: to.x, bottom: a.bottom})
		}
	}
	a.drawAxes(c, b.height())
	p.drawPower(c, a)
	p.nameBands(c, a)
	c.close()
}

// isVisible reports whether a stretch of time is wide enough to be seen. There may be thousands that are not.
func isVisible(from, to point) bool { return to.x-from.x >= 0.5 }

// drawAxes draws the axes and the grid.
func (a area) drawAxes(c *canvas, bottom float64) {
	const mark, size = 4, 9
	for _, t := range a.y.ticks(6) {
		left := a.at(0, t.value)
		c.line(gridLine, left, point{a.right, left.y})
		c.line(axisLine, point{left.x - mark, left.y}, left)
		c.text(point{left.x - mark - 2, left.y + 3}, size, faintInk+atEnd, t.label)
	}
	for _, t := range a.x.ticks(12) {
		at := a.at(t.value, 0)
		c.line(axisLine, at, point{at.x, at.y + mark})
		c.text(point{at.x, at.y + mark + size}, size, faintInk+centered, t.label)
	}
	c.line(axisLine, point{a.left, a.top}, point{a.left, a.bottom}, point{a.right, a.bottom})
	c.text(point{(a.left + a.right) / 2, bottom - 2}, size, faintInk+centered, "time ("+a.x.name+")")
	c.turned(point{size, (a.top + a.bottom) / 2}, -90, size, faintInk+centered, "power ("+a.y.name+")")
}

// drawHead writes the title and below it the sums.
func (p *panel) drawHead(c *canvas, width float64) {
	const size, small = 12, 9.5
	c.text(point{0, size}, size, ink+` font-weight="bold"`, fit(p.Title, size, width))
	used := p.Result.Used()
	sums := fmt.Sprintf("%s in %s, %s on average",
		figure.Joules(used), figure.Seconds(p.Result.Wall), figure.Watts(units.Watts(used, p.Result.Wall)))
	if p.Note != "" {
		sums += "  ·  " + p.Note
	}
	c.text(point{0, 27}, small, faintInk, fit(sums, small, width))
}

// drawLegend writes the legend in rows, and returns the height below which the panel is free.
func (p *panel) drawLegend(c *canvas, width float64, power axis) float64 {
	const size, row, swatch, gap = 9, 13, 18, 14
	x, y := 0.0, 39.0
	add := func(text string, draw func(left, right point)) {
		text = fit(text, size, width-swatch)
		wide := swatch + widthOf(text, size)
		if x+wide > width && x > 0 {
			x, y = 0, y+row
		}
		if draw != nil {
			draw(point{x, y}, point{x + swatch - 4, y})
			x += swatch
		}
		c.text(point{x, y + 3}, size, ink, text)
		x += wide - swatch + gap
	}
	for _, l := range p.layers {
		add(l.name, func(left, right point) {
			if l.line {
				c.line(dashed(l.color), left, right)
			} else {
				c.fillBox(l.color, box{left.x, y - 4, right.x, y + 4})
			}
		})
	}
	switch node := highest(p.node); {
	case node > power.most:
		add("whole node: up to "+figure.Watts(node)+", above the scale", nil)
	case node > 0:
		add("whole node", func(left, right point) { c.line(nodeLine, left, right) })
	}
	return y + row
}

// drawPower draws the powers.
func (p *panel) drawPower(c *canvas, a area) {
	if len(p.edges) == 0 {
		c.text(point{(a.left + a.right) / 2, (a.top + a.bottom) / 2}, 10, faintInk+centered, "nothing was measured")
		return
	}
	upper := make([]float64, len(p.edges)-1)
	for _, l := range p.layers {
		if l.line {
			c.line(dashed(l.color), p.outline(a, l.watts)...)
			continue
		}
		lower := p.outline(a, upper)
		for i, w := range l.watts {
			upper[i] += w
		}
		slices.Reverse(lower)
		c.fill(l.color, append(p.outline(a, upper), lower...)...)
	}
	if highest(p.node) <= a.y.most {
		c.line(nodeLine, p.outline(a, p.node)...)
	}
}

// outline returns the upper edge of steps of powers.
func (p *panel) outline(a area, watts []float64) (points []point) {
	for i, w := range watts {
		points = append(points, a.at(p.edges[i].Seconds(), w), a.at(p.edges[i+1].Seconds(), w))
	}
	return points
}

// nameBands writes the names of phases at the top. If a phase is narrower than its name, the name runs downward.
func (p *panel) nameBands(c *canvas, a area) {
	const size = 9
	free := a.left // of names, from here on
	for _, band := range p.bands {
		from, to := a.at(band.from.Seconds(), 0), a.at(band.to.Seconds(), 0)
		middle := (from.x + to.x) / 2
		switch {
		case !isVisible(from, to):
		case widthOf(band.name, size) <= to.x-from.x:
			c.text(point{middle, a.top + size + 2}, size, faintInk+centered+halo, band.name)
			free = to.x
		case middle-size/2 >= free:
			c.turned(point{middle - size/3, a.top + 2}, 90, size, faintInk+halo, fit(band.name, size, a.height()))
			free = middle + size
		}
	}
}
