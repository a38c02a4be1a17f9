// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/attributor"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// Containers of test nodes.
const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// docker returns the line of a process in a container of Docker, and scope the cgroup of the container.
func docker(id string) string { return "0::" + scope(id) }
func scope(id string) string  { return "/system.slice/docker-" + id + ".scope" }

func ticksSince(h *hostsim.Host) int64 { return int64(h.Uptime / hostsim.Tick) }

// process adds a child of init that is older than the receiver.
func (n *testNode) process(pid int, name string, cgroup ...string) *hostsim.Process {
	p := &hostsim.Process{Parent: 1, Comm: name, Exe: "/bin/" + name, Cgroup: strings.Join(cgroup, "")}
	n.host.Processes[pid] = p
	return p
}

// newborn adds a child of init that starts now.
func (n *testNode) newborn(pid int, cgroup ...string) *hostsim.Process {
	p := n.process(pid, "app", cgroup...)
	p.Start = ticksSince(n.host)
	return p
}

// runUnseen adds CPU time of processes that no scan shows to the next run.
func (n *testNode) runUnseen(ticks int64) {
	n.host.CPU.User += ticks
	n.host.CPU.Idle -= ticks
}

// energies are the energies of a node in J, by owner: the PID of a process, A or B for a container, others for
// processes without a series, unattributed, or active or idle for the node.
type energies map[string]float64

// energy returns the energy of an owner.
func (n *testNode) energy(of string) float64 {
	switch of {
	case "A", "B":
		return n.sum("container.energy", attrs{"container.id": map[string]string{"A": idA, "B": idB}[of]})
	case "others":
		return n.sum("process.energy", attrs{"otel.metric.overflow": "true"})
	case "unattributed":
		return n.sum("system.unattributed.energy", nil)
	case "active", "idle":
		return n.sum("system.energy", nil, "energy.state="+of)
	}
	return n.sum("process.energy", attrs{"process.pid": of})
}

// expect checks the energies of owners.
func (n *testNode) expect(want energies, within float64, more ...any) {
	n.t.Helper()
	for of, joules := range want {
		assert.InDelta(n.t, joules, n.energy(of), within, append([]any{of}, more...)...)
	}
}

// passWithout lets time pass without a collection, in which the package uses energy and processes run.
func (n *testNode) passWithout(d time.Duration, energy uint64, used map[int]int64) {
	n.host.Run(d, used)
	n.host.Zones["intel-rapl:0"].Energy += energy
}

// startAsIs starts on the existing tree, without rendering the host first.
func (n *testNode) startAsIs() {
	n.t.Helper()
	n.begin()
	n.t.Cleanup(n.stop)
}

// scrapeAsIs scrapes the existing tree ten seconds later.
func (n *testNode) scrapeAsIs() {
	n.t.Helper()
	n.host.Uptime += 10 * time.Second
	md, err := n.s.scrape(context.Background())
	require.NoError(n.t, err)
	n.md = md
}

// accept sends the last scrape to a consumer that acknowledges it.
func (n *testNode) accept() {
	n.t.Helper()
	next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { return nil })
	require.NoError(n.t, err)
	require.NoError(n.t, nextConsumer{next, n.s.delivered}.ConsumeMetrics(context.Background(), n.md))
}

// logged returns the conditions that were logged as begun or ended, such as "Degraded energy sensor".
func (n *testNode) logged() []string {
	var out []string
	for _, e := range n.logs.All() {
		switch e.Message {
		case "Collection degraded":
			out = append(out, fmt.Sprint("Degraded ", e.ContextMap()["condition"]))
		case "Collection recovered":
			out = append(out, fmt.Sprint("Recovered ", e.ContextMap()["condition"]))
		}
	}
	return out
}

// reasons returns the errors with which a condition began or continued.
func (n *testNode) reasons(condition string) (reasons []string) {
	for _, e := range n.logs.FilterMessage("Collection degraded").All() {
		if e.ContextMap()["condition"] == condition {
			reasons = append(reasons, e.ContextMap()["error"].(string))
		}
	}
	return reasons
}

func (n *testNode) statuses() []componentstatus.Status {
	var out []componentstatus.Status
	for _, e := range n.status {
		out = append(out, e.Status())
	}
	return out
}

// newScraper returns a scraper of a machine, which logs nothing.
func newScraper(tb testing.TB, cfg *Config, m machine.Machine) *energyScraper {
	tb.Helper()
	s, err := newEnergyScraper(cfg, receivertest.NewNopSettings(metadata.Type), m, attributor.Embedded{})
	require.NoError(tb, err)
	return s
}

// counter returns the path of a zone's energy counter.
func (n *testNode) counter(id string) string {
	return filepath.Join(n.host.Root(), "sys/class/powercap", id, "energy_uj")
}

// stamp returns the time of the last measurement.
func (n *testNode) stamp() time.Time { return n.s.attributor.Collector.Last().Stamp }

// unlessShort returns n, or short in a short test run.
func unlessShort(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}

// readAt returns when the meters were read last, by the clock of the node.
func (n *testNode) readAt() time.Time { return (&Embedded{scraper: n.s}).Attributed()[0].At }

// endWindow ends the current window for a reader, and reports whether it did.
func (n *testNode) endWindow() bool { return n.s.endWindow(n.t.Context()) }
