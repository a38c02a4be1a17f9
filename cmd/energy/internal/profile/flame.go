// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"cmp"
	_ "embed" // flame.js
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

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

const (
	flameHead = `<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="%[1]d" viewBox="0 0 1200 %[1]d"` +
		` font-family="Liberation Sans,Arimo,Arial,Helvetica,sans-serif">
<rect width="100%%" height="100%%" fill="#FFFFFF"/>
<text x="12" y="18" font-size="13" fill="#222222">%[2]s</text>
<text x="600" y="36" font-size="10" fill="#222222" text-anchor="middle" id="found"></text>
<text x="1188" y="36" font-size="10" fill="#666666" text-anchor="end" id="find" cursor="pointer" visibility="hidden">` +
		"click on a frame: zoom; here or /: search; Esc: all</text>\n"
	flameLegend = `<rect x="12" y="28" width="14" height="8" fill="%s"/><text x="30" y="36" font-size="10" fill="#666666">more than before</text>
<rect x="142" y="28" width="14" height="8" fill="%s"/><text x="160" y="36" font-size="10" fill="#666666">less than before</text>
`
	flameFrame = `<svg x="%.3f" y="%d" width="%.3f" height="17" class="f"><title>%s</title>` +
		`<rect width="100%%" height="16" fill="%s" stroke="#FFFFFF" stroke-width="0.3"/>` +
		`<text x="3" y="12" font-size="11" fill="#222222">%s</text></svg>` + "\n"
)

// writeFlame writes a flame graph of the samples of a command as SVG. The width of a frame is its
// energy, and its callees are below it. In a browser, a click on a frame enlarges it, and functions
// can be searched.
//
// In a comparison, frames that use more than in the base are red, and frames that use less are
// blue. Frames of the base alone are not drawn.
func writeFlame(w io.Writer, title, command string, samples []*profile.Sample, compare bool) error {
	f := newFlame(samples, compare)
	f.draw(command, slices.Clone(samples), 0, 0)
	var b bytes.Buffer
	fmt.Fprintf(&b, flameHead, headHeight+f.rows*frameHeight+6, escape(title))
	if compare {
		fmt.Fprintf(&b, flameLegend, changeColor(1), changeColor(-1))
	}
	b.Write(f.Bytes())
	b.WriteString("<script><![CDATA[\n" + flameScript + "]]></script>\n</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// escape returns a text without markup and control characters.
func escape(text string) string { return html.EscapeString(figure.Clean(text)) }

// flame draws the frames of a flame graph.
type flame struct {
	bytes.Buffer
	compare      bool
	used, larger float64 // energy of the command in µJ, and the larger one of it and the base
	rows         int
	limit        int // see maxFlame
}

func newFlame(samples []*profile.Sample, compare bool) *flame {
	used, base := sumOf(samples)
	return &flame{compare: compare, used: max(float64(used), 1), larger: max(float64(used), float64(base), 1), limit: maxFlame}
}

// sumOf returns the energy of samples in the profile and in the base.
func sumOf(samples []*profile.Sample) (used, base units.Energy) {
	for _, s := range samples {
		u, b := energyOf(s)
		used, base = used+u, base+b
	}
	return used, base
}

// draw draws the frame of a function from its samples, in a row, and below it its callees by name.
// It changes the order of the samples. Frames that are too narrow are left out, with their callees:
// each sample may have a hundred frames that no other has. draw returns the width of the frame.
func (f *flame) draw(name string, samples []*profile.Sample, row int, left float64) float64 {
	used, base := sumOf(samples)
	width := flameWidth * float64(used) / f.used
	if width < narrowest || f.Len() > f.limit {
		return width
	}
	f.drawFrame(name, used, base, row, left, width)
	samples = slices.DeleteFunc(samples, func(s *profile.Sample) bool { return row > len(s.Location) })
	slices.SortFunc(samples, func(a, b *profile.Sample) int { return cmp.Compare(calleeOf(a, row), calleeOf(b, row)) })
	for len(samples) > 0 {
		callee := calleeOf(samples[0], row)
		end := slices.IndexFunc(samples, func(s *profile.Sample) bool { return calleeOf(s, row) != callee })
		if end < 0 {
			end = len(samples)
		}
		left += f.draw(callee, samples[:end], row+1, left)
		samples = samples[end:]
	}
	return width
}

// calleeOf returns the name of the frame below a row: the process, and then the functions, the
// outermost first.
func calleeOf(s *profile.Sample, row int) string {
	if row == 0 {
		return strings.Join(s.Label[processLabel], "")
	}
	return nameOf(s.Location[len(s.Location)-row])
}

func (f *flame) drawFrame(name string, used, base units.Energy, row int, left, width float64) {
	joules := figure.Joules(used)
	tip := fmt.Sprintf("%s: %s, %.1f %%", name, joules, 100*float64(used)/f.used)
	if f.compare {
		tip += ", before " + figure.Joules(base)
	}
	f.rows = max(f.rows, row+1)
	color := f.color(name, float64(used)-float64(base))
	fmt.Fprintf(f, flameFrame, left, headHeight+row*frameHeight, width, escape(tip), color, escape(name+"  "+joules))
}

// color returns the color of a frame, which depends on its name, or in a comparison on its change
// in µJ.
func (f *flame) color(name string, change float64) string {
	if f.compare {
		return changeColor(change / f.larger)
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
