// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// card is a meter of a GPU that uses 1 J between two reads, and the source of its usage: it was
// busy all the time, by the process 10.
type card struct {
	reading power.Reading
	at      time.Time // of the last usage
	told    int       // usages
}

func (c *card) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	c.reading.Total, c.reading.At = c.reading.Total+units.Joule, s.At
	return []power.Reading{c.reading}, nil
}

func (*card) Close() error { return nil }

// Usage returns the source of the usage, as a GPU library does.
func (c *card) Usage() gpu.Source { return cardUsers{c} }

// cardUsers is the source of the usage of a card. It reports the usage since the last read.
type cardUsers struct{ *card }

func (c cardUsers) Read(now time.Time, _ *proc.Table) ([]gpu.Usage, error) {
	u := gpu.Usage{Domain: c.reading.Zone.Domain}
	if !c.at.IsZero() {
		u.Busy = units.CPUTime(now.Sub(c.at))
		u.Total = u.Busy
		u.Users = []gpu.User{{PIDs: []int32{10}, Used: u.Busy, Last: now}}
	}
	c.at = now
	c.told++
	return []gpu.Usage{u}, nil
}

// plugCard adds a GPU to a node that has not started.
func plugCard(n *testNode) *card {
	c := &card{reading: power.Reading{Zone: &power.Zone{
		ID: "GPU-1", Kind: power.GPU, Method: power.Measured, Domain: units.GPU("0000:03:00.0"),
	}}}
	open := n.machine.OpenMeters
	n.machine.OpenMeters = func(ctx context.Context, cfg *Config, host component.Host, set component.TelemetrySettings) (*power.Set, error) {
		others, err := open(ctx, cfg, host, set)
		members := []power.Member{{Name: "card", Meter: c}}
		for _, m := range others.Status() {
			members = append(members, m.Member)
		}
		return power.NewSet(members...), err
	}
	return c
}

// Two scans fail, and with the third one procfs replaces the source.
func TestGPUUsageOfWindowsWhoseScanFailedIsAttributed(t *testing.T) {
	n := newTestNode(t)
	n.process(10, "app")
	c := plugCard(n)
	source := new(failingSource)
	n.reads(&source.Procfs, source)
	n.start()
	n.run(0, nil)
	require.InDelta(t, 1, n.sum("process.energy", nil, pid(10), "energy.zone=gpu"), 1e-9)
	source.fail = errRefused
	told := c.told
	n.run(0, nil)
	n.run(0, nil)
	require.Zero(t, n.md.DataPointCount())
	assert.Equal(t, told, c.told, "what is told would be lost")
	n.run(0, nil)
	require.True(t, n.isReplaced())
	n.run(0, nil)
	assert.InDelta(t, 5, n.sum("process.energy", nil, pid(10), "energy.zone=gpu"), 1e-9)
	assert.InDelta(t, 0, n.sum("system.unattributed.energy", nil, "energy.zone=gpu"), 1e-9)
}
