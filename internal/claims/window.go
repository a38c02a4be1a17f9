// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// window is the interval between two measurements, with a row for each use of the node's CPUs.
// Passes weigh and divide the rows.
type window struct {
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
	// process used the CPU time, or is related to the short-lived processes that used it. It is nil
	// without such a process.
	process *proc.Process
	home    string // path of the cgroup that the memory of the row is charged to
	// parts divides the CPU time by domain, and on divides it by CPU. They are empty if the division
	// is not available. The cores pass reduces on to the time that counts.
	parts []units.CPUTime
	on    []proc.Slice
}

// pass computes a part of the interval from all rows of a window.
type pass func(w *window, m *Measurement)

// newWindow returns a window of a node with a number of CPU domains.
func newWindow(domains int) window {
	return window{
		interval: attribution.Interval{Domains: make([]attribution.Usage, 1+domains)},
		rest:     row{Share: weigh.Share{ShortLived: true}, claimant: attribution.NoClaimant, parts: make([]units.CPUTime, domains)},
		softirqd: make([]units.CPUTime, domains),
	}
}

// clearRows removes the rows of the previous interval.
func (w *window) clearRows() {
	w.node = &w.interval.Domains[0]
	w.rows, w.parts, w.on, w.shares = w.rows[:0], w.parts[:0], w.on[:0], w.shares[:0]
	w.claimed, w.rest.CPU = 0, 0
	clear(w.rest.parts)
}

// addRest adds CPU time of short-lived processes without a claimant.
func (w *window) addRest(used units.CPUTime, parts []units.CPUTime) {
	w.rest.CPU += used
	for i, part := range parts {
		w.rest.parts[i] = units.AddSaturating(w.rest.parts[i], part)
	}
}

// keep copies the parts of a row to the memory of the window.
func (w *window) keep(parts []units.CPUTime) []units.CPUTime {
	from := len(w.parts)
	w.parts = append(w.parts, parts...)
	return w.parts[from:]
}

// keepSlices copies the slices of a row to the memory of the window.
func (w *window) keepSlices(on []proc.Slice) []proc.Slice {
	from := len(w.on)
	w.on = append(w.on, on...)
	return w.on[from:]
}

// dropRows removes the rows, and the claims that passes made of them.
func (w *window) dropRows() {
	w.rows = w.rows[:0]
	for i := range 1 + len(w.rest.parts) {
		u := &w.interval.Domains[i]
		u.Claims, u.Unattributed = u.Claims[:0], 0
	}
}

// fillClaims sets the claims on the node's CPUs.
func (w *window) fillClaims() {
	w.node.Claims = w.node.Claims[:0]
	for i := range w.rows {
		w.node.Claims = append(w.node.Claims, w.rows[i].claim())
	}
}

// freeRows frees the memory that was needed for more rows.
func (w *window) freeRows() {
	w.rows, w.parts, w.on, w.shares = nil, nil, nil, nil
	for i := range w.interval.Domains {
		w.interval.Domains[i].Claims = nil
	}
}

// claim returns a row as a claim on all domains together.
func (r *row) claim() attribution.Claim {
	return attribution.Claim{Claimant: r.claimant, ShortLived: r.ShortLived, CPU: r.CPU, Weights: r.weights}
}
