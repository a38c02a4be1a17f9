// SPDX-License-Identifier: Apache-2.0

// Package plot draws the power of measured commands over time.
package plot

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Panel is one command's power over time.
type Panel struct {
	// Title names the command.
	Title string
	// Note, if set, says which of several runs is drawn.
	Note   string
	Result *measure.Result
}

const (
	width       = 720 // of the image, in points
	panelHeight = 330
	margin      = 12
	panelWidth  = width - 2*margin
	// left, right and bottom are the edges of the area for the power in a panel. It begins below
	// the legend.
	left, right, bottom = 44, panelWidth - margin, panelHeight - 48
)

// SVG writes panels, at least one, below each other and with the same scales. The same panels are
// always the same bytes.
//
// The command's zones are stacked, so that their upper edge is the command's power. Zones that are
// not added to others are dashed lines. The power of the node, idle power included, is a thin line.
// If it is far above the command's, the scale is the command's, and the legend has the node's
// highest power.
func SVG(w io.Writer, panels ...Panel) error {
	drawn := make([]*panel, len(panels))
	for i, p := range panels {
		drawn[i] = newPanel(p)
	}
	x, y := commonScale(drawn)
	var c canvas
	c.open(` xmlns="http://www.w3.org/2000/svg" font-family="Liberation Sans,Arimo,Arial,Helvetica,sans-serif"`,
		0, 0, width, panelHeight*float64(len(drawn)))
	c.rect("#FFFFFF", 0, 0, width, panelHeight*float64(len(drawn)))
	for i, p := range drawn {
		p.x, p.y = x, y
		c.open("", margin, margin+panelHeight*float64(i), panelWidth, panelHeight-margin)
		p.draw(&c)
		c.close()
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
)

// panel is a Panel with the powers by step.
type panel struct {
	Panel
	edges  []time.Duration // of the steps of all powers
	layers []layer         // from the bottom to the top; the power of the node is the last
	bands  []band
	used   float64 // highest power of the command, in watts
	x, y   axis    // of time and power
	top    float64 // edge of the area for the power
}

// layer is the power of a zone or of the node.
type layer struct {
	name   string    // in the legend
	color  string    // of an area, which is stacked onto the areas before
	stroke string    // of a line; empty for an area
	watts  []float64 // by step
}

func newPanel(p Panel) *panel {
	samples := p.Result.Samples
	n := &panel{Panel: p, edges: edgesOf(samples), bands: bandsOf(samples)}
	total, node := make([]float64, len(n.edges)-1), make([]float64, len(n.edges)-1)
	var lines []layer
	for i, z := range p.Result.Zones {
		l := layer{name: legendOf(z), color: palette[i%len(palette)]}
		l.watts = powers(samples, n.edges, func(s measure.Sample) units.Energy { return s.Used[i] })
		if z.Besides != "" {
			n.used = max(n.used, highest(l.watts))
			l.stroke = fmt.Sprintf(`stroke=%q stroke-width="1.2" stroke-dasharray="4,2"`, l.color)
			lines = append(lines, l)
			continue
		}
		n.layers = append(n.layers, l)
		addTo(total, l.watts)
		addTo(node, powers(samples, n.edges, func(s measure.Sample) units.Energy { return s.NodeUsed[i] }))
	}
	n.used = max(n.used, highest(total))
	n.layers = append(append(n.layers, lines...), layer{name: "whole node", stroke: nodeLine, watts: node})
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

// nodeWithin is the maximum ratio of the node's power to the command's for a scale that includes
// the node's power.
const nodeWithin = 4

// commonScale returns the axes of time, in seconds, and of power, in watts.
func commonScale(panels []*panel) (x, y axis) {
	var seconds, watts, node float64
	for _, p := range panels {
		seconds = max(seconds, p.edges[len(p.edges)-1].Seconds())
		watts, node = max(watts, p.used), max(node, highest(p.layers[len(p.layers)-1].watts))
	}
	if watts == 0 || node <= nodeWithin*watts {
		watts = max(watts, node)
	}
	const headroom = 1.19 // for the names of phases
	return newAxis(seconds, unit{"ms", 1e3}, unit{"s", 1}, unit{"min", 1.0 / 60}, unit{"h", 1.0 / 3600}),
		newAxis(watts*headroom, unit{"mW", 1e3}, unit{"W", 1}, unit{"kW", 1e-3})
}

// at returns the point of a time, in seconds, and a power, in watts.
func (p *panel) at(seconds, watts float64) point {
	return point{left + (right-left)*seconds/p.x.most, bottom - (bottom-p.top)*watts/p.y.most}
}

func (p *panel) draw(c *canvas) {
	c.text(0, 12, 12, ink+` font-weight="bold"`, p.Title)
	used := p.Result.Used()
	sums := fmt.Sprintf("%s in %s, %s on average",
		figure.Joules(used), figure.Seconds(p.Result.Wall), figure.Watts(units.Watts(used, p.Result.Wall)))
	if p.Note != "" {
		sums += "  ·  " + p.Note
	}
	c.text(0, 27, 9.5, faintInk, sums)
	p.drawLegend(c)
	p.drawBands(c)
	p.drawAxes(c)
	p.drawPower(c)
}

// drawLegend writes the legend in three columns above the area for the power.
func (p *panel) drawLegend(c *canvas) {
	const columns, column, row, swatch = 3, panelWidth / 3, 13, 14
	for i, l := range p.layers {
		x, y := column*float64(i%columns), 39+row*float64(i/columns)
		if l.stroke == "" {
			c.rect(l.color, x, y-4, swatch, 8)
		} else {
			c.line(l.stroke, point{x, y}, point{x + swatch, y})
		}
		if most := highest(l.watts); most > p.y.most {
			l.name += ": up to " + figure.Watts(most) + ", above the scale"
		}
		c.text(x+swatch+4, y+3, 9, ink, l.name)
		p.top = y + row + 14 // for the name of the axis
	}
}

// drawBands draws the phases and their names.
func (p *panel) drawBands(c *canvas) {
	for i, b := range p.bands {
		from, to := p.at(b.from.Seconds(), 0), p.at(b.to.Seconds(), 0)
		if to.x-from.x < 0.5 { // there may be thousands
			continue
		}
		c.open("", from.x, p.top, to.x-from.x, bottom-p.top)
		c.rect(tints[i%len(tints)], 0, 0, to.x-from.x, bottom-p.top)
		c.text(3, 11, 9, faintInk, b.name)
		c.close()
	}
}

// drawAxes draws the axes and the grid.
func (p *panel) drawAxes(c *canvas) {
	const mark, size = 4, 9
	label := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	for _, v := range p.y.ticks(6) {
		at := p.at(0, v/p.y.factor)
		c.line(gridLine, at, point{right, at.y})
		c.line(axisLine, point{at.x - mark, at.y}, at)
		c.text(at.x-mark-2, at.y+3, size, faintInk+atEnd, label(v))
	}
	for _, v := range p.x.ticks(12) {
		at := p.at(v/p.x.factor, 0)
		c.line(axisLine, at, point{at.x, at.y + mark})
		c.text(at.x, at.y+mark+size, size, faintInk+centered, label(v))
	}
	c.line(axisLine, point{left, p.top}, point{left, bottom}, point{right, bottom})
	c.text((left+right)/2, bottom+28, size, faintInk+centered, "time ("+p.x.name+")")
	c.text(0, p.top-8, size, faintInk, "power ("+p.y.name+")")
}

// drawPower draws the powers. A line above the scale is left out.
func (p *panel) drawPower(c *canvas) {
	if len(p.edges) == 1 {
		c.text((left+right)/2, (p.top+bottom)/2, 10, faintInk+centered, "nothing was measured")
		return
	}
	upper := make([]float64, len(p.edges)-1)
	for _, l := range p.layers {
		switch {
		case l.stroke == "":
			lower := p.outline(upper)
			addTo(upper, l.watts)
			slices.Reverse(lower)
			c.fill(l.color, append(p.outline(upper), lower...)...)
		case highest(l.watts) <= p.y.most:
			c.line(l.stroke, p.outline(l.watts)...)
		}
	}
}

// outline returns the upper edge of steps of powers.
func (p *panel) outline(watts []float64) (points []point) {
	for i, w := range watts {
		points = append(points, p.at(p.edges[i].Seconds(), w), p.at(p.edges[i+1].Seconds(), w))
	}
	return points
}
