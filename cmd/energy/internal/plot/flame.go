// SPDX-License-Identifier: Apache-2.0

package plot

import (
	_ "embed" // flame.js
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Stack has the energy of a stack, Base that in an earlier profile.
type Stack struct {
	Used, Base units.Energy
	// Next returns the name of the next function, the outermost first, and false after the last one.
	Next func() (name string, ok bool)

	name string // the last result of Next
}

const (
	flameWidth  = 1200 // of the image, in points
	frameHeight = 17
	headHeight  = 44
	// narrowest is the width in points of the narrowest frame that is drawn.
	narrowest = 0.3
	// maxFlame bounds the size in bytes: beyond it, no further frames are drawn. Thousands of stacks of
	// the same energy may have a hundred frames each, with names of a KiB.
	maxFlame = 64 << 20
)

//go:embed flame.js
var flameScript string

// Flame writes a flame graph of the stacks of a command, whose order it changes. The width of a frame is its energy,
// and its callees are below it. In a browser, a click on a frame enlarges it, and functions can be searched.
//
// In a comparison, frames that use more than in the earlier profile are red, and frames that use less are blue. Frames
// of the earlier profile alone are not drawn.
func Flame(w io.Writer, title, command string, stacks []*Stack, compare bool) error {
	g := newFlame(stacks, compare)
	g.draw(command, stacks, 0, headHeight)
	var c canvas
	c.image(flameWidth, g.bottom+margin/2)
	c.drawHead(title, compare)
	c.Write(g.Bytes())
	c.WriteString("<script><![CDATA[\n" + flameScript + "]]></script>\n")
	c.close()
	_, err := w.Write(c.Bytes())
	return err
}

// drawHead writes the title, and below it the legend of colors and the keys.
func (c *canvas) drawHead(title string, compare bool) {
	const size, small, line = 13, 10, 36
	c.text(point{margin, 18}, size, ink, fit(title, size, flameWidth-2*margin))
	if compare {
		for i, text := range []string{"more than before", "less than before"} {
			left := margin + 130*float64(i)
			c.fillBox(changeColor(float64(1-2*i)), box{left, line - small + 2, left + 14, line})
			c.text(point{left + 18, line}, small, faintInk, text)
		}
	}
	c.text(point{flameWidth / 2, line}, small, ink+centered+` id="found"`, "")
	c.text(point{flameWidth - margin, line}, small, faintInk+atEnd+` id="find" cursor="pointer" visibility="hidden"`,
		"click on a frame: zoom; here or /: search; Esc: all")
}

// flame draws the frames of a flame graph.
type flame struct {
	canvas
	compare      bool
	used, larger float64 // energy of the command in µJ, and the larger one of it and the earlier profile
	bottom       float64
	limit        int // see maxFlame
}

func newFlame(stacks []*Stack, compare bool) *flame {
	used, base := sumOf(stacks)
	return &flame{compare: compare, used: max(used, 1), larger: max(used, base, 1), bottom: headHeight, limit: maxFlame}
}

// sumOf returns the energy of stacks in µJ, and their energy in the earlier profile.
func sumOf(stacks []*Stack) (used, base float64) {
	for _, s := range stacks {
		used += float64(s.Used)
		base += float64(s.Base)
	}
	return used, base
}

// draw draws the frame of a function from its stacks, and below it its callees by name. A frame that is too narrow is
// not drawn, and its callees are not read: each stack may have a hundred frames that no other has. draw returns the
// width of the frame.
func (g *flame) draw(name string, stacks []*Stack, left, top float64) float64 {
	used, base := sumOf(stacks)
	width := flameWidth * used / g.used
	if width < narrowest || g.Len() > g.limit {
		return width
	}
	g.drawFrame(name, used, base, box{left, top, left + width, top + frameHeight})
	stacks = slices.DeleteFunc(stacks, func(s *Stack) (ends bool) {
		next, ok := s.Next()
		s.name = next
		return !ok
	})
	slices.SortFunc(stacks, func(a, b *Stack) int { return strings.Compare(a.name, b.name) })
	for len(stacks) > 0 {
		callee := stacks[0].name
		end := slices.IndexFunc(stacks, func(s *Stack) bool { return s.name != callee })
		if end < 0 {
			end = len(stacks)
		}
		left += g.draw(callee, stacks[:end], left, top+frameHeight)
		stacks = stacks[end:]
	}
	return width
}

func (g *flame) drawFrame(name string, used, base float64, b box) {
	joules := figure.Joules(units.Energy(used))
	tip := fmt.Sprintf("%s: %s, %.1f %%", figure.Clean(name), joules, 100*used/g.used)
	if g.compare {
		tip += ", before " + figure.Joules(units.Energy(base))
	}
	g.bottom = max(g.bottom, b.bottom)
	g.open(b, ` class="f"`)
	g.WriteString("<title>")
	g.escape(tip)
	fmt.Fprintf(g, `</title><rect width="100%%" height="%d" fill=%q stroke="#FFFFFF" stroke-width="0.3"/>`,
		frameHeight-1, g.color(name, used-base))
	g.text(point{3, frameHeight - 5}, 11, ink, name+"  "+joules)
	g.close()
}

// color returns the color of a frame, which depends on its name, or in a comparison on its change in µJ.
func (g *flame) color(name string, change float64) string {
	if g.compare {
		return changeColor(change / g.larger)
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, name) // a hash takes everything
	return fmt.Sprintf("hsl(%d,75%%,70%%)", 20+h.Sum32()%35)
}

// changeColor returns the color of a change from -1 to 1.
func changeColor(change float64) string {
	hue := 0 // red
	switch {
	case change == 0:
		return "#EEEEEE"
	case change < 0:
		hue = 215
	}
	return fmt.Sprintf("hsl(%d,80%%,%.0f%%)", hue, 95-35*math.Sqrt(math.Abs(change)))
}
