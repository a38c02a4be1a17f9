// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"io"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// Characters yields the characters of a text as a terminal may show them, and the number of columns
// that each needs, 1 or 2. A question mark replaces each invisible character. Control characters
// could control the terminal, some characters change the direction of a line, and characters
// without a width could make two names look the same.
func Characters(text string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		rest, state := strings.Map(visible, strings.ToValidUTF8(text, "?")), -1
		for rest != "" {
			var cluster string
			var width int
			cluster, rest, width, state = uniseg.FirstGraphemeClusterInString(rest, state)
			first, _ := utf8.DecodeRuneInString(cluster)
			if width < 1 || unicode.IsMark(first) { // marks without a character
				cluster, width = "?", 1
			}
			if !yield(cut(cluster), min(width, 2)) {
				return
			}
		}
	}
}

// visible returns the character itself if a terminal shows it, else a question mark.
func visible(r rune) rune {
	const blank = '\u2800' // the Braille pattern without dots
	if r == blank || !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
		return '?'
	}
	return r
}

// maxMarks is the maximum number of marks of a character. More would reach over other lines.
const maxMarks = 3

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

// Clean returns a text as a terminal may show it: see Characters.
func Clean(text string) string {
	var b strings.Builder
	for c := range Characters(text) {
		b.WriteString(c)
	}
	return b.String()
}

// Line returns a text of several lines as one, with single spaces, and clean.
func Line(text string) string { return Clean(strings.Join(strings.Fields(text), " ")) }

// Writer returns a writer of texts for people: it cleans each line. Each call of Write must end
// between two characters.
func Writer(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

// Write implements io.Writer.
func (w writer) Write(text []byte) (int, error) {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = Clean(line)
	}
	if _, err := w.to.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Width returns the number of columns that a text needs.
func Width(text string) (columns int) {
	for _, width := range Characters(text) {
		columns += width
	}
	return columns
}

// Fit returns a text of at most so many columns. A longer text is cut and ends with "…".
func Fit(text string, columns int) string {
	if Width(text) <= columns {
		return text
	}
	var b strings.Builder
	used := 0
	for c, width := range Characters(text) {
		if used+width > columns-1 {
			break
		}
		b.WriteString(c)
		used += width
	}
	if columns > 0 {
		b.WriteString("…")
	}
	return b.String()
}

// Pad returns a clean text of exactly so many columns.
func Pad(text string, columns int) string {
	text = Clean(Fit(text, columns))
	return text + strings.Repeat(" ", columns-Width(text))
}

// Columns is the width of tables and texts.
const Columns = 80

// Wrap writes a text in lines of at most Columns. All but the first are indented.
func Wrap(b *strings.Builder, text string) { WrapIn(b, text, Columns) }

// WrapIn is Wrap with another number of columns.
func WrapIn(b *strings.Builder, text string, columns int) {
	const indent = "  "
	column := 0
	for i, word := range strings.Fields(text) {
		n := Width(word)
		switch {
		case i == 0:
		case column+1+n > columns:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteString("\n")
}
