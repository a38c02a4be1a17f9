// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"html"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
)

// inks are the colors of styles in a picture: of the text, and of the background.
var inks = [...][2]string{
	screen.Plain: {"#d7dae0"}, screen.Dim: {"#868c98"}, screen.Bold: {"#ffffff"}, screen.Head: {"#9aa3b2"}, screen.Sorted: {"#ffffff"},
	screen.Chosen: {"#16181d", "#dfe5ee"}, screen.Bar: {"#5fa8b5"}, screen.Good: {"#7fc77f"}, screen.Warning: {"#e0b152"}, screen.Bad: {"#ec6a6a"},
}

// picture returns a grid as SVG. The length of each text is explicit, so that a viewer's font does
// not shift it.
func picture(g *screen.Grid, title string) string {
	const cell, line, margin = 8.4, 18.0, 12.0
	var b strings.Builder
	width, height := g.Size()
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" role="img" font-size="14" `+
		`font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" xml:space="preserve" style="white-space: pre">`+
		"\n<title>%[3]s</title>\n"+`<rect width="100%%" height="100%%" rx="8" fill="#16181d"/>`+"\n",
		2*margin+cell*float64(width), 2*margin+line*float64(height), html.EscapeString(title))
	for y := range height {
		for x := 0; x < width; {
			style, left, top, text := g.At(x, y).Style, margin+cell*float64(x), margin+line*float64(y), ""
			begin := x
			for ; x < width && g.At(x, y).Style == style; x++ {
				text += g.At(x, y).Text
			}
			if ground := inks[style][1]; ground != "" {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" fill="%s"/>`+"\n", left, top, cell*float64(x-begin), line, ground)
			}
			weight := "normal"
			if style == screen.Bold || style == screen.Chosen || style == screen.Sorted || style == screen.Bad {
				weight = "bold"
			}
			if style == screen.Head || style == screen.Sorted {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="1" fill="%s"/>`+"\n", left, top+line-2, cell*float64(x-begin), inks[style][0])
			}
			if text = strings.TrimRight(text, " "); text != "" {
				fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s" font-weight="%s">%s</text>`+"\n",
					left, top+13, cell*float64(figure.Width(text)), inks[style][0], weight, html.EscapeString(text))
			}
		}
	}
	return b.String() + "</svg>\n"
}
