// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"encoding/xml"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Frame is a function in the stacks of a flame graph.
type Frame struct {
	Name string
	// Used is the energy of the function and its callees, Base that of an earlier profile.
	Used, Base units.Energy
	callees    map[string]*Frame
}

// Add adds the energies of a stack below the frame, the outermost function first.
func (f *Frame) Add(stack []string, used, base units.Energy) {
	f.Used += used
	f.Base += base
	if len(stack) == 0 {
		return
	}
	callee := f.callees[stack[0]]
	if callee == nil {
		callee = &Frame{Name: stack[0]}
		if f.callees == nil {
			f.callees = map[string]*Frame{}
		}
		f.callees[callee.Name] = callee
	}
	callee.Add(stack[1:], used, base)
}

const (
	flameWidth  = 1200 // of the image, in points
	frameHeight = 17
	titleHeight = 28
	// narrowest is the width in points of the narrowest frame that is drawn.
	narrowest = 0.3
)

// Flame writes a flame graph: the width of a frame is its energy, and its callees are above it.
// With a base, frames that use more than in it are red, and frames that use less are blue. Frames of
// the base alone are not drawn.
func Flame(w io.Writer, title string, root *Frame, compare bool) error {
	g := flame{compare: compare, whole: float64(max(root.Used, 1)), height: titleHeight + frameHeight*float64(root.depth(float64(root.Used)*narrowest/flameWidth))}
	if compare {
		g.most = root.mostChanged()
	}
	g.open(box{right: flameWidth, bottom: g.height + margin/2})
	g.fill("#FFFFFF", rectangle(0, 0, flameWidth, g.height+margin/2))
	s := textStyle(13, ink)
	g.text(point{margin, titleHeight - margin}, s, fit(s, figure.Clean(title), flameWidth-2*margin))
	g.draw(root, 0, 0)
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
}

// depth returns the number of frames on top of each other that have at least some energy, in µJ.
func (f *Frame) depth(least float64) (deepest int) {
	for _, callee := range f.callees {
		if float64(callee.Used) >= least {
			deepest = max(deepest, callee.depth(least))
		}
	}
	return deepest + 1
}

func (f *Frame) change() float64 { return float64(f.Used) - float64(f.Base) }

func (f *Frame) mostChanged() float64 {
	most := math.Abs(f.change())
	for _, callee := range f.callees {
		most = max(most, callee.mostChanged())
	}
	return most
}

// draw draws a frame and its callees from a horizontal position on.
func (g *flame) draw(f *Frame, left float64, level int) {
	width := flameWidth * float64(f.Used) / g.whole
	if width < narrowest {
		return
	}
	bottom := g.height - frameHeight*float64(level)
	g.WriteString("<g><title>")
	_ = xml.EscapeText(g, []byte(g.describe(f))) // a buffer takes everything
	g.WriteString("</title>\n")
	g.fill(g.color(f), rectangle(left, bottom-frameHeight+1, left+max(width-0.3, 0.2), bottom))
	s := textStyle(11, ink)
	if label := fit(s, figure.Clean(f.Name), width-6); label != "" {
		g.text(point{left + 3, bottom - 4.5}, s, label)
	}
	g.WriteString("</g>\n")
	for _, callee := range slices.SortedFunc(maps.Values(f.callees), func(a, b *Frame) int { return strings.Compare(a.Name, b.Name) }) {
		g.draw(callee, left, level+1)
		left += flameWidth * float64(callee.Used) / g.whole
	}
}

// describe returns the text of a frame's tooltip.
func (g *flame) describe(f *Frame) string {
	text := fmt.Sprintf("%s: %s, %.1f %%", figure.Clean(f.Name), figure.Joules(f.Used), 100*float64(f.Used)/g.whole)
	if g.compare {
		text += fmt.Sprintf(", before %s", figure.Joules(f.Base))
	}
	return text
}

// color returns the color of a frame: that of its name, or of its change.
func (g *flame) color(f *Frame) string {
	if !g.compare {
		h := fnv.New32a()
		_, _ = io.WriteString(h, f.Name) // a hash takes everything
		return fmt.Sprintf("hsl(%d,75%%,70%%)", 20+h.Sum32()%35)
	}
	hue := 0 // red
	if f.change() < 0 {
		hue = 215
	}
	return fmt.Sprintf("hsl(%d,80%%,%.0f%%)", hue, 95-35*math.Abs(f.change())/max(g.most, 1))
}
