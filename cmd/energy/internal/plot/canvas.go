// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
)

// canvas writes an image as SVG. Coordinates grow to the right and downward.
type canvas struct{ bytes.Buffer }

type point struct{ x, y float64 }

// box is a part of the image.
type box struct{ left, top, right, bottom float64 }

func (b box) width() float64  { return b.right - b.left }
func (b box) height() float64 { return b.bottom - b.top }

// open begins an image, or within one a part that clips what is drawn. Coordinates are relative to
// the part. close ends it.
func (c *canvas) open(b box) {
	const element = `<svg xmlns="http://www.w3.org/2000/svg" x="%s" y="%s" width="%[3]s" height="%[4]s" viewBox="0 0 %[3]s %[4]s" font-family="%s">`
	fmt.Fprintf(c, element+"\n", number(b.left), number(b.top), number(b.width()), number(b.height()), fonts)
}

func (c *canvas) close() { c.WriteString("</svg>\n") }

// stroke is how lines are drawn.
type stroke struct {
	color  string
	width  float64
	dashed bool
}

// line draws a line through points.
func (c *canvas) line(s stroke, points []point) {
	dashes := ""
	if s.dashed {
		dashes = ` stroke-dasharray="4,2"`
	}
	fmt.Fprintf(c, "<polyline fill=\"none\" stroke=%q stroke-width=%q%s points=\"", s.color, number(s.width), dashes)
	c.points(points)
}

// fill fills a polygon.
func (c *canvas) fill(color string, points []point) {
	fmt.Fprintf(c, "<polygon fill=%q points=\"", color)
	c.points(points)
}

// points writes points and ends the element.
func (c *canvas) points(points []point) {
	for _, p := range points {
		c.WriteString(number(p.x) + "," + number(p.y) + " ")
	}
	c.WriteString("\"/>\n")
}

func rectangle(left, top, right, bottom float64) []point {
	return []point{{left, top}, {right, top}, {right, bottom}, {left, bottom}}
}

// number formats a coordinate to a tenth of a pixel.
func number(v float64) string {
	return string(bytes.TrimSuffix(strconv.AppendFloat(nil, v, 'f', 1, 64), []byte(".0")))
}

// fonts are fonts of about the same widths.
const fonts = "Liberation Sans,Arimo,Arial,Helvetica,sans-serif"

// style is how text is written.
type style struct {
	size   float64
	color  string
	anchor string // the part of the text at its point: "middle", "end", or "" for the begin
	bold   bool
}

func textStyle(size float64, color string) style { return style{size: size, color: color} }

// text writes a text on a baseline.
func (c *canvas) text(at point, s style, text string) { c.write(at, s, "", text) }

// upward writes a text that runs upward.
func (c *canvas) upward(at point, s style, text string) {
	c.write(at, s, fmt.Sprintf(` transform="rotate(-90 %s %s)"`, number(at.x), number(at.y)), text)
}

func (c *canvas) write(at point, s style, more, text string) {
	if s.anchor != "" {
		more += fmt.Sprintf(" text-anchor=%q", s.anchor)
	}
	if s.bold {
		more += ` font-weight="bold"`
	}
	fmt.Fprintf(c, "<text x=%q y=%q fill=%q font-size=%q%s>", number(at.x), number(at.y), s.color, number(s.size), more)
	_ = xml.EscapeText(c, []byte(text)) // a buffer takes everything
	c.WriteString("</text>\n")
}

// widths are those of the characters from space to tilde in fonts, in thousandths of the size.
var widths = [...]float64{
	278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, // to /
	556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, // to ?
	1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, // to O
	667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, // to _
	333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, // to o
	556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584, // to ~
}

// width returns the width of a text. Characters of unknown width are as wide as high.
func (s style) width(text string) (sum float64) {
	for _, r := range text {
		if i := int(r - ' '); i >= 0 && i < len(widths) {
			sum += widths[i]
		} else {
			sum += 1000
		}
	}
	if s.bold {
		sum *= 1.1
	}
	return sum * s.size / 1000
}
