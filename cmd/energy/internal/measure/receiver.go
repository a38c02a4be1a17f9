// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
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
	embedded   embedded
	ctx        context.Context      //nolint:containedctx // of the run: after a signal nothing waits for a call that hangs already
	hanging    chan struct{}        // closed when the call that hung has returned; nil if none hung
	attributed []power.Reading      // as of the last call that returned
	trained    map[power.Class]bool // likewise: the kinds whose static power model is trained
	expected   map[power.Class]float64
}

// embedded is energyreceiver.Embedded.
type embedded interface {
	Start(ctx context.Context) error
	Collect(ctx context.Context) (pmetric.Metrics, error)
	Attributed() []power.Reading
	Trained() map[power.Class]bool
	ExpectedErrors() map[power.Class]float64
	Waits() bool
	Shutdown(ctx context.Context) error
}

var _ embedded = (*energyreceiver.Embedded)(nil)

// start takes the baseline. It waits for the meters until they are open or ctx ends.
func (r *receiver) start() error {
	_, err := patience.Call(r.ctx, hangsAfter, func() (struct{}, error) { return struct{}{}, r.embedded.Start(r.ctx) })
	if errors.Is(err, patience.ErrBlocked) {
		r.hanging = make(chan struct{}) // never closed: the receiver is not used any more
		return context.Cause(r.ctx)
	}
	if err != nil {
		return err
	}
	var attributed []power.Reading
	if err := r.call(func() { attributed = r.embedded.Attributed() }); err != nil {
		return err
	}
	r.attributed = attributed
	return nil
}

// call calls do. It returns errHangs if do, or an earlier call, hangs.
func (r *receiver) call(do func()) error {
	if r.hangs() {
		select {
		case <-r.hanging:
		case <-r.ctx.Done():
			return errHangs
		case <-time.After(hangsAfter):
			return errHangs
		}
	}
	r.hanging = nil
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(hangsAfter):
		r.hanging = done
		return errHangs
	}
}

// collect measures. After an error the next call covers what this one missed.
func (r *receiver) collect(ctx context.Context) (md pmetric.Metrics, err error) {
	var got pmetric.Metrics
	var failed error
	var attributed []power.Reading
	var trained map[power.Class]bool
	var expected map[power.Class]float64
	if hangs := r.call(func() {
		got, failed = r.embedded.Collect(ctx)
		attributed, trained, expected = r.embedded.Attributed(), r.embedded.Trained(), r.embedded.ExpectedErrors()
	}); hangs != nil {
		return md, hangs
	}
	r.attributed, r.trained, r.expected = attributed, trained, expected
	return got, failed
}

// waits reports whether a meter has not answered yet whose energy would be attributed.
func (r *receiver) waits() bool {
	waits := false
	return r.call(func() { waits = r.embedded.Waits() }) == nil && waits
}

// hangs reports whether a call has not returned.
func (r *receiver) hangs() bool {
	select {
	case <-r.hanging:
		return false
	default:
		return r.hanging != nil
	}
}

// close closes what start opened, unless a call hangs.
func (r *receiver) close() error {
	if r.hangs() {
		return errHangs
	}
	var err error
	if hangs := r.call(func() { err = r.embedded.Shutdown(context.WithoutCancel(r.ctx)) }); hangs != nil {
		return hangs
	}
	return err
}
