// SPDX-License-Identifier: Apache-2.0

// Package screen shows cells on a terminal, and writes them as text.
//
// A [Grid] accepts unchecked text: characters that could control a terminal are replaced before
// they become cells.
package screen

import (
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// Style is how a cell looks. The zero Style is plain text.
type Style uint8

// The styles. A terminal without colors shows them bold, dim and reverse.
const (
	Plain   Style = iota
	Dim           // less important text
	Bold          // what stands out
	Head          // the head of a table
	Sorted        // in it, the column that the table is sorted by
	Chosen        // the chosen row or view
	Bar           // bars and sparklines
	Good          // a figure that was measured
	Warning       // a figure that was not measured
	Bad           // a fault
)

// Cell is one character as a terminal shows it.
type Cell struct {
	// Text is a character with its marks. It is empty in the second cell of a wide character.
	Text  string
	Style Style
}

// Grid is the content of a terminal screen. The zero Grid has no cells; call NewGrid.
type Grid struct {
	// Mouse is set if the terminal is to report the mouse. While it does, it selects text only if
	// Shift is held.
	Mouse bool

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

// Put writes a text from a cell on, in at most width columns, and returns how many it used. A text
// that is longer ends with "…". Text outside of the grid is left out.
func (g *Grid) Put(x, y, width int, style Style, text string) (used int) {
	if y < 0 || y >= g.height || x < 0 {
		return 0
	}
	width = min(width, g.width-x)
	for character, columns := range figure.Characters(figure.Fit(text, width)) {
		g.cells[y*g.width+x+used] = Cell{character, style}
		for i := 1; i < columns; i++ {
			g.cells[y*g.width+x+used+i] = Cell{"", style}
		}
		used += columns
	}
	return used
}

// PutRight writes a text that ends with the last of width columns.
func (g *Grid) PutRight(x, y, width int, style Style, text string) {
	text = figure.Fit(text, width)
	g.Put(x+width-figure.Width(text), y, width, style, text)
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
