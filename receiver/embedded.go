// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/energyreceiver/energyreceiver/internal/note"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/attributor"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
)

// EmbeddedID is the default ID of the feed of an Embedded. No receiver of a
// configuration should have it.
var EmbeddedID = component.NewIDWithName(metadata.Type, "embedded")

// Embedded is the receiver for programs that are not collectors. It measures when Collect is called.
// Between two calls, it measures only if the configuration sets window, or if an energy counter could
// wrap.
//
// Start reads the baseline, Collect returns the energy since the baseline, and Shutdown stops it. An
// Embedded is not safe for concurrent use.
//
// It counts hardware events only if the configuration selects a weight or a preset that requires them.
type Embedded struct {
	scraper    *energyScraper
	extensions extensions
	notes      *note.Collector
}

// Note is a remark on the quality of the figures.
type Note = note.Note

// EmbeddedOptions configures an Embedded.
type EmbeddedOptions struct {
	// ID is the ID of the feed, by default EmbeddedID. It must be unique in the program.
	ID component.ID
	// Logger receives all log messages. It may be nil.
	Logger *zap.Logger
	// CPU, if set, is the only reader of CPU times: the energy of processes that it does not
	// report is unattributed. Shutdown closes it. It does not separate CPU packages, so all zones
	// share the node's CPUs, and attribution::scope has no effect.
	CPU *cpu.Reader
	// Extensions are the extensions that the configuration may refer to. The caller starts and
	// stops them.
	Extensions map[component.ID]component.Component
	// StaticPower, if it is not nil, is the static power of zone kinds, in watts, for all sockets
	// together. Modeled and reported zones need no entry, because their static power is available.
	// StaticPower applies to zone kinds whose static power model is utilization.
	StaticPower map[power.Class]float64
	// Container is the ID of the container that owns all processes of CPU. It has a series from the
	// baseline on, even without energy. It must be set if and only if CPU is set.
	Container string
	// Machine is the machine to measure, by default the one on which the program runs. Only packages
	// of this module, such as simulators, can set it.
	Machine *machine.Machine
}

var (
	errContainer = errors.New("CPU and Container must be set together")
	// errCounters is the reason why the default rules of an Embedded count no hardware events:
	// alongside a collector, both would have too few counters.
	errCounters = errors.New("hardware events are counted only if attribution::weight or attribution::preset requires them")
)

// Embed returns an Embedded with a valid configuration, which it does not change. It does not access
// the machine.
//
// Storage may be the path of a receiver's [StateFile]: Start restores its trained static power
// models, and the file is not written.
func Embed(cfg *Config, o EmbeddedOptions) (*Embedded, error) {
	m := machine.Local()
	m.OpenStorage = state.OpenReadOnly
	if o.Machine != nil {
		m = *o.Machine
	}
	if (o.CPU == nil) != (o.Container == "") {
		return nil, errContainer
	}
	own := *cfg
	if o.CPU != nil {
		own.ShowContainer()
	}
	if set, _ := rules.Resolve(&own, rules.Machine{}); o.Machine == nil && own.Attribution.Preset == "" && set.SetCounted() == "" {
		m.FindHardware = func(string) (*perfevent.Hardware, error) { return nil, errCounters }
	}
	notes := note.NewCollector()
	logger := zap.New(notes)
	if o.Logger != nil {
		logger = o.Logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return zapcore.NewTee(core, notes) }))
	}
	if o.CPU != nil {
		m.OpenCPU = func(cpu.Options) (reader *cpu.Reader, rejected, err error) { return o.CPU, nil, nil }
	}
	s, err := newEnergyScraper(&own, receiver.Settings{
		ID: cmp.Or(o.ID, EmbeddedID),
		TelemetrySettings: component.TelemetrySettings{
			Logger:         logger,
			TracerProvider: nooptrace.NewTracerProvider(),
			MeterProvider:  noopmetric.NewMeterProvider(),
			Resource:       pcommon.NewResource(),
		},
	}, m, attributor.Embedded{StaticPower: o.StaticPower, Container: o.Container, NoZeroPoints: true})
	if err != nil {
		return nil, err
	}
	return &Embedded{scraper: s, extensions: o.Extensions, notes: notes}, nil
}

// Start opens the meters and reads the baseline.
func (e *Embedded) Start(ctx context.Context) error { return e.scraper.start(ctx, e.extensions) }

var errNotMeasured = errors.New("the CPU times cannot be read")

// Collect measures, and returns the ledger as metrics. The metrics count as delivered. After an
// error, the next Collect also covers the time of this one.
func (e *Embedded) Collect(ctx context.Context) (pmetric.Metrics, error) {
	md, err := e.scraper.scrape(ctx)
	if err == nil && !e.scraper.output.emitted {
		err = errNotMeasured // the log has the cause
	}
	e.scraper.delivered(delivery{all: err == nil, some: err == nil})
	return md, err
}

// Notes returns the notes on the quality of the figures, as of the last measurement.
func (e *Embedded) Notes() []Note { return e.notes.Notes() }

// Shutdown closes all resources that Start opened.
func (e *Embedded) Shutdown(ctx context.Context) error { return e.scraper.shutdown(ctx) }

// extensions is the host of an Embedded.
type extensions map[component.ID]component.Component

// GetExtensions implements component.Host.
func (e extensions) GetExtensions() map[component.ID]component.Component { return e }
