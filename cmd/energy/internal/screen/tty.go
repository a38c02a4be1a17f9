// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
)

// takesWithin is how long a terminal may take to accept a write.
const takesWithin = 2 * time.Second

// tty is a terminal whose writes do not block for longer than takesWithin. A terminal that accepts
// no output, such as one of a multiplexer that was stopped, loses the writes that follow.
type tty struct {
	tcell.Tty

	mu    sync.Mutex
	guard patience.Guard
	lost  bool // something was not written
}

// Write implements io.Writer. It reports all of text as written, since a screen cannot write the
// rest later.
func (t *tty) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.guard.Blocked() {
		t.lost = true
		return len(text), nil
	}
	own, result := bytes.Clone(text), make(chan error, 1)
	t.guard.Grace = takesWithin
	if t.guard.Call(context.Background(), func() { _, err := t.Tty.Write(own); result <- err }) != nil {
		return len(text), nil
	}
	return len(text), <-result
}

// resumed reports whether the terminal accepts output again after it lost some. It reports so once.
func (t *tty) resumed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.lost || t.guard.Blocked() {
		return false
	}
	t.lost = false
	return true
}
