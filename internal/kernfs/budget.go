// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"fmt"
	"sync/atomic"
)

// The budget of a process is a fraction of the descriptors that it may open, whatever the number of
// receivers in the process. The other descriptors are for the connections of the collector.
const (
	// A file may stay open while the budget takes at most 1/fileShare of the descriptors. Other
	// files are opened for each read.
	fileShare = 8
	// A performance counter may be opened while the budget takes at most 1/counterShare of the
	// descriptors. A counter counts only while it is open.
	counterShare = 2
)

// spent is the number of descriptors that count against the budget: files of all Allowances, and
// performance counters.
var spent atomic.Int64

// mayOpen returns how many descriptors the process may open. Tests replace it.
var mayOpen = descriptorLimit

// LimitDescriptors computes the budget from a limit other than the limit of the process
// (RLIMIT_NOFILE) until restore is called. Only tests call LimitDescriptors, and one at a time.
func LimitDescriptors(limit int64) (restore func()) {
	before := mayOpen
	mayOpen = func() int64 { return limit }
	return func() { mayOpen = before }
}

// Descriptors returns the number of descriptors that count against the budget.
func Descriptors() int64 { return spent.Load() }

// spend counts a descriptor unless the budget of the given share is spent.
func spend(share int64) bool {
	if spent.Add(1) <= mayOpen()/share {
		return true
	}
	spent.Add(-1)
	return false
}

// Allowance limits how many files one owner keeps open between reads: by a maximum of its own, and
// by the budget of the process. The budget allows another file while all files and performance
// counters take less than an eighth of the descriptors that the process may open. A refused owner
// opens the file for each read.
//
// The zero Allowance allows no file. An Allowance is not safe for concurrent use; different
// Allowances are.
type Allowance struct {
	// Most is the maximum of this owner.
	Most int
	// Held is the number of files that Take allowed and that were not given back.
	Held int
}

// Take reports whether the owner may keep one more file open, and counts the file if so.
func (a *Allowance) Take() bool {
	if a.Held >= a.Most || !spend(fileShare) {
		return false
	}
	a.Held++
	return true
}

// GiveBack counts files that Take allowed and that the owner closed.
func (a *Allowance) GiveBack(files int) {
	a.Held -= files
	spent.Add(-int64(files))
}

// TakeCounter counts one performance counter, which the caller opens next. It returns an error if
// more than half of the descriptors that the process may open would be in use.
func TakeCounter() error {
	if !spend(counterShare) {
		return errCounters()
	}
	return nil
}

// GiveBackCounter counts a counter that was closed, or that could not be opened.
func GiveBackCounter() { spent.Add(-1) }

// FitCounters returns an error if the budget does not allow the given number of further counters. A
// caller that needs several counters together calls FitCounters before it opens the first of them.
func FitCounters(counters int) error {
	if spent.Load()+int64(counters) > mayOpen()/counterShare {
		return errCounters()
	}
	return nil
}

func errCounters() error {
	return fmt.Errorf("counters would take more than %d descriptors, half of the limit of the process (LimitNOFILE, ulimit -n)",
		mayOpen()/counterShare)
}
