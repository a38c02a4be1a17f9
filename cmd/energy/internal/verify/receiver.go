// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// receiver is the receiver in this process.
type receiver struct {
	*energyreceiver.Embedded
	account   snapshot.Account
	processes snapshot.Table
}

// openReceiver starts a receiver with the metrics that the checks need.
func openReceiver(ctx context.Context, given *energyreceiver.Config) (*receiver, error) {
	cfg := *given
	cfg.CollectionInterval, cfg.InitialDelay, cfg.Window, cfg.Storage = collectEvery, 0, 0, ""
	cfg.Series.Processes = energyreceiver.ProcessSeriesConfig{GroupBy: energyreceiver.GroupByPID}
	m := &cfg.Metrics
	m.SystemEnergy.Enabled, m.SystemUnattributedEnergy.Enabled, m.ProcessEnergy.Enabled = true, true, true
	m.HwEnergy.Enabled, m.HwHostEnergy.Enabled, m.HwPower.Enabled, m.HwGpuUtilization.Enabled = true, true, true, true
	m.SystemPower.Enabled, m.SystemPowerUncertainty.Enabled = true, true
	embedded, err := energyreceiver.Embed(&cfg, energyreceiver.EmbeddedOptions{Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	r := &receiver{Embedded: embedded, account: snapshot.Account{FromZero: true}}
	if err := r.Start(ctx); err != nil {
		return nil, errors.Join(err, r.Shutdown(context.WithoutCancel(ctx)))
	}
	return r, nil
}

// answersWithin is how long the first answer of a meter is waited for.
const answersWithin = 8 * time.Second

// await waits until all meters have answered.
func (r *receiver) await(ctx context.Context) {
	deadline := time.Now().Add(answersWithin)
	for r.Waits() && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(readEvery)
		_, _ = r.collect(ctx) // a later one reports its failure
	}
}

// collect measures.
func (r *receiver) collect(ctx context.Context) (Entry, error) {
	metrics, err := r.Collect(ctx)
	if err != nil {
		return Entry{}, err
	}
	s := snapshot.FromMetrics(metrics)
	r.account.Add(s)
	r.processes = r.account.Workloads(snapshot.Process)
	e := Entry{Classes: map[string]Sums{}, GPUs: map[string]GPU{}}
	for i, z := range r.account.Zones() {
		t, sums := &r.processes, Sums{Uncertainty: z.Uncertainty * z.ActiveWatts}
		active, idle, unattributed := r.account.ZoneUsed(i)
		sums.Active, sums.Idle, sums.Unattributed = active.Used, idle.Used, unattributed.Used
		sums.Processes = t.Ended[i].Used
		for _, row := range t.Rows {
			sums.Processes += row.Amounts[i].Used
		}
		e.Classes[classID(z.Class)] = sums
	}
	for _, m := range s.Meters {
		switch {
		case m.Type == "host":
			m.Zone = power.Platform
		case m.Zone == power.Platform: // a part of the machine's
			continue
		}
		if sums, ok := e.Classes[classID(m.Class)]; ok {
			sums.Zones += m.Energy
			e.Classes[classID(m.Class)] = sums
		}
		if m.Type == "gpu" && !math.IsNaN(m.Watts+m.Utilization) {
			e.GPUs[m.ID] = GPU{m.Watts, m.Utilization}
		}
	}
	return e, nil
}

// energy returns the energy of a process by class.
func (r *receiver) energy(pid int) map[string]units.Energy {
	found := map[string]units.Energy{}
	for _, row := range r.processes.Rows {
		for i, z := range r.account.Zones() {
			if row.Identity[snapshot.PID] == strconv.Itoa(pid) {
				found[classID(z.Class)] += row.Amounts[i].Used
			}
		}
	}
	return found
}
