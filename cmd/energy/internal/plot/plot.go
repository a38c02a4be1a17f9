// SPDX-License-Identifier: Apache-2.0

// Package plot draws the power of measured commands over time.
package plot

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	imagefont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

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
// The command's zones are stacked, so that their upper edge is the command's power. Zones that are not added to others are dashed
// lines. The power of the node, idle power included, is a thin line; where it is far above the command's, the scale is the command's.
func SVG(w io.Writer, panels ...Panel) error {
	canvas := vgsvg.New(width, vg.Length(panelHeight*len(panels)))
	whole := draw.New(canvas)
	drawn := make([]*panel, len(panels))
	for i, p := range panels {
		drawn[i] = newPanel(p)
	}
	scale := commonScale(drawn)
	for i, p := range drawn {
		below := vg.Length(panelHeight * (len(drawn) - 1 - i))
		p.draw(draw.Crop(whole, margin, -margin, below+margin/2, below+panelHeight-whole.Max.Y-margin), scale)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	// The names of fonts of the same widths, for viewers that do not have this one.
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arimo,Arial,Helvetica,sans-serif;")))
	return err
}

// The colors are those of Okabe and Ito (Color Universal Design, 2008), which the color-blind can tell apart, in the order in which
// they read best as areas.
var (
	palette = []color.Color{
		color.NRGBA{R: 0x56, G: 0xB4, B: 0xE9, A: 0xFF}, color.NRGBA{R: 0xE6, G: 0x9F, B: 0x00, A: 0xFF},
		color.NRGBA{R: 0x00, G: 0x9E, B: 0x73, A: 0xFF}, color.NRGBA{R: 0xCC, G: 0x79, B: 0xA7, A: 0xFF},
		color.NRGBA{R: 0xF0, G: 0xE4, B: 0x42, A: 0xFF}, color.NRGBA{R: 0xD5, G: 0x5E, B: 0x00, A: 0xFF},
		color.NRGBA{R: 0x00, G: 0x72, B: 0xB2, A: 0xFF},
	}
	ink      = color.NRGBA{R: 0x22, G: 0x22, B: 0x22, A: 0xFF}
	faintInk = color.NRGBA{R: 0x66, G: 0x66, B: 0x66, A: 0xFF}
	nodeLine = color.NRGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xFF}
	gridLine = color.NRGBA{R: 0xE4, G: 0xE4, B: 0xE4, A: 0xFF}
	tints    = []color.Color{color.NRGBA{R: 0xE3, G: 0xE9, B: 0xF2, A: 0xFF}, color.NRGBA{R: 0xF3, G: 0xED, B: 0xE0, A: 0xFF}}
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

// unit is what an axis is labeled in.
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

// pick returns the largest unit, in the order given, in which a value is at least 3, and of an unknown one the unit of factor 1.
func pick(value float64, units ...unit) unit {
	best := units[0]
	for _, u := range units {
		if value == 0 && u.factor == 1 || value*u.factor >= 3 || value > 0 && u.factor == 1 && value >= 1 {
			best = u
		}
	}
	return best
}

func (p *panel) draw(c draw.Canvas, s scale) {
	c.Max.Y -= p.drawHead(c)
	c.Max.Y -= p.drawLegend(c, s) + 4

	axes := plot.New()
	axes.BackgroundColor = nil
	axes.X.Min, axes.X.Max = 0, s.seconds*s.x.factor
	axes.Y.Min, axes.Y.Max = 0, s.watts*s.y.factor
	axes.X.Label.Text, axes.Y.Label.Text = "time ("+s.x.name+")", "power ("+s.y.name+")"
	for _, axis := range []*plot.Axis{&axes.X, &axes.Y} {
		axis.Padding = 0
		axis.Color, axis.Tick.Color = faintInk, faintInk
		axis.Label.TextStyle.Font, axis.Label.TextStyle.Color = sans(9), faintInk
		axis.Label.Padding = 3
		axis.Tick.Label.Font, axis.Tick.Label.Color = sans(9), faintInk
		axis.Tick.Length = 4
	}
	axes.X.Tick.Marker, axes.Y.Tick.Marker = ticker(12), ticker(6)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = nil, gridLine
	axes.Add(bandsPlot{p, s}, grid, powerPlot{p, s})
	axes.Draw(c)
}

// ticker marks an axis at multiples of 1, 2 or 5 times a power of ten, with about as many marks.
type ticker int

// Ticks implements plot.Ticker.
func (t ticker) Ticks(_, highest float64) (ticks []plot.Tick) {
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
		ticks = append(ticks, plot.Tick{Value: float64(i) * step, Label: strconv.FormatFloat(float64(i)*step, 'f', decimals, 64)})
	}
	return ticks
}

// drawHead writes the title and below it the sums, and returns their height.
func (p *panel) drawHead(c draw.Canvas) vg.Length {
	wide := 0.85 * (c.Max.X - c.Min.X) // a viewer without this font has one that is wider
	title := textStyle(12, ink)
	title.Font.Weight = imagefont.WeightBold
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y - 12}, fit(title, figure.Clean(p.Title), wide))
	used := p.Result.Used()
	sums := fmt.Sprintf("%s in %s, %s on average", figure.Joules(used), figure.Seconds(p.Result.Wall), figure.Watts(units.Watts(used, p.Result.Wall)))
	if p.Note != "" {
		sums += "  ·  " + figure.Clean(p.Note)
	}
	plain := textStyle(9.5, faintInk)
	c.FillText(plain, vg.Point{X: c.Min.X, Y: c.Max.Y - 27}, fit(plain, sums, wide))
	return 32
}

// key is an entry of the legend.
type key struct {
	name   string
	color  color.Color
	line   bool
	dashes []vg.Length
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
		keys = append(keys, key{name: name(i) + " (not added)", color: p.color(i), line: true, dashes: dashed})
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

var dashed = []vg.Length{4, 2}

// color returns that of a zone. Those that are added up have the first.
func (p *panel) color(zone int) color.Color {
	place := slices.Index(p.added, zone)
	if place < 0 {
		place = len(p.added) + slices.Index(p.besides, zone)
	}
	return palette[place%len(palette)]
}

// drawLegend writes the legend in rows, and returns their height.
func (p *panel) drawLegend(c draw.Canvas, s scale) vg.Length {
	const row, mark, gap = 13, 14, 20
	style := textStyle(9, ink)
	x, y := c.Min.X, c.Max.Y-row/2
	for _, k := range p.legend(s) {
		name := fit(style, k.name, c.Max.X-c.Min.X-mark)
		wide := mark + 4 + style.Width(name)
		if x+wide > c.Max.X && x > c.Min.X {
			x, y = c.Min.X, y-row
		}
		if k.line {
			c.StrokeLine2(draw.LineStyle{Color: k.color, Width: 1.2, Dashes: k.dashes}, x, y, x+mark, y)
		} else {
			c.FillPolygon(k.color, rectangle(x, y-4, x+mark, y+4))
		}
		c.FillText(style, vg.Point{X: x + mark + 4, Y: y - 3}, name)
		x += wide + gap
	}
	return c.Max.Y - y + row/2
}

// bandsPlot draws the phases.
type bandsPlot struct {
	*panel
	scale
}

// Plot implements plot.Plotter.
func (p bandsPlot) Plot(c draw.Canvas, axes *plot.Plot) {
	x, _ := axes.Transforms(&c)
	style := textStyle(9, faintInk)
	style.XAlign = draw.XCenter
	for i, b := range p.bands {
		from, to := x(b.from.Seconds()*p.x.factor), x(b.to.Seconds()*p.x.factor)
		if to-from < 0.5 {
			continue // too short to be seen, and there may be thousands
		}
		c.FillPolygon(tints[i%len(tints)], rectangle(from, c.Min.Y, to, c.Max.Y))
		if name := fit(style, figure.Clean(b.name), to-from-4); name != "" {
			c.FillText(style, vg.Point{X: (from + to) / 2, Y: c.Max.Y - 11}, name)
		}
	}
}

// powerPlot draws the powers.
type powerPlot struct {
	*panel
	scale
}

// Plot implements plot.Plotter.
func (p powerPlot) Plot(c draw.Canvas, axes *plot.Plot) {
	if len(p.edges) == 0 {
		style := textStyle(10, faintInk)
		style.XAlign = draw.XCenter
		c.FillText(style, c.Center(), "nothing was measured")
		return
	}
	upper := make([]float64, len(p.edges)-1)
	for _, zone := range p.added {
		lower := slices.Clone(upper)
		for i, w := range p.used[zone] {
			upper[i] += w
		}
		outline := p.outline(c, axes, lower)
		slices.Reverse(outline)
		c.FillPolygon(p.color(zone), c.ClipPolygonY(append(p.outline(c, axes, upper), outline...)))
	}
	for _, zone := range p.besides {
		p.line(c, axes, p.used[zone], draw.LineStyle{Color: p.color(zone), Width: 1.2, Dashes: dashed})
	}
	p.line(c, axes, p.nodeTotal, draw.LineStyle{Color: nodeLine, Width: 0.8})
}

// outline returns the upper edge of steps of powers.
func (p powerPlot) outline(c draw.Canvas, axes *plot.Plot, watts []float64) (points []vg.Point) {
	x, y := axes.Transforms(&c)
	for i, w := range watts {
		height := y(w * p.y.factor)
		points = append(points, vg.Point{X: x(p.edges[i].Seconds() * p.x.factor), Y: height},
			vg.Point{X: x(p.edges[i+1].Seconds() * p.x.factor), Y: height})
	}
	return points
}

func (p powerPlot) line(c draw.Canvas, axes *plot.Plot, watts []float64, style draw.LineStyle) {
	c.StrokeLines(style, c.ClipLinesXY(p.outline(c, axes, watts))...)
}

func rectangle(left, bottom, right, top vg.Length) []vg.Point {
	return []vg.Point{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top}, {X: left, Y: top}}
}

func sans(size font.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

func textStyle(size font.Length, c color.Color) text.Style {
	return text.Style{Color: c, Font: sans(size), Handler: plot.DefaultTextHandler}
}

// fit returns as much of a text as is no wider than width, with an ellipsis where it was cut. It is empty where next to nothing fits.
func fit(style text.Style, s string, width vg.Length) string {
	if style.Width(s) <= width {
		return s
	}
	runes := []rune(s)
	low, high := 0, len(runes) // the first runes of this number fit, and do not
	for low+1 < high {
		if middle := (low + high) / 2; style.Width(string(runes[:middle])+"…") <= width {
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
