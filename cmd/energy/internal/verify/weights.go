// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// weights are the attribution weights of a receiver.
type weights map[power.Kind]energyreceiver.Weight

// frequencyWeight is a weight that CPU time replaces without clock rates.
const frequencyWeight = "frequency_squared"

// The compared receivers have plainWeights and eventWeights. Only the second one counts hardware
// events, because processors have too few counters for two. defaultWeights are the default weights
// on machines that count hardware events.
var (
	defaultWeights = weights{energyreceiver.AllZones: frequencyWeight, power.DRAM: "cache_misses"}

	plainWeights = weights{energyreceiver.AllZones: frequencyWeight, power.DRAM: "memory_cpu_time"}
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

// attributed is a receiver and the energy that it attributed since its start.
type attributed struct {
	receiver  *energyreceiver.Embedded
	account   snapshot.Account
	processes snapshot.Table
}

// collect has the receiver measure. After an error, the next collection covers this one.
func (a *attributed) collect(ctx context.Context) (*snapshot.Snapshot, error) {
	metrics, err := a.receiver.Collect(ctx)
	if err != nil {
		return nil, err
	}
	s := snapshot.FromMetrics(metrics)
	a.account.Add(s)
	a.processes = a.account.Workloads(snapshot.Process)
	return s, nil
}

// energyOf returns the energy that is attributed to a process.
func (a *attributed) energyOf(pid int) map[power.Class]units.Energy {
	energy := map[power.Class]units.Energy{}
	for _, row := range a.processes.Rows {
		for i, z := range a.account.Zones() {
			if row.Identity[snapshot.PID] == strconv.Itoa(pid) {
				energy[z.Class] += row.Amounts[i].Used
			}
		}
	}
	return energy
}

func (a *attributed) close() error {
	if a == nil {
		return nil
	}
	return a.receiver.Shutdown(context.Background())
}

// unweighed returns the reason if a receiver did not measure a weight in the last collection,
// otherwise "".
func unweighed(receiver *energyreceiver.Embedded) string {
	for _, n := range receiver.Notes() {
		if strings.HasPrefix(n.About, "weight ") && n.Text != "" {
			return n.Text
		}
	}
	return ""
}
