// SPDX-License-Identifier: Apache-2.0

package plot

import (
	_ "embed" // flame.js
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Frame is a function in the stacks of a flame graph.
type Frame struct {
	name       string
	used, base units.Energy // of the function and its callees, base in an earlier profile
	callees    []*Frame     // by name
}

// Stack has the energy of a stack, Base that in an earlier profile.
type Stack struct {
	Used, Base units.Energy
	// Next returns the name of the next function, the outermost first, and false after the last one.
	Next func() (name string, ok bool)

	name string // that Next returned
}

// NewFrame returns the frame of a command with some stacks, whose order it changes.
func NewFrame(name string, stacks []*Stack) *Frame {
	f := &Frame{name: name}
	f.grow(f, stacks)
	return f
}

// grow adds stacks to a frame. A frame that is too narrow to be drawn gets no callees: each stack may have a hundred
// frames that no other has.
func (f *Frame) grow(root *Frame, stacks []*Stack) {
	for _, s := range stacks {
		f.used += s.Used
		f.base += s.Base
	}
	if max(share(f.used, root.used), share(f.base, root.base)) < narrowest/flameWidth {
		return
	}
	stacks = slices.DeleteFunc(stacks, func(s *Stack) (ends bool) {
		name, ok := s.Next()
		s.name = name
		return !ok
	})
	slices.SortFunc(stacks, func(a, b *Stack) int { return strings.Compare(a.name, b.name) })
	for len(stacks) > 0 {
		callee := &Frame{name: stacks[0].name}
		end := sort.Search(len(stacks), func(i int) bool { return stacks[i].name != callee.name })
		callee.grow(root, stacks[:end])
		f.callees = append(f.callees, callee)
		stacks = stacks[end:]
	}
}

func share(of, whole units.Energy) float64 { return float64(of) / float64(max(whole, 1)) }

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

// Flame writes a flame graph: the width of a frame is its energy, and its callees are above it. In a browser, a click
// on a frame enlarges it, and functions can be searched.
//
// With a base, frames that use more than in it are red, and frames that use less are blue. Frames of
// the base alone are not drawn.
func Flame(w io.Writer, title string, root *Frame, compare bool) error {
	levels := root.depth(float64(root.used) * narrowest / flameWidth)
	g := flame{compare: compare, limit: maxFlame, whole: float64(max(root.used, 1)), height: headHeight + frameHeight*float64(levels)}
	if compare {
		g.most = root.mostChanged()
	}
	g.image(flameWidth, g.height+margin/2)
	g.drawHead(title)
	g.draw(root, 0, 0)
	g.WriteString("<script><![CDATA[\n" + flameScript + "]]></script>\n")
	g.close()
	_, err := w.Write(g.Bytes())
	return err
}

// flame is a flame graph that is drawn.
type flame struct {
	canvas
	compare       bool
	whole, height float64
	most          float64 // the largest change of a frame, in µJ
	limit         int     // see maxFlame
}

// drawHead writes the title, and below it the legend of colors and the keys.
func (g *flame) drawHead(title string) {
	const size, small, line = 13, 10, 36
	g.text(point{margin, 18}, size, ink, fit(title, size, flameWidth-2*margin))
	if g.compare {
		for i, text := range []string{"more than before", "less than before"} {
			left := margin + 130*float64(i)
			g.fillBox(changeColor(float64(1-2*i)), box{left, line - small + 2, left + 14, line})
			g.text(point{left + 18, line}, small, faintInk, text)
		}
	}
	g.text(point{flameWidth / 2, line}, small, ink+centered+` id="found"`, "")
	g.text(point{flameWidth - margin, line}, small, faintInk+atEnd+` id="find" cursor="pointer" visibility="hidden"`, "click on a frame: zoom; here or /: search; Esc: all")
}

// depth returns the number of frames on top of each other that have at least some energy, in µJ.
func (f *Frame) depth(least float64) (deepest int) {
	for _, callee := range f.callees {
		if float64(callee.used) >= least {
			deepest = max(deepest, callee.depth(least))
		}
	}
	return deepest + 1
}

func (f *Frame) change() float64 { return float64(f.used) - float64(f.base) }

func (f *Frame) mostChanged() float64 {
	most := math.Abs(f.change())
	for _, callee := range f.callees {
		most = max(most, callee.mostChanged())
	}
	return most
}

// draw draws a frame and its callees from a horizontal position on.
func (g *flame) draw(f *Frame, left float64, level int) {
	width := flameWidth * float64(f.used) / g.whole
	if width < narrowest || g.Len() > g.limit {
		return
	}
	bottom := g.height - frameHeight*float64(level)
	g.open(box{left, bottom - frameHeight, left + width, bottom}, ` class="f"`)
	g.WriteString("<title>")
	g.escape(g.describe(f))
	fmt.Fprintf(g, "</title><rect width=\"100%%\" height=\"%d\" fill=%q stroke=\"#FFFFFF\" stroke-width=\"0.3\"/>", frameHeight-1, g.color(f))
	g.text(point{3, frameHeight - 5}, 11, ink, f.name+"  "+figure.Joules(f.used))
	g.close()
	for _, callee := range f.callees {
		g.draw(callee, left, level+1)
		left += flameWidth * float64(callee.used) / g.whole
	}
}

// describe returns the text of a frame's tooltip.
func (g *flame) describe(f *Frame) string {
	text := fmt.Sprintf("%s: %s, %.1f %%", figure.Clean(f.name), figure.Joules(f.used), 100*float64(f.used)/g.whole)
	if g.compare {
		text += fmt.Sprintf(", before %s", figure.Joules(f.base))
	}
	return text
}

// color returns the color of a frame, which depends on its name, or on its change.
func (g *flame) color(f *Frame) string {
	if g.compare {
		return changeColor(f.change() / max(g.most, 1))
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, f.name) // a hash takes everything
	return fmt.Sprintf("hsl(%d,75%%,70%%)", 20+h.Sum32()%35)
}

// changeColor returns the color of a change from -1, the largest decrease, to 1.
func changeColor(change float64) string {
	hue := 0 // red
	if change < 0 {
		hue = 215
	}
	return fmt.Sprintf("hsl(%d,80%%,%.0f%%)", hue, 95-35*math.Abs(change))
}
