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

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/command"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// container is the ID of the container that all processes of a command are in.
const container = "command"

const (
	// poll is the time between two readings while a meter has not responded yet.
	poll = 50 * time.Millisecond
	// hangsAfter is the maximum wait for a call of the receiver.
	hangsAfter = 3 * time.Second
)

// errHangs is the error of a call that took longer than hangsAfter, and of all calls until it has
// returned.
var errHangs = errors.New("the receiver hangs: a read of this machine does not return")

// meter is the embedded receiver with the energy of workloads since its baseline. A call of the
// receiver that hangs is not waited for longer than hangsAfter, so that the end of the command and
// signals are noticed even during a hang. A meter is not safe for concurrent use.
type meter struct {
	meterOptions
	embedded embedded
	ctx      context.Context //nolint:containedctx // of the run; after a signal, a call that hangs is not awaited
	guard    patience.Guard
	lost     bool // start hangs
	state         // as of the last call that returned
	account  snapshot.Account
	at       time.Time    // right before the last measurement
	busy     float64      // utilization of the node times seconds, NaN if it is not available
	id       component.ID // of the receiver
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
	source *command.Source         // of the command; nil: the whole machine is measured
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
		options.CPU, options.Container = cpu.NewReader(m.source, cpu.Options{Root: m.cfg.RootPath, Clock: m.source}), container
	}
	e, err := energyreceiver.Embed(m.cfg, options)
	if err != nil {
		if m.source != nil {
			err = errors.Join(err, options.CPU.Close())
		}
		return nil, err
	}
	of := &meter{
		meterOptions: m, embedded: e, ctx: ctx, guard: patience.Guard{Grace: hangsAfter},
		account: snapshot.Account{FromZero: true}, at: time.Now(), id: options.ID,
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
	_, err = m.call(func() (*snapshot.Snapshot, error) { return nil, nil })
	return err
}

// call calls do, and reads the state of the meters. The results of a call that hangs are dropped.
func (m *meter) call(do func() (*snapshot.Snapshot, error)) (*snapshot.Snapshot, error) {
	type results struct {
		*snapshot.Snapshot
		state
		err error
	}
	done := make(chan results, 1)
	if m.guard.Call(m.ctx, func() {
		e := m.embedded
		s, err := do()
		done <- results{s, state{e.Attributed(), e.Trained(), e.ExpectedErrors(), e.Notes(), e.Waits()}, err}
	}) != nil {
		return nil, errHangs
	}
	r := <-done
	m.state = r.state
	return r.Snapshot, r.err
}

// collect returns the newest figures. After an error the next call covers the same time.
func (m *meter) collect(ctx context.Context) (*snapshot.Snapshot, error) {
	at := time.Now()
	s, err := m.call(func() (*snapshot.Snapshot, error) {
		md, err := m.embedded.Collect(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		return snapshot.FromMetrics(md), nil
	})
	if err != nil {
		return nil, err
	}
	m.busy += s.Busy * at.Sub(m.at).Seconds()
	m.at = at
	return s, nil
}

// measure brings the account up to date. After an error the next call covers the same time.
func (m *meter) measure(ctx context.Context) error {
	s, err := m.collect(ctx)
	if err == nil {
		m.account.Add(s)
	}
	return err
}

// close closes what start opened, unless a call hangs.
func (m *meter) close() error {
	done := make(chan error, 1)
	if m.lost || m.guard.Blocked() ||
		m.guard.Call(m.ctx, func() { done <- m.embedded.Shutdown(context.WithoutCancel(m.ctx)) }) != nil {
		return errHangs
	}
	return <-done
}

// restart sets the start of the account to the present time. After an error, the account is
// unchanged.
func (m *meter) restart(ctx context.Context) error {
	s, err := m.collect(ctx)
	if err == nil {
		m.account, m.busy = snapshot.Account{}, 0
		m.account.Add(s)
	}
	return err
}

func kindOf(z *power.Zone) power.Class { return power.Class{Zone: z.Kind, Method: z.Method} }

// pending returns the kinds whose zones have not reported all energy until end. The value is the
// time of their last reported energy.
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

// await measures until done returns true, most has passed or ctx ends. It reports whether done
// returned true.
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
