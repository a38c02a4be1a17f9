// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// hangsAfter is the time after which a call of the receiver is not waited for any more.
const hangsAfter = 3 * time.Second

// errHangs is the error of a call that was not waited for, and of those after it until it has returned.
var errHangs = errors.New("the receiver hangs: a read of this machine does not return")

// receiver is the embedded receiver. A call of it that hangs is not waited for longer than
// hangsAfter, so that the end of the command and signals are noticed whatever hangs. A receiver is
// not safe for concurrent use.
type receiver struct {
	embedded embedded
	ctx      context.Context //nolint:containedctx // of the run: after a signal nothing waits for a call that hangs already
	guard    patience.Guard
	lost     bool // start hangs
	state         // as of the last call that returned
}

// state is the state of the meters.
type state struct {
	attributed []power.Reading
	trained    map[power.Class]bool // the kinds whose static power model is trained
	expected   map[power.Class]float64
	notes      []energyreceiver.Note
	waits      bool // a meter whose energy would be attributed has not answered yet
}

// embedded is energyreceiver.Embedded.
type embedded interface {
	Start(ctx context.Context) error
	Collect(ctx context.Context) (pmetric.Metrics, error)
	Attributed() []power.Reading
	Trained() map[power.Class]bool
	ExpectedErrors() map[power.Class]float64
	Notes() []energyreceiver.Note
	Waits() bool
	Shutdown(ctx context.Context) error
}

var _ embedded = (*energyreceiver.Embedded)(nil)

func newReceiver(ctx context.Context, e embedded) receiver {
	return receiver{embedded: e, ctx: ctx, guard: patience.Guard{Grace: hangsAfter}}
}

// start takes the baseline. It waits for the meters until they are open or ctx ends.
func (r *receiver) start() error {
	_, err := patience.Call(r.ctx, hangsAfter, func() (struct{}, error) { return struct{}{}, r.embedded.Start(r.ctx) })
	switch {
	case errors.Is(err, patience.ErrBlocked):
		r.lost = true
		return context.Cause(r.ctx)
	case err != nil:
		return err
	}
	return r.call(r.look)
}

// look reads the state of the meters, and returns what sets it.
func (r *receiver) look() (set func()) {
	e := r.embedded
	now := state{e.Attributed(), e.Trained(), e.ExpectedErrors(), e.Notes(), e.Waits()}
	return func() { r.state = now }
}

// call calls do, and what it returns if it did not hang.
func (r *receiver) call(do func() (set func())) error {
	result := make(chan func(), 1)
	if r.guard.Call(r.ctx, func() { result <- do() }) != nil {
		return errHangs
	}
	(<-result)()
	return nil
}

// collect measures. After an error the next call covers what this one missed.
func (r *receiver) collect(ctx context.Context) (s *snapshot.Snapshot, err error) {
	if hangs := r.call(func() func() {
		md, failed := r.embedded.Collect(ctx)
		set := r.look()
		return func() { set(); s, err = snapshot.FromMetrics(md), failed }
	}); hangs != nil {
		return nil, hangs
	}
	return s, err
}

// close closes what start opened, unless a call hangs.
func (r *receiver) close() (err error) {
	if r.lost || r.guard.Blocked() {
		return errHangs
	}
	if hangs := r.call(func() func() {
		failed := r.embedded.Shutdown(context.WithoutCancel(r.ctx))
		return func() { err = failed }
	}); hangs != nil {
		return hangs
	}
	return err
}
