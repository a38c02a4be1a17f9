// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
)

// takesWithin is how long a terminal may take to accept a write.
const takesWithin = 2 * time.Second

// tty is a terminal whose writes do not block for longer than takesWithin. A terminal that accepts
// no output, such as one of a multiplexer that was stopped, loses what is written meanwhile.
type tty struct {
	tcell.Tty

	mu      sync.Mutex
	pending chan struct{} // closed when the write that was not waited for has returned; nil without one
	lost    bool          // something was not written
}

// Write implements io.Writer. It reports all of text as written, since a screen cannot write the rest later.
func (t *tty) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.blocked() {
		t.lost = true
		return len(text), nil
	}
	own, done := bytes.Clone(text), make(chan struct{})
	var err error
	go func() {
		defer close(done)
		_, err = t.Tty.Write(own)
	}()
	timer := time.NewTimer(takesWithin)
	defer timer.Stop()
	select {
	case <-done:
		return len(text), err
	case <-timer.C:
		t.pending = done
		return len(text), nil
	}
}

// blocked reports whether a write is pending.
func (t *tty) blocked() bool {
	select {
	case <-t.pending:
		t.pending = nil
	default:
	}
	return t.pending != nil
}

// resumed reports whether the terminal accepts output again after it lost some. It reports so once.
func (t *tty) resumed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.lost || t.blocked() {
		return false
	}
	t.lost = false
	return true
}
