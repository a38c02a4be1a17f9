// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"strings"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// weights are the attribution weights of a receiver.
type weights map[power.Kind]energyreceiver.Weight

// The compared receivers have plainWeights and eventWeights. Only the second one counts hardware
// events, because processors have too few counters for two. defaultWeights are the default weights
// on machines that count hardware events.
var (
	defaultWeights = weights{energyreceiver.AllZones: "frequency_squared", power.DRAM: "cache_misses"}

	plainWeights = weights{energyreceiver.AllZones: "frequency_squared", power.DRAM: "memory_cpu_time"}
	eventWeights = weights{energyreceiver.AllZones: "power_model", power.DRAM: "cache_misses"}
)

// of returns the weight of a zone kind.
func (w weights) of(kind power.Kind) energyreceiver.Weight {
	if set, ok := w[kind]; ok {
		return set
	}
	return w[energyreceiver.AllZones]
}

// weighed returns the configuration with these weights.
func weighed(cfg *energyreceiver.Config, w weights) *energyreceiver.Config {
	changed := *cfg
	changed.Attribution.Weight = w
	return &changed
}

// notCompared returns the reason if weights cannot be compared on this machine, otherwise "".
func notCompared(o *Options, m *Machine) string {
	if o.Config.Attribution.Preset != "" {
		return "the configuration selects a preset"
	}
	if len(m.spread()) == 0 {
		return "no socket has two cores that this process may use"
	}
	if err := o.CanCount(o.Config.RootPath); err != nil {
		return "hardware events of processes are not counted: " + firstLine(err)
	}
	return ""
}

// rival is a receiver that attributes the same energy by hardware events.
type rival struct {
	receiver  *energyreceiver.Embedded
	account   snapshot.Account
	processes snapshot.Table
}

func startRival(ctx context.Context, cfg *energyreceiver.Config) (*rival, error) {
	receiver, err := startReceiver(ctx, weighed(cfg, eventWeights), component.NewIDWithName(energyreceiver.EmbeddedID.Type(), "events"))
	if err != nil {
		return nil, err
	}
	return &rival{receiver: receiver, account: snapshot.Account{FromZero: true}}, nil
}

func (r *rival) collect(ctx context.Context) {
	if r == nil {
		return
	}
	metrics, err := r.receiver.Collect(ctx)
	if err != nil {
		return // the next collection covers it
	}
	r.account.Add(snapshot.FromMetrics(metrics))
	r.processes = r.account.Workloads(snapshot.Process)
}

// failed returns the reason if a weight was not measured in the last collection, otherwise "".
func (r *rival) failed() string {
	for _, n := range r.receiver.Notes() {
		if strings.HasPrefix(n.About, "key ") && n.Text != "" {
			return n.Text
		}
	}
	return ""
}

func (r *rival) close() error {
	if r == nil {
		return nil
	}
	return r.receiver.Shutdown(context.Background())
}
