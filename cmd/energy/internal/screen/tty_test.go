// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// device is a terminal that takes a text when the test receives it.
type device struct {
	tcell.Tty
	texts chan string
}

func (d device) Write(text []byte) (int, error) {
	d.texts <- string(text)
	return len(text), nil
}

func TestATerminalThatAcceptsNoOutputDelaysNoMoreThanOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := device{texts: make(chan string)}
		own := &tty{Tty: d}
		write := func(text string) (took time.Duration) {
			began := time.Now()
			n, err := own.Write([]byte(text))
			require.NoError(t, err)
			assert.Len(t, text, n)
			return time.Since(began)
		}
		assert.False(t, own.resumed())
		assert.Equal(t, takesWithin, write("a"))
		assert.Zero(t, write("b"))
		assert.Zero(t, write("c"))
		assert.False(t, own.resumed(), "the first write goes on")

		assert.Equal(t, "a", <-d.texts)
		synctest.Wait()
		assert.True(t, own.resumed())
		assert.False(t, own.resumed(), "once")
		go write("d")
		assert.Equal(t, "d", <-d.texts, "b and c are lost")
		assert.False(t, own.resumed())
	})
}
