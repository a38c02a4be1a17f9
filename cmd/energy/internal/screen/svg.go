// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// The size of a cell in an SVG, and the space around the grid, in pixels.
const (
	cellWidth, cellHeight = 8.4, 18.0
	margin                = 12.0
)

// paper and ink are the colors of an SVG, of the background and of plain text.
const paper, ink = "#16181d", "#d7dae0"

// inks are the colors of the styles in an SVG, and on which background.
var inks = [...]struct {
	text, background string
	bold             bool
}{
	Plain: {text: ink}, Dim: {text: "#868c98"}, Bold: {text: "#ffffff", bold: true}, Head: {text: paper, background: "#9aa3b2"},
	Chosen: {text: paper, background: "#dfe5ee", bold: true}, Good: {text: "#7fc77f"}, Warning: {text: "#e0b152", bold: true}, Bad: {text: "#ec6a6a", bold: true},
}

// SVG returns a picture of the grid, which title describes.
func (g *Grid) SVG(title string) string {
	var b strings.Builder
	width, height := 2*margin+cellWidth*float64(g.width), 2*margin+cellHeight*float64(g.height)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(title))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", paper)
	b.WriteString(`<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">` + "\n")
	for y := range g.height {
		for x := 0; x < g.width; {
			text, cells := g.run(x, y)
			g.writeRun(&b, x, y, cells, text)
			x += cells
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// run returns the text from a cell on that has its style, and of how many cells it is.
func (g *Grid) run(x, y int) (text string, cells int) {
	var b strings.Builder
	style := g.At(x, y).Style
	for ; x+cells < g.width && g.At(x+cells, y).Style == style; cells++ {
		b.WriteString(g.At(x+cells, y).Text)
	}
	return b.String(), cells
}

// writeRun writes text of one style. Viewers show several spaces as one, so the text between them
// is written separately, with an explicit length, so that a viewer's own font does not shift it.
func (g *Grid) writeRun(b *strings.Builder, x, y, cells int, text string) {
	style := inks[g.At(x, y).Style]
	left, top := margin+cellWidth*float64(x), margin+cellHeight*float64(y)
	if style.background != "" {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left, top, cellWidth*float64(cells), cellHeight, style.background)
	}
	weight := ""
	if style.bold {
		weight = ` font-weight="bold"`
	}
	column := 0
	for part := range strings.SplitSeq(text, "  ") {
		if words := strings.Trim(part, " "); words != "" {
			before := len(part) - len(strings.TrimLeft(part, " "))
			fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s"%s>%s</text>`+"\n",
				left+cellWidth*float64(column+before), top+13, cellWidth*float64(figure.Width(words)), style.text, weight, escape(words))
		}
		column += figure.Width(part) + 2
	}
}

// escape returns text for XML.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a builder takes all
	return b.String()
}
