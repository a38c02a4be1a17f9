// SPDX-License-Identifier: Apache-2.0

// Package screen shows cells on a terminal, and writes them as text and as SVG.
//
// A [Grid] takes texts that nobody has checked: what could control a terminal is replaced before it becomes a cell.
package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// Style is how a cell looks. The zero Style is plain text.
type Style uint8

// The styles. A terminal without colors shows them bold, dim and reverse.
const (
	Plain   Style = iota
	Dim           // what is less important
	Bold          // what stands out
	Head          // the head of a table
	Chosen        // the column that a table is sorted by, a selected view
	Good          // a figure that was measured
	Warning       // a figure that was not measured, a note
	Bad           // what is wrong
)

// Cell is one character as a terminal shows it.
type Cell struct {
	// Text is a character with its marks. It is empty in the second cell of a wide character.
	Text  string
	Style Style
}

// Grid is what a terminal shows. The zero Grid has no cells; call NewGrid.
type Grid struct {
	width, height int
	cells         []Cell
}

// NewGrid returns a grid of spaces. A size below 0 is 0.
func NewGrid(width, height int) *Grid {
	g := &Grid{width: max(width, 0), height: max(height, 0)}
	g.cells = make([]Cell, g.width*g.height)
	for i := range g.cells {
		g.cells[i].Text = " "
	}
	return g
}

// Size returns the number of columns and rows.
func (g *Grid) Size() (width, height int) { return g.width, g.height }

// At returns a cell, which must be in the grid.
func (g *Grid) At(x, y int) Cell { return g.cells[y*g.width+x] }

// Put writes a text from a cell on, in at most width columns, and returns how many it used. A text that is longer ends with "…".
// What is not in the grid is left out.
func (g *Grid) Put(x, y, width int, style Style, text string) (used int) {
	if y < 0 || y >= g.height || x < 0 {
		return 0
	}
	width = min(width, g.width-x)
	for text := range characters(Fit(text, width)) {
		g.cells[y*g.width+x+used] = Cell{text.text, style}
		for i := 1; i < text.width; i++ {
			g.cells[y*g.width+x+used+i] = Cell{"", style}
		}
		used += text.width
	}
	return used
}

// PutRight writes a text that ends with the last of width columns.
func (g *Grid) PutRight(x, y, width int, style Style, text string) {
	text = Fit(text, width)
	g.Put(x+width-Width(text), y, width, style, text)
}

// Fill sets the style of a whole row.
func (g *Grid) Fill(y int, style Style) {
	if y < 0 || y >= g.height {
		return
	}
	for x := range g.width {
		g.cells[y*g.width+x].Style = style
	}
}

// String returns the rows as lines, without the spaces at their ends.
func (g *Grid) String() string {
	var b strings.Builder
	for y := range g.height {
		var row strings.Builder
		for x := range g.width {
			row.WriteString(g.At(x, y).Text)
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return b.String()
}

// Width returns how many columns a text needs.
func Width(text string) (width int) {
	for c := range characters(text) {
		width += c.width
	}
	return width
}

// Fit returns a text that is cut, with "…" at its end, where it needs more columns than there are.
func Fit(text string, width int) string {
	if Width(text) <= width {
		return text
	}
	var b strings.Builder
	used := 0
	for c := range characters(text) {
		if used+c.width > width-1 {
			break
		}
		b.WriteString(c.text)
		used += c.width
	}
	if width > 0 {
		b.WriteString("…")
	}
	return b.String()
}

// character is what a terminal shows in one cell, or in two.
type character struct {
	text  string
	width int
}

// maxMarks is how many marks a character may have. More would reach over other lines.
const maxMarks = 3

// characters yields the characters of a text as they may be shown: what is not printable is a question mark.
func characters(text string) func(yield func(character) bool) {
	return func(yield func(character) bool) {
		rest, state := figure.Clean(strings.ToValidUTF8(text, "?")), -1
		for rest != "" {
			var cluster string
			var width int
			cluster, rest, width, state = uniseg.FirstGraphemeClusterInString(rest, state)
			first, _ := utf8.DecodeRuneInString(cluster)
			if width < 1 || unicode.IsMark(first) { // marks without a character
				cluster, width = "?", 1
			}
			if !yield(character{cut(cluster), min(width, 2)}) {
				return
			}
		}
	}
}

// cut returns a character with at most maxMarks marks.
func cut(cluster string) string {
	n := 0
	for i := range cluster {
		if n > maxMarks {
			return cluster[:i]
		}
		n++
	}
	return cluster
}
