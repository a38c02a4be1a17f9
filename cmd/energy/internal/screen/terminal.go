// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v2"
)

// Event is an event of a terminal: a Key, a Mouse, a Resized or a Lost.
type Event interface{ event() }

// Key is a key that was pressed: the character that it writes, or one of the names below.
type Key string

// Keys that write no character.
const (
	KeyUp        Key = "up"
	KeyDown      Key = "down"
	KeyLeft      Key = "left"
	KeyRight     Key = "right"
	KeyPageUp    Key = "page up"
	KeyPageDown  Key = "page down"
	KeyHome      Key = "home"
	KeyEnd       Key = "end"
	KeyTab       Key = "tab"
	KeyBackTab   Key = "shift-tab"
	KeyEnter     Key = "enter"
	KeyEscape    Key = "esc"
	KeyBackspace Key = "backspace"
	KeyClear     Key = "ctrl-u"
	KeyInterrupt Key = "ctrl-c"
	KeyRedraw    Key = "ctrl-l"
	KeySuspend   Key = "ctrl-z"
	KeyHelp      Key = "f1"
	KeyFilter    Key = "f4"
	KeyQuit      Key = "f10"
)

var keys = map[tcell.Key]Key{
	tcell.KeyUp: KeyUp, tcell.KeyDown: KeyDown, tcell.KeyLeft: KeyLeft, tcell.KeyRight: KeyRight,
	tcell.KeyPgUp: KeyPageUp, tcell.KeyPgDn: KeyPageDown, tcell.KeyHome: KeyHome, tcell.KeyEnd: KeyEnd,
	tcell.KeyTab: KeyTab, tcell.KeyBacktab: KeyBackTab, tcell.KeyEnter: KeyEnter, tcell.KeyEscape: KeyEscape,
	tcell.KeyF1: KeyHelp, tcell.KeyF3: KeyFilter, tcell.KeyF4: KeyFilter, tcell.KeyF10: KeyQuit,
	tcell.KeyBackspace: KeyBackspace, tcell.KeyBackspace2: KeyBackspace,
	tcell.KeyCtrlU: KeyClear, tcell.KeyCtrlC: KeyInterrupt, tcell.KeyCtrlL: KeyRedraw, tcell.KeyCtrlZ: KeySuspend,
}

func (Key) event() {}

// Mouse is a click on a cell, or a step of the wheel over it.
type Mouse struct {
	X, Y int
	// Wheel is -1 for a step up and 1 for a step down. It is 0 for a click.
	Wheel int
}

func (Mouse) event() {}

// Resized reports that the terminal has another size.
type Resized struct{}

func (Resized) event() {}

// Lost reports that the terminal is gone.
type Lost struct{ Err error }

func (Lost) event() {}

// Terminal is this process's terminal while it shows cells in place of earlier output. Its methods
// must be called from one goroutine. It must be closed, even if the process panics, or
// the terminal stays unusable.
type Terminal struct {
	screen tcell.Screen
	tty    *tty // of screen; nil in a simulation
	events chan Event
	done   chan struct{}
	mouse  bool // the terminal reports the mouse
}

// Open enters the alternate screen of the terminal. If there is no terminal, or terminfo lacks it,
// Open fails without any change.
func Open() (*Terminal, error) {
	device, err := tcell.NewDevTty()
	if err != nil {
		return nil, err
	}
	own := &tty{Tty: device}
	s, err := tcell.NewTerminfoScreenFromTty(own)
	if err != nil {
		return nil, err
	}
	return open(s, own)
}

func open(s tcell.Screen, own *tty) (*Terminal, error) {
	if err := s.Init(); err != nil {
		return nil, err
	}
	for r, ascii := range fallbacks {
		s.RegisterRuneFallback(r, string(ascii))
	}
	t := &Terminal{screen: s, tty: own, events: make(chan Event), done: make(chan struct{})}
	go t.listen()
	return t, nil
}

// fallbacks replace characters on terminals that only show ASCII.
var fallbacks = map[rune]rune{
	'…': '.', 'µ': 'u', '±': '~', '·': '-', '▲': '^', '▼': 'v', '░': '.',
	'▁': '_', '▂': '_', '▃': '-', '▄': '-', '▅': '=', '▆': '=', '▇': '#', '█': '#',
	'▏': '|', '▎': '|', '▍': '|', '▌': '#', '▋': '#', '▊': '#', '▉': '#',
}

// listen passes on events until the terminal is closed.
func (t *Terminal) listen() {
	defer close(t.events)
	held := false // a button of the mouse is held down
	for {
		var e Event
		switch event := t.screen.PollEvent().(type) {
		case nil: // closed
			return
		case *tcell.EventKey:
			e = keyOf(event)
		case *tcell.EventMouse:
			e, held = mouseOf(event, held)
		case *tcell.EventResize:
			e = Resized{}
		case *tcell.EventError:
			e = Lost{event}
		}
		if e == nil {
			continue
		}
		select {
		case t.events <- e:
		case <-t.done:
			return
		}
	}
}

// keyOf returns a key, or nil for other keys.
func keyOf(e *tcell.EventKey) Event {
	if k, known := keys[e.Key()]; known {
		return k
	}
	if e.Key() == tcell.KeyRune && e.Modifiers()&(tcell.ModAlt|tcell.ModCtrl|tcell.ModMeta) == 0 {
		return Key(e.Rune())
	}
	return nil
}

// mouseOf returns a click or a step of the wheel, or nil for a movement, and whether the first
// button is held down. A terminal repeats the event while the mouse moves with the button held.
func mouseOf(e *tcell.EventMouse, held bool) (event Event, holds bool) {
	x, y := e.Position()
	switch b := e.Buttons(); {
	case b&tcell.WheelUp != 0:
		return Mouse{x, y, -1}, held
	case b&tcell.WheelDown != 0:
		return Mouse{x, y, 1}, held
	case b&tcell.Button1 == 0:
		return nil, false
	case held:
		return nil, true
	}
	return Mouse{X: x, Y: y}, true
}

// Events returns what happens at the terminal. The channel is closed when the terminal is.
func (t *Terminal) Events() <-chan Event { return t.events }

// Size returns the columns and rows of the terminal.
func (t *Terminal) Size() (width, height int) {
	if tty, ok := t.screen.Tty(); ok {
		// A signal of the size may have been missed.
		width, height = t.screen.Size()
		if now, err := tty.WindowSize(); err == nil && (now.Width != width || now.Height != height) {
			t.screen.Sync()
		}
	}
	return t.screen.Size()
}

// Draw shows a grid. It writes only the cells that differ from those shown.
func (t *Terminal) Draw(g *Grid) {
	if t.tty != nil && t.tty.resumed() {
		t.screen.Sync()
	}
	if g.Mouse != t.mouse {
		if t.mouse = g.Mouse; t.mouse {
			t.screen.EnableMouse(tcell.MouseButtonEvents)
		} else {
			t.screen.DisableMouse()
		}
	}
	for y := range g.height {
		for x := range g.width {
			if c := g.At(x, y); c.Text != "" {
				t.screen.Put(x, y, c.Text, looks[c.Style])
			}
		}
	}
	t.screen.Show()
}

// Redraw writes all cells again, for where another program has written to the terminal.
func (t *Terminal) Redraw() { t.screen.Sync() }

// undelivered is the time after which Suspend assumes that the kernel dropped the stop signal.
const undelivered = 500 * time.Millisecond

// Suspend gives the terminal back, stops the process group as the shell's key does, and shows the
// cells again when it continues. The kernel stops no process that no shell could continue.
func (t *Terminal) Suspend() error {
	if err := t.screen.Suspend(); err != nil {
		return err
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	stopped := syscall.Kill(0, syscall.SIGTSTP)
	// Another thread takes the signal, so this one goes on for a moment. A terminal that it took
	// back now would have the shell's settings afterwards.
	select {
	case <-continued:
	case <-time.After(undelivered):
	}
	if err := t.screen.Resume(); err != nil {
		return err
	}
	t.screen.Sync()
	return stopped
}

// Close restores the earlier content of the terminal. It may be called again.
func (t *Terminal) Close() {
	select {
	case <-t.done:
		return
	default:
		close(t.done)
	}
	t.screen.Fini()
}

// looks are the styles on a terminal. Its palette has the colors, so that they fit its background.
// Without colors, or with NO_COLOR, the attributes remain.
var looks = [...]tcell.Style{
	Plain:   tcell.StyleDefault,
	Dim:     tcell.StyleDefault.Dim(true),
	Bold:    tcell.StyleDefault.Bold(true),
	Head:    tcell.StyleDefault.Underline(true),
	Sorted:  tcell.StyleDefault.Underline(true).Bold(true),
	Chosen:  tcell.StyleDefault.Reverse(true).Bold(true),
	Bar:     tcell.StyleDefault.Foreground(tcell.ColorTeal),
	Good:    tcell.StyleDefault.Foreground(tcell.ColorGreen),
	Warning: tcell.StyleDefault.Foreground(tcell.ColorOlive),
	Bad:     tcell.StyleDefault.Foreground(tcell.ColorMaroon).Bold(true),
}
