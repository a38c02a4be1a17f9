// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
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

	pending, lost atomic.Bool // a write is blocked; a later one was dropped
}

// expired is a context that has ended.
var expired = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Write implements io.Writer. It reports all of text as written, since a screen cannot write the rest later.
func (t *tty) Write(text []byte) (int, error) {
	if t.pending.Load() {
		t.lost.Store(true)
		return len(text), nil
	}
	own := bytes.Clone(text)
	t.pending.Store(true)
	_, err := patience.Call(expired, takesWithin, func() (int, error) {
		defer t.pending.Store(false)
		return t.Tty.Write(own)
	})
	if errors.Is(err, patience.ErrBlocked) {
		err = nil
	}
	return len(text), err
}

// resumed reports whether the terminal accepts output again after it lost some. It reports so once.
func (t *tty) resumed() bool { return !t.pending.Load() && t.lost.Swap(false) }
