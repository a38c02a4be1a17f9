// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

func TestWideCharactersTakeTwoCells(t *testing.T) {
	g := NewGrid(6, 1)
	assert.Equal(t, 4, g.Put(1, 0, 10, Bold, "日本"))
	assert.Equal(t, Cell{"日", Bold}, g.At(1, 0))
	assert.Equal(t, Cell{"", Bold}, g.At(2, 0))
	assert.Equal(t, Cell{" ", Plain}, g.At(5, 0))
	assert.Equal(t, " 日本\n", g.String())
	g.PutRight(0, 0, 6, Plain, "1.0 W")
	assert.Equal(t, " 1.0 W\n", g.String())
}

func TestTextOutsideOfTheGridIsLeftOut(t *testing.T) {
	g := NewGrid(3, 2)
	for _, at := range [][2]int{{-1, 0}, {0, -1}, {0, 2}, {3, 0}, {100, 100}} {
		assert.Zero(t, g.Put(at[0], at[1], 5, Plain, "x"))
	}
	g.Fill(-1, Head)
	g.Fill(2, Head)
	assert.Equal(t, "\n\n", g.String())
	w, h := NewGrid(-1, -5).Size()
	assert.Equal(t, [2]int{}, [2]int{w, h})
}

// FuzzGrid puts arbitrary texts into a grid.
func FuzzGrid(f *testing.F) {
	for _, text := range []string{"a", "\x1b[2J", "日本語\u0301", "\U0001f468\u200d\U0001f469", "\xff\u0301\u0301\u0301\u0301\u0301", "\u1100\u1161\u11a8", "\U0001f1e9\U0001f1ea"} {
		f.Add(text, 5, 3)
	}
	f.Fuzz(func(t *testing.T, text string, x, width int) {
		g := NewGrid(10, 1)
		g.Put(x%12, 0, width, Plain, text)
		columns := 0
		for x := range 10 {
			c := g.At(x, 0)
			columns += figure.Width(c.Text)
			for _, r := range c.Text {
				assert.True(t, unicode.IsPrint(r), "%q", c.Text)
			}
			assert.LessOrEqual(t, len([]rune(c.Text)), 4, "a character and three marks")
		}
		assert.Equal(t, 10, columns)
	})
}
