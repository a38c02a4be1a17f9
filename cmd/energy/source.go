// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/note"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// source provides snapshots: a collector, or the receiver in this process.
type source struct {
	name    string
	host    string        // name of the machine if the figures do not contain one
	files   *processFiles // of the machine with the processes, nil if it is another one
	account snapshot.Account
	first   time.Duration // time until the first figures
	reread  bool          // a snapshot may be incomplete
	read    func(context.Context) (*snapshot.Snapshot, error)
	waits   func() bool // whether a meter has not answered yet; nil for a collector
	notes   func() []string
	hint    func(error) string
	close   func() error
}

// openSource opens a collector's exporter, or the receiver in this process if no collector runs.
func openSource(ctx context.Context, o options) (*source, error) {
	if !o.local && (o.given || !isRefused(o.endpoint)) {
		return openEndpoint(&o), nil
	}
	cfg, without, err := localConfig(ctx, &o)
	if err != nil {
		return nil, err
	}
	s, err := openReceiver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for i, setting := range without {
		without[i] = setting + " is ignored: extensions require a collector"
	}
	if !o.local {
		without = append(without, fmt.Sprintf("No collector listens at %s, so energy measures this machine", o.endpoint))
	}
	ofReceiver := s.notes
	s.notes = func() []string { return slices.Concat(without, ofReceiver()) }
	s.first = firstWindow
	if !o.plain {
		s.first = firstRows
	}
	return s, nil
}

// The times after which the first figures of this machine are shown: in plain tables, and on the
// screen, on which the next figures follow soon.
const (
	firstWindow = 500 * time.Millisecond
	firstRows   = 120 * time.Millisecond
)

// openEndpoint returns the source of a collector's exporter.
func openEndpoint(o *options) *source {
	s := &source{
		name: redacted(o.endpoint), host: hostOf(o.endpoint), reread: true,
		notes: func() []string { return nil },
		hint: func(err error) string {
			if err != nil {
				return "Is the collector running? `--local` measures without a collector."
			}
			return "The endpoint responds, but has no energy figures. Either this is not the Prometheus exporter, which has port " + defaultPort +
				" in the shipped configurations, or no sensor can be read and the receiver has no `model:`."
		},
		close: func() error { return nil },
	}
	s.account.FromZero = o.once // one table has the energy until now
	telemetry := ""
	if s.host == "" {
		s.host, _ = os.Hostname()
		s.files = newProcessFiles("/")
		telemetry = telemetryOf(o.endpoint)
	}
	s.read = func(ctx context.Context) (*snapshot.Snapshot, error) {
		read, err := snapshot.Scrape(ctx, http.DefaultClient, o.endpoint)
		if err == nil && telemetry != "" && !read.Kepler {
			read.AddTelemetry(ctx, http.DefaultClient, telemetry)
		}
		return read, err
	}
	return s
}

// redacted returns an endpoint without its password.
func redacted(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	return u.Redacted()
}

// isRefused reports whether no process listens at an endpoint.
func isRefused(endpoint string) bool {
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

// hostOf returns the name of the machine of an endpoint, empty if it is this one.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	host := u.Hostname()
	if address, _ := netip.ParseAddr(host); host == "localhost" || address.IsLoopback() {
		return ""
	}
	return figure.Line(host)
}

// telemetryOf returns the endpoint of the metrics of the collector about itself in the shipped
// configurations. It is empty if the endpoint has another port.
func telemetryOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Port() != defaultPort {
		return ""
	}
	u.Host = net.JoinHostPort(u.Hostname(), "8888")
	return u.String()
}

// openReceiver returns the source of the receiver in this process after its baseline.
func openReceiver(ctx context.Context, cfg *energyreceiver.Config) (*source, error) {
	receiver, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{Extensions: gpuLibraries})
	if err != nil {
		return nil, err
	}
	s := &source{
		name: "this machine", files: newProcessFiles(cfg.RootPath), account: snapshot.Account{Fresh: true},
		read: func(ctx context.Context) (*snapshot.Snapshot, error) {
			md, err := receiver.Collect(ctx)
			if err != nil {
				return nil, err
			}
			read := snapshot.FromMetrics(md)
			read.SetExpectedErrors(receiver.ExpectedErrors())
			return read, nil
		},
		waits: receiver.Waits,
		notes: func() []string { return linesOf(receiver.Notes()) },
		hint:  func(error) string { return "No sensor can be read. `--model auto` estimates the power of the machine." },
		// The end of the table must not keep the receiver from closing its files.
		close: func() error { return receiver.Shutdown(context.Background()) },
	}
	s.host, _ = os.Hostname()
	if err := receiver.Start(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// linesOf returns notes of the receiver, each on one line.
func linesOf(notes []energyreceiver.Note) (lines []string) {
	denied := false
	for _, n := range notes {
		lines, denied = append(lines, figure.Line(n.Text)), denied || n.Permission
	}
	if denied && os.Geteuid() != 0 {
		lines = slices.Insert(lines, 0, "A permission is missing: run energy as root, or see "+note.Pages+"permissions.md")
	}
	return lines
}

// localProcesses is the maximum number of processes that have a series each without a collector.
// The others are in the series of their programs.
const localProcesses = 500

// localConfig returns the receiver's configuration for a table, and the settings of --config that
// were left out. Without --config it is a configuration for a table, similar to config.yaml.
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
const modelUsage = "`model` for zones without a meter: auto, none, the power of the idle and busy CPUs such as 35-120, " +
	"or the file of a trained model (default auto, with --config that of the file)"

// selectModel sets the model of the flag --model. Without the flag the file of --config selects the
// model, and without a file the model is auto.
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
