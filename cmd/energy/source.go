// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/notes"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// source is where the figures of a table come from.
type source interface {
	// read returns the figures of now.
	read(ctx context.Context) (*snapshot, error)
	// name says where they come from.
	name() string
	// hint says what to do where there are none.
	hint(err error) string
	// note returns what to say below the table, or "".
	note() string
}

// collector is a collector's Prometheus exporter.
type collector struct {
	endpoint string
	log      logTail // of the collector, if it was started here
	kepler   bool    // the last figures were Kepler's
}

func (c *collector) read(ctx context.Context) (*snapshot, error) {
	s, err := scrape(ctx, c.endpoint)
	c.kepler = err == nil && s.kepler
	return s, err
}

func (c *collector) name() string { return c.endpoint }

func (c *collector) note() string {
	if c.kepler {
		return "The metrics are Kepler's: they do not say whether energy is measured, and their sums need not add up"
	}
	return c.log.note()
}

func (c *collector) hint(err error) string {
	if err != nil {
		return "Is the collector running? `make run` starts it, and `energy top --local` needs none."
	}
	return "It answers, but has no energy figures: no sensor can be read, and the receiver has no `model:` configured."
}

// refused reports whether nothing listens where an endpoint is.
func refused(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	c, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// firstWindow is the time after which this machine's first figures are shown.
const firstWindow = 500 * time.Millisecond

// local is the receiver, embedded.
type local struct {
	receiver *energyreceiver.Embedded
	notes    *notes.Notes
	why      string // no collector is asked; "" where none was wanted
}

// openLocal returns the receiver after it has taken its baseline.
func openLocal(ctx context.Context, cfg *energyreceiver.Config) (*local, error) {
	l := &local{notes: notes.New()}
	var err error
	if l.receiver, err = energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{Logger: l.notes.Logger(), Extensions: gpuLibraries}); err != nil {
		return nil, err
	}
	if err := l.receiver.Start(ctx); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// localProcesses is the maximum number of processes that have a series each without a collector.
// The others are in the series of their programs.
const localProcesses = 500

// localConfig returns the receiver's configuration for a table, and the settings of --config that
// were left out. Without --config it has those of config.yaml that make a table.
func localConfig(ctx context.Context, o *options) (cfg *energyreceiver.Config, without []string, err error) {
	if o.config != "" {
		if cfg, without, err = receiverconfig.Load(ctx, o.config, o.receiver); err != nil {
			return nil, nil, err
		}
	} else {
		cfg = energyreceiver.DefaultConfig()
		cfg.Series.Processes = energyreceiver.ProcessSeriesConfig{MinEnergy: 0.01, Max: localProcesses}
		cfg.Metrics.HwGpuUtilization.Enabled = true
		cfg.Metrics.ContainerCPUTime.Enabled = true
		cfg.Metrics.SystemdUnitEnergy.Enabled, cfg.Metrics.SystemdUnitPower.Enabled = true, true
	}
	without = readGPUs(cfg, without)
	cfg.CollectionInterval = max(o.interval, cfg.Window)
	if err := selectModel(cfg, o.model, o.config); err != nil {
		return nil, nil, err
	}
	return cfg, without, cfg.Validate()
}

// modelUsage describes the flag --model.
const modelUsage = "the `model` that estimates what no meter measures: auto, none, the watts of the CPUs idle and busy as 35-120, or the " +
	"file of a trained model (default auto, or what --config says)"

// selectModel sets the model of the flag --model. Without it the model is that of the file of
// --config, or auto without a file.
func selectModel(cfg *energyreceiver.Config, model, file string) (err error) {
	switch {
	case model == "none":
		cfg.Model = configoptional.None[energyreceiver.ModelConfig]()
	case model != "" || file == "":
		if cfg.Model, err = receiverconfig.Model(cmp.Or(model, "auto")); err != nil {
			return fmt.Errorf("--model: %w", err)
		}
	}
	return nil
}

func (l *local) close() error {
	// What ends the table must not keep the receiver from closing what it opened.
	return l.receiver.Shutdown(context.Background())
}

func (l *local) read(ctx context.Context) (*snapshot, error) {
	md, err := l.receiver.Collect(ctx)
	if err != nil {
		return nil, err
	}
	found, err := familiesOf(md)
	if err != nil {
		return nil, fmt.Errorf("metrics of the receiver: %w", err)
	}
	return snapshotOf(found), nil
}

func (l *local) name() string { return "this machine" }

func (l *local) note() string {
	denied := ""
	if l.notes.Denied() && os.Geteuid() != 0 {
		denied = "A permission is missing: run this as root, or see docs/permissions.md"
	}
	return strings.Join(slices.DeleteFunc([]string{l.why, denied, l.notes.String()}, func(s string) bool { return s == "" }), "\n")
}

func (l *local) hint(error) string {
	return "No sensor can be read. `--model auto` estimates what the machine draws."
}
