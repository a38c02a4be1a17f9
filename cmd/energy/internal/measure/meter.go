// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// container is the ID of the container that all processes of a command are in.
const container = "command"

const (
	// poll is how often a meter is looked at that has still to answer.
	poll = 50 * time.Millisecond
	// hangsAfter is the time after which a call of the receiver is not waited for any more.
	hangsAfter = 3 * time.Second
)

// errHangs is the error of a call that was not waited for, and of those after it until it has returned.
var errHangs = errors.New("the receiver hangs: a read of this machine does not return")

// meter is the embedded receiver with the energy of workloads since its baseline. A call of the
// receiver that hangs is not waited for longer than hangsAfter, so that the end of the command and
// signals are noticed whatever hangs. A meter is not safe for concurrent use.
type meter struct {
	meterOptions
	embedded embedded
	ctx      context.Context //nolint:containedctx // of the run: after a signal nothing waits for a call that hangs already
	guard    patience.Guard
	lost     bool // start hangs
	state         // as of the last call that returned
	account  snapshot.Account
	at       time.Time    // right before the last measurement
	busy     float64      // utilization of the node times seconds, NaN if it is not available
	id       component.ID // of the receiver
	windows  *feed.Feed
	reader   feed.Reader
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

// meterOptions configure a meter.
type meterOptions struct {
	cfg    *energyreceiver.Config
	static map[power.Class]float64 // static power of measured zones in watts, nil if energy need not be split
	source cpu.Source              // of the command; nil: the whole machine is measured
	take   func(*feed.Window)      // called with each window; may be nil
}

// opened counts meters. Each has a feed of its own, because a receiver that hung may publish later.
var opened atomic.Uint64

// openMeter takes the first readings. It closes the source if it fails.
func openMeter(ctx context.Context, o *Options, m meterOptions) (*meter, error) {
	options := energyreceiver.EmbeddedOptions{
		ID:          component.NewIDWithName(energyreceiver.EmbeddedID.Type(), fmt.Sprintf("measure-%d", opened.Add(1))),
		StaticPower: m.static, Extensions: o.Extensions,
	}
	if m.source != nil {
		options.CPU, options.Container = m.source, container
	}
	e, err := energyreceiver.Embed(m.cfg, options)
	if err != nil {
		if m.source != nil {
			err = errors.Join(err, m.source.Close())
		}
		return nil, err
	}
	of := &meter{
		meterOptions: m, embedded: e, ctx: ctx, guard: patience.Guard{Grace: hangsAfter},
		account: snapshot.Account{FromZero: true}, at: time.Now(), id: options.ID, windows: feed.Of(options.ID), reader: feed.Reader{Take: m.take},
	}
	if m.take != nil {
		of.windows.Open(&of.reader)
	}
	if err := of.start(); err != nil {
		return nil, errors.Join(err, of.close())
	}
	return of, nil
}

// start takes the baseline. It waits for the meters until they are open or ctx ends.
func (m *meter) start() error {
	_, err := patience.Call(m.ctx, hangsAfter, func() (struct{}, error) { return struct{}{}, m.embedded.Start(m.ctx) })
	switch {
	case errors.Is(err, patience.ErrBlocked):
		m.lost = true
		return context.Cause(m.ctx)
	case err != nil:
		return err
	}
	return m.call(m.look)
}

// look reads the state of the meters, and returns what sets it.
func (m *meter) look() (set func()) {
	e := m.embedded
	now := state{e.Attributed(), e.Trained(), e.ExpectedErrors(), e.Notes(), e.Waits()}
	return func() { m.state = now }
}

// call calls do, and then its result unless do hangs.
func (m *meter) call(do func() (set func())) error {
	result := make(chan func(), 1)
	if m.guard.Call(m.ctx, func() { result <- do() }) != nil {
		return errHangs
	}
	(<-result)()
	return nil
}

// measure brings the account up to date. After an error the next call covers the same time.
func (m *meter) measure(ctx context.Context) (err error) {
	at := time.Now()
	if hangs := m.call(func() func() {
		md, failed := m.embedded.Collect(context.WithoutCancel(ctx))
		set := m.look()
		return func() {
			if set(); failed != nil {
				err = failed
				return
			}
			s := snapshot.FromMetrics(md)
			m.account.Add(s)
			m.busy += s.Busy * at.Sub(m.at).Seconds()
			m.at = at
		}
	}); hangs != nil {
		return hangs
	}
	return err
}

// close closes what start opened, unless a call hangs.
func (m *meter) close() (err error) {
	m.windows.Close(&m.reader)
	if m.lost || m.guard.Blocked() {
		return errHangs
	}
	if hangs := m.call(func() func() {
		failed := m.embedded.Shutdown(context.WithoutCancel(m.ctx))
		return func() { err = failed }
	}); hangs != nil {
		return hangs
	}
	return err
}

// restart makes now the start of the account.
func (m *meter) restart(ctx context.Context) error {
	m.account = snapshot.Account{}
	err := m.measure(ctx)
	m.busy = 0
	return err
}

func kindOf(z *power.Zone) power.Class { return power.Class{Zone: z.Kind, Method: z.Method} }

// pending returns, for each kind whose energy is not complete until the end, the time until which
// its zones have reported energy.
func (m *meter) pending(end time.Time) map[power.Class]time.Time {
	pending := map[power.Class]time.Time{}
	for _, r := range m.attributed {
		kind := kindOf(r.Zone)
		if until, ok := pending[kind]; r.At.Before(end) && (!ok || r.At.Before(until)) {
			pending[kind] = r.At
		}
	}
	return pending
}

// answers reports whether one of these kinds has a zone that can be read.
func (m *meter) answers(kinds map[power.Class]time.Time) bool {
	return !m.guard.Blocked() && slices.ContainsFunc(m.attributed, func(r power.Reading) bool {
		_, ok := kinds[kindOf(r.Zone)]
		return ok && r.Err == nil
	})
}

// await measures until done reports so, or the time is over, or ctx ends. It reports whether done did.
func (m *meter) await(ctx context.Context, most time.Duration, done func() bool) bool {
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
			_ = m.measure(ctx) // the next one covers the same time
		}
	}
	return true
}

// isRead reports whether a zone of a kind is attributed now and was read.
func (m *meter) isRead(kind power.Class) bool {
	return slices.ContainsFunc(m.attributed, func(r power.Reading) bool { return kindOf(r.Zone) == kind && !r.At.IsZero() })
}

// watts returns the mean power of each kind of measured zones since the readings before, and the
// kinds without new readings.
func watts(before, after []power.Reading) (known map[power.Class]float64, unknown []power.Class) {
	known = map[power.Class]float64{}
	for _, r := range after {
		if r.Zone.Method != power.Measured {
			continue
		}
		kind := kindOf(r.Zone)
		i := slices.IndexFunc(before, func(b power.Reading) bool { return b.Zone == r.Zone && !b.At.IsZero() })
		if i < 0 || !r.At.After(before[i].At) {
			unknown = append(unknown, kind)
			continue
		}
		known[kind] += units.Watts(units.Advance(before[i].Total, r.Total), r.At.Sub(before[i].At))
	}
	for _, kind := range unknown {
		delete(known, kind)
	}
	return known, slices.Compact(unknown) // zones of a kind follow each other
}
