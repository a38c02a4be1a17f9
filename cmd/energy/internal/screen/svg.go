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
	b.WriteString(`<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" xml:space="preserve" style="white-space: pre">` + "\n")
	for y := range g.height {
		for x := 0; x < g.width; {
			x += g.writeRun(&b, x, y)
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// writeRun writes the cells from one on that have its style, and returns their number. The length
// of the text is explicit, so that the font of a viewer does not shift it.
func (g *Grid) writeRun(b *strings.Builder, x, y int) (cells int) {
	var text strings.Builder
	style := g.At(x, y).Style
	for ; x+cells < g.width && g.At(x+cells, y).Style == style; cells++ {
		text.WriteString(g.At(x+cells, y).Text)
	}
	ink, left, top, bold := inks[style], margin+cellWidth*float64(x), margin+cellHeight*float64(y), ""
	if ink.background != "" {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left, top, cellWidth*float64(cells), cellHeight, ink.background)
	}
	if ink.bold {
		bold = ` font-weight="bold"`
	}
	if words := strings.TrimRight(text.String(), " "); words != "" {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s"%s>%s</text>`+"\n",
			left, top+13, cellWidth*float64(figure.Width(words)), ink.text, bold, escape(words))
	}
	return cells
}

// escape returns text for XML.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a builder takes all
	return b.String()
}
