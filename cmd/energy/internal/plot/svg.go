// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// canvas writes an image as SVG. Coordinates grow to the right and downward. Attributes are written
// into the SVG element.
type canvas struct{ bytes.Buffer }

type point struct{ x, y float64 }

// open begins a part of the image, which clips its content. Coordinates are relative to the part.
// close ends it.
func (c *canvas) open(attributes string, x, y, width, height float64) {
	c.box("svg"+attributes, x, y, width, height)
	c.WriteString(">\n")
}

// rect fills a rectangle.
func (c *canvas) rect(color string, x, y, width, height float64) {
	c.box(fmt.Sprintf("rect fill=%q", color), x, y, width, height)
	c.WriteString("/>\n")
}

func (c *canvas) box(element string, x, y, width, height float64) {
	fmt.Fprintf(c, "<%s x=%q y=%q width=%q height=%q", element, number(x), number(y), number(width), number(height))
}

func (c *canvas) close() { c.WriteString("</svg>\n") }

// line draws a line through points.
func (c *canvas) line(attributes string, points ...point) {
	c.shape(`<polyline fill="none" `+attributes, points)
}

// fill fills a polygon.
func (c *canvas) fill(color string, points ...point) {
	c.shape(fmt.Sprintf("<polygon fill=%q", color), points)
}

func (c *canvas) shape(element string, points []point) {
	c.WriteString(element + ` points="`)
	for _, p := range points {
		c.WriteString(number(p.x) + "," + number(p.y) + " ")
	}
	c.WriteString("\"/>\n")
}

// text writes a text on a baseline, without its markup and control characters.
func (c *canvas) text(x, y, size float64, attributes, text string) {
	text = html.EscapeString(figure.Clean(text))
	fmt.Fprintf(c, "<text x=%q y=%q font-size=%q %s>%s</text>\n", number(x), number(y), number(size), attributes, text)
}

// number formats a coordinate to a tenth of a point.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
