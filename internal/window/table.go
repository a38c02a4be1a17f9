// SPDX-License-Identifier: Apache-2.0

package window

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// table holds a row for each use of the node's CPUs in the window between two measurements, and the
// interval that the passes compute from the rows.
type table struct {
	interval attribution.Interval
	node     *attribution.Usage // of the interval: the node's CPUs
	rows     []row
	claimed  units.CPUTime // by all rows
	// rest is the row of short-lived processes without a claimant. It is added last.
	rest row
	// interrupts is the CPU time of interrupts that is unattributed. softirqd is the CPU time of
	// the ksoftirqd processes by domain, if interrupts are unattributed.
	interrupts units.CPUTime
	softirqd   []units.CPUTime

	parts  []units.CPUTime // of all rows
	on     []proc.Slice    // of all rows
	shares []*weigh.Share  // of all rows, for weighers
}

// row is one use of the node's CPUs by a claimant in a window.
type row struct {
	weigh.Share
	claimant attribution.Claimant
	weights  [attribution.Weights]uint64
	cgroup   *cgroup.Node // of the container, nil outside of containers
	// process used the CPU time, or is related to the short-lived processes that used it. It is nil
	// if there is no such process.
	process *proc.Process
	home    string // path of the cgroup that the memory of the row is charged to
	// parts divides the CPU time by domain, and on divides it by CPU. They are empty if the
	// division is not available. The cores pass reduces on to the time that counts.
	parts []units.CPUTime
	on    []proc.Slice
}

// pass computes a part of the interval from all rows of the window.
type pass func(t *table, m *Measurement)

// newTable returns the table of a node with a number of CPU domains.
func newTable(domains int) table {
	return table{
		interval: attribution.Interval{Domains: make([]attribution.Usage, 1+domains)},
		rest:     row{Share: weigh.Share{ShortLived: true}, claimant: attribution.NoClaimant, parts: make([]units.CPUTime, domains)},
		softirqd: make([]units.CPUTime, domains),
	}
}

// clearRows removes the rows of the previous interval.
func (t *table) clearRows() {
	t.node = &t.interval.Domains[0]
	t.rows, t.parts, t.on, t.shares = t.rows[:0], t.parts[:0], t.on[:0], t.shares[:0]
	t.claimed, t.rest.CPU, t.rest.Events = 0, 0, proc.Events{}
	clear(t.rest.parts)
}

// addRest adds CPU time and events of short-lived processes without a claimant.
func (t *table) addRest(used units.CPUTime, counted *proc.Events, parts []units.CPUTime) {
	t.rest.CPU += used
	for i, n := range counted {
		t.rest.Events[i] = units.AddSaturating(t.rest.Events[i], n)
	}
	for i, part := range parts {
		t.rest.parts[i] = units.AddSaturating(t.rest.parts[i], part)
	}
}

// keep copies the parts of a row to the memory of the table.
func (t *table) keep(parts []units.CPUTime) []units.CPUTime {
	from := len(t.parts)
	t.parts = append(t.parts, parts...)
	return t.parts[from:]
}

// keepSlices copies the slices of a row to the memory of the table.
func (t *table) keepSlices(on []proc.Slice) []proc.Slice {
	from := len(t.on)
	t.on = append(t.on, on...)
	return t.on[from:]
}

// dropRows removes the rows, and the claims that the passes made from them.
func (t *table) dropRows() {
	t.rows = t.rows[:0]
	for i := range 1 + len(t.rest.parts) {
		u := &t.interval.Domains[i]
		u.Claims, u.Unattributed = u.Claims[:0], 0
	}
}

// fillClaims sets the claims on the node's CPUs.
func (t *table) fillClaims() {
	t.node.Claims = t.node.Claims[:0]
	for i := range t.rows {
		t.node.Claims = append(t.node.Claims, t.rows[i].claim())
	}
}

// freeRows frees the memory that was needed for more rows.
func (t *table) freeRows() {
	t.rows, t.parts, t.on, t.shares = nil, nil, nil, nil
	for i := range t.interval.Domains {
		t.interval.Domains[i].Claims = nil
	}
}

// claim returns a row as a claim on all domains together.
func (r *row) claim() attribution.Claim {
	return attribution.Claim{Claimant: r.claimant, ShortLived: r.ShortLived, CPU: r.CPU, Weights: r.weights}
}
