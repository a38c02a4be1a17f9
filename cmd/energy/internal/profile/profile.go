// SPDX-License-Identifier: Apache-2.0

// Package profile divides the energy of a measured command among its functions.
//
// The OpenTelemetry eBPF profiler takes the CPU samples. It runs in a collector that is a child
// process: its module is not part of this program. The processor energyprofile gives the samples
// their energy, from the windows of the embedded receiver.
package profile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/xprocessor"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/processor/energyprofile"
)

const (
	// sampleDelay is the maximum time from a sample to the arrival of its batch, without the report
	// interval. The profiler polls every 250 ms, and the exporter flushes every 100 ms.
	sampleDelay = 400 * time.Millisecond
	// lastWithin bounds the wait for the last batch, which does not arrive if no process ran.
	lastWithin = reportInterval + 3*sampleDelay
	// sampledWithin bounds the time until the profiler has samples. It loads and verifies BPF
	// programs, and reads all processes.
	sampledWithin = 2 * time.Minute
	// hangsAfter bounds the wait for a receiver that hangs.
	hangsAfter = 3 * time.Second
)

// Profiler profiles a command that package measure runs. It implements measure.Profiler.
type Profiler struct {
	collector *collector
	members   members
	symbols   *symbols
	arrived   chan struct{} // receives a value after samples of the command, or before it starts of this process
	ended     chan struct{} // closed after the last batch
	failure   error         // why there are no more batches; read it after ended

	mu      sync.Mutex
	divider xprocessor.Profiles // nil unless the command runs
	energy  *energy
	base    Base
	closed  bool // energy is complete
}

// Start starts the profiler, and waits until it takes samples. If path is empty it looks for the
// collector. If base is not nil, the functions of the result are compared with it.
func Start(ctx context.Context, path string, base Base) (*Profiler, error) {
	var err error
	if path == "" {
		if path, err = findCollector(); err != nil {
			return nil, err
		}
	}
	c, err := startCollector(path)
	if err != nil {
		return nil, fmt.Errorf("the profiler did not start: %w", err)
	}
	p := &Profiler{collector: c, arrived: make(chan struct{}, 1), ended: make(chan struct{}), symbols: newSymbols(), energy: newEnergy(), base: base}
	go p.receive(bufio.NewReader(c.batches))
	if err := p.awaitSamples(ctx); err != nil {
		c.close()
		return nil, err
	}
	return p, nil
}

// awaitSamples keeps this process busy from time to time until the profiler has samples of it. At
// its start, the profiler reads all running programs, which may take seconds. It drops the samples
// of a program that it has not read.
func (p *Profiler) awaitSamples(ctx context.Context) error {
	late := fmt.Errorf("the profiler took no sample of a busy process within %v", sampledWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, sampledWithin, late)
	defer cancel()
	for {
		for busy := time.Now().Add(listEvery / 2); time.Now().Before(busy); {
		}
		select {
		case <-p.arrived:
			return context.Cause(ctx)
		case <-p.ended:
			return errors.New("the profiler did not start: " + p.whyEnded() + missing())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(listEvery):
		}
	}
}

// receive takes batches until the collector ends.
func (p *Profiler) receive(from io.Reader) {
	defer close(p.ended)
	for {
		pd, err := readBatch(from)
		if err != nil {
			p.failure = err
			p.stop() // samples until now do not get the energy of the time after them
			return
		}
		p.consume(pd)
	}
}

// consume divides the energy until now among the samples of the command's processes, if the command
// runs.
func (p *Profiler) consume(pd pprofile.Profiles) {
	p.mu.Lock()
	divider := p.divider
	p.mu.Unlock()
	if divider != nil {
		p.members.keep(pd)
		p.symbols.name(pd)
		_ = divider.ConsumeProfiles(context.Background(), pd) // fails only if add does
	} else if !hasOwn(pd) {
		return
	}
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// hasOwn reports whether there are samples of this process.
func hasOwn(pd pprofile.Profiles) bool {
	for _, rp := range pd.ResourceProfiles().All() {
		if text(rp.Resource(), "process.pid") == strconv.Itoa(os.Getpid()) {
			return true
		}
	}
	return false
}

// Begin implements measure.Profiler.
func (p *Profiler) Begin(receiver component.ID, processes func(yield func(pid int32)) error) error {
	divider, err := newDivider(receiver, p.add)
	if err != nil {
		return err
	}
	p.members.begin(processes)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.divider = divider
	return divider.Start(context.Background(), nil)
}

// newDivider returns the processor that divides the energy of a receiver.
func newDivider(receiver component.ID, next xconsumer.ConsumeProfilesFunc) (xprocessor.Profiles, error) {
	factory := energyprofile.NewFactory().(xprocessor.Factory)
	cfg := factory.CreateDefaultConfig().(*energyprofile.Config)
	cfg.Receiver = receiver
	to, err := xconsumer.NewProfiles(next)
	if err != nil {
		return nil, err
	}
	return factory.CreateProfiles(context.Background(), processor.Settings{
		ID: component.NewID(factory.Type()),
		TelemetrySettings: component.TelemetrySettings{
			Logger: zap.NewNop(), TracerProvider: nooptrace.NewTracerProvider(), MeterProvider: noopmetric.NewMeterProvider(), Resource: pcommon.NewResource(),
		},
	}, cfg, to)
}

// add adds energy profiles.
func (p *Profiler) add(_ context.Context, pd pprofile.Profiles) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.energy.add(pd)
	}
	return nil
}

// End implements measure.Profiler.
func (p *Profiler) End(ctx context.Context, r *measure.Result) (result *measure.Profile, notes []string) {
	p.members.finish(r.Started.Add(r.Wall))
	p.awaitLast(ctx)
	if !p.stop() {
		notes = append(notes, "The profile lacks the end of the run: the receiver does not respond")
	}
	select {
	case <-p.ended:
		notes = append(notes, "The profile is incomplete: the profiler exited: "+p.whyEnded())
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.energy.rest != nil {
		notes = append(notes, "The profile is full: the energy of further stacks is in "+manyStacks)
	}
	command := filepath.Base(r.Command[0])
	p.energy.fit(uint64(r.Used()), command)
	p.energy.profile.TimeNanos, p.energy.profile.DurationNanos = r.Started.UnixNano(), r.Wall.Nanoseconds()
	samples := slices.Concat(p.energy.profile.Sample, p.base)
	return &measure.Profile{Functions: functionsOf(samples), Stacks: stacksOf(command, samples), Compared: p.base != nil}, notes
}

// whyEnded returns why there are no more batches.
func (p *Profiler) whyEnded() string {
	if !errors.Is(p.failure, io.EOF) {
		return p.failure.Error()
	}
	select {
	case <-p.collector.ended:
		return p.collector.why()
	case <-time.After(endsWithin):
		return "it stopped sending samples"
	}
}

// awaitLast waits until the samples of the command's end have arrived.
func (p *Profiler) awaitLast(ctx context.Context) {
	complete := time.Now().Add(sampleDelay)
	ctx, cancel := context.WithTimeout(ctx, lastWithin)
	defer cancel()
	for time.Now().Before(complete) {
		select {
		case <-p.arrived:
		case <-p.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// stop divides the remaining energy. It returns false if the receiver hangs.
func (p *Profiler) stop() bool {
	p.mu.Lock()
	divider := p.divider
	p.divider = nil
	p.mu.Unlock()
	if divider == nil {
		return true
	}
	guard := patience.Guard{Grace: hangsAfter}
	return guard.Call(context.Background(), func() { _ = divider.Shutdown(context.Background()) }) == nil
}

// WritePprof writes the profile, compressed, for pprof.
func (p *Profiler) WritePprof(w io.Writer) error { return p.energy.profile.Write(w) }

// Close ends the profiler. The command must have ended. p may be nil.
func (p *Profiler) Close() {
	if p == nil {
		return
	}
	p.members.close()
	p.stop()
	p.collector.close()
}
