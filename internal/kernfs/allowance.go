// SPDX-License-Identifier: Apache-2.0

package kernfs

import "sync/atomic"

// keptShare is the fraction of the process's descriptors that all Kept files together may take. The rest is for the
// connections of the collector.
const keptShare = 8

// heldByAll is the number of Kept files that all allowances of this process hold. The limit on
// descriptors is one of the process, however many receivers it has.
var heldByAll atomic.Int64

// Allowance limits how many Kept files one owner holds open, by a maximum of its own and by the
// budget of the process, an eighth of the descriptors that the process may open. An owner that gets
// no more reads files without keeping them open.
//
// The zero Allowance allows no file. An Allowance is not safe for concurrent use; different ones are.
type Allowance struct {
	// Most is the maximum of this owner.
	Most int
	// Held is the number of files that Take allowed and that were not given back.
	Held int

	budget int64
}

// NewAllowance returns an Allowance of at most the given number of files.
func NewAllowance(most int) Allowance {
	return Allowance{Most: most, budget: descriptorLimit() / keptShare}
}

// Take reports whether the owner may hold one more file, and counts the file if so.
func (a *Allowance) Take() bool {
	if a.Held >= a.Most {
		return false
	}
	if heldByAll.Add(1) > a.budget {
		heldByAll.Add(-1)
		return false
	}
	a.Held++
	return true
}

// GiveBack counts files that Take allowed and that the owner closed.
func (a *Allowance) GiveBack(files int) {
	a.Held -= files
	heldByAll.Add(-int64(files))
}
