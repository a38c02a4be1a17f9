// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// canvas writes an image as SVG. Coordinates grow to the right and downward. Attributes are written into the SVG
// element.
type canvas struct{ bytes.Buffer }

type point struct{ x, y float64 }

// box is a part of the image.
type box struct{ left, top, right, bottom float64 }

func (b box) width() float64  { return b.right - b.left }
func (b box) height() float64 { return b.bottom - b.top }

// image begins an image on a white ground. close ends it.
func (c *canvas) image(width, height float64) {
	const element = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s"` +
		` font-family="Liberation Sans,Arimo,Arial,Helvetica,sans-serif">` + "\n" +
		`<rect width="100%%" height="100%%" fill="#FFFFFF"/>` + "\n"
	fmt.Fprintf(c, element, number(width), number(height))
}

// open begins a part of the image, which clips its content. Coordinates are relative to the part. close ends it.
func (c *canvas) open(b box, attributes string) {
	fmt.Fprintf(c, `<svg x="%s" y="%s" width="%s" height="%s"%s>`,
		rounded(b.left, 1e3), rounded(b.top, 1e3), rounded(b.width(), 1e3), rounded(b.height(), 1e3), attributes)
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

// fillBox fills a rectangle.
func (c *canvas) fillBox(color string, b box) {
	c.fill(color, point{b.left, b.top}, point{b.right, b.top}, point{b.right, b.bottom}, point{b.left, b.bottom})
}

// number formats a coordinate to a tenth of a point.
func number(v float64) string { return rounded(v, 10) }

func rounded(v, to float64) string { return strconv.FormatFloat(math.Round(v*to)/to, 'f', -1, 64) }

// text writes a text on a baseline.
func (c *canvas) text(at point, size float64, attributes, text string) {
	fmt.Fprintf(c, "<text x=%q y=%q font-size=%q %s>", number(at.x), number(at.y), number(size), attributes)
	c.escape(figure.Clean(text))
	c.WriteString("</text>\n")
}

// turned writes a text in another direction, in degrees clockwise.
func (c *canvas) turned(at point, degrees int, size float64, attributes, text string) {
	c.text(at, size, fmt.Sprintf(`%s transform="rotate(%d %s %s)"`, attributes, degrees, number(at.x), number(at.y)), text)
}

// escape writes characters of a text, not markup.
func (c *canvas) escape(text string) {
	_ = xml.EscapeText(c, []byte(text)) // a buffer takes everything
}

// emPerColumn is the width of a character relative to its size: exact for monospaced fonts, and more than the mean of
// other fonts.
const emPerColumn = 0.6

// widthOf returns the width that a text needs at most.
func widthOf(text string, size float64) float64 {
	return float64(figure.Width(text)) * size * emPerColumn
}

// fit returns a text that is cut, with "…" at its end, if it is wider than width. It is empty if only "…" and a
// character would fit.
func fit(text string, size, width float64) string {
	columns := int(width / (size * emPerColumn))
	if columns < 3 && widthOf(text, size) > width {
		return ""
	}
	return figure.Fit(text, columns)
}
