// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"testing"

	"github.com/gdamore/tcell/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// simulated returns a terminal of 10 columns and 2 rows.
func simulated(t *testing.T) (*Terminal, tcell.SimulationScreen) {
	t.Helper()
	s := tcell.NewSimulationScreen("UTF-8")
	term, err := open(s, nil)
	require.NoError(t, err)
	t.Cleanup(term.Close)
	s.SetSize(10, 2)
	return term, s
}

// contents returns what a simulated terminal shows.
func contents(s tcell.SimulationScreen) (text string) {
	cells, _, _ := s.GetContents()
	for _, c := range cells {
		text += string(c.Runes)
	}
	return text
}

func TestATerminalShowsTheGrid(t *testing.T) {
	term, s := simulated(t)
	width, height := term.Size()
	assert.Equal(t, [2]int{10, 2}, [2]int{width, height})
	g := NewGrid(width, height)
	g.Put(0, 0, 10, Bold, "日本 a")
	g.Put(0, 1, 10, Head, "POWER")
	term.Draw(g)
	assert.Contains(t, contents(s), "日")
	assert.Contains(t, contents(s), "POWER")
	term.Draw(NewGrid(width, height))
	assert.NotContains(t, contents(s), "POWER")
}

func TestKeysHaveNames(t *testing.T) {
	term, s := simulated(t)
	next := func() Event {
		for e := range term.Events() {
			if _, resized := e.(Resized); !resized {
				return e
			}
		}
		return nil
	}
	for _, tt := range []struct {
		key  tcell.Key
		r    rune
		mod  tcell.ModMask
		want Key
	}{
		{tcell.KeyRune, 'q', 0, "q"},
		{tcell.KeyRune, 'é', 0, "é"},
		{tcell.KeyUp, 0, 0, KeyUp},
		{tcell.KeyCtrlC, 0, tcell.ModCtrl, KeyInterrupt},
		{tcell.KeyBackspace2, 0, 0, KeyBackspace},
		{tcell.KeyEscape, 0, 0, KeyEscape},
	} {
		s.InjectKey(tcell.KeyF5, 0, 0)                // nothing is done at it
		s.InjectKey(tcell.KeyRune, 'q', tcell.ModAlt) // nor at this
		s.InjectKey(tt.key, tt.r, tt.mod)
		assert.Equal(t, tt.want, next())
	}
	for _, buttons := range []tcell.ButtonMask{tcell.Button1, tcell.Button1, 0, tcell.Button2, tcell.WheelDown, tcell.WheelUp, tcell.Button1} {
		s.InjectMouse(3, 1, buttons, 0)
	}
	for _, want := range []Mouse{{3, 1, 0}, {3, 1, 1}, {3, 1, -1}, {3, 1, 0}} {
		assert.Equal(t, want, next(), "a movement with the button held is no click")
	}
}

func TestATerminalIsClosedOnce(t *testing.T) {
	term, _ := simulated(t)
	term.Close()
	term.Close()
	for e := range term.Events() {
		t.Logf("%v", e)
	}
}
