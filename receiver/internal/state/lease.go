// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"math"
	"time"
)

// lease keeps a restart from lowering a total that was sent.
//
// A receiver restores the stored state when it starts. If the store hung or failed before, newer
// totals may have been sent, and the store could not record this. Therefore each state has a lease.
// No newer totals are sent before the lease ends, unless the state has been replaced or removed. The
// end of a lease requires no write, because the receivers before and after a restart read the same
// clock:
//
//   - A start within the lease continues the totals.
//   - At a later start, newer totals may have been sent. Totals start at 0 at the time of the state,
//     with a new start timestamp, and include the energy since the state.
//   - The last state of a receiver that is shut down has a lease without end.
//
// A lease is short because collections wait for its end while a store fails.
type lease struct {
	length time.Duration // length of a new lease
	// until is the latest end of the leases of all states that the store may contain, by the clock of
	// this process. It is zero if the store contains no state.
	until time.Time
	// renews is set while the store replaces states in time. The lease is renewed only then, because
	// otherwise a store that is always late would delay every collection.
	renews bool
}

const (
	// leaseTime and the collection interval are the length of a lease. Kubernetes waits up to five
	// minutes, and some seconds, before it starts a container that crashes repeatedly.
	leaseTime = 6 * time.Minute
	// noEnd is the lease of the last state: no totals are sent after it.
	noEnd = time.Duration(math.MaxInt64)
)

// grant returns the lease of a state of the given time.
func (l *lease) grant(at time.Time) time.Duration {
	if l.renews {
		l.until = at.Add(l.length)
	}
	return max(l.until.Sub(at), 0)
}

// replaced records the outcome of Storage.replace.
func (l *lease) replaced(older bool, err error) {
	if l.renews = err == nil; err != nil && !older {
		l.until = time.Time{}
	}
}

// replace replaces the stored state, or removes it if it cannot be replaced. older reports whether
// the store may still contain an older state.
func (k *Storage) replace(ctx context.Context, value []byte) (older bool, err error) {
	if err = k.set(ctx, value); err == nil || k.store == nil {
		return err != nil, err
	}
	_ = k.remove(ctx) // may free space for the new state
	if err = k.set(ctx, value); err == nil {
		return false, nil
	}
	return k.remove(ctx) != nil, err
}
