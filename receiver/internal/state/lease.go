// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"math"
	"time"
)

// lease keeps a restart from lowering a total that was sent.
//
// A start restores the state that the store has. If the store hangs or fails, that state may be
// older than totals that were sent since, and a store that hangs cannot record that they were sent.
// So each state has a lease: nothing newer is sent before the lease ends, unless the state has been
// replaced or removed. The end of a lease needs no store, because both receivers read the same
// clock:
//
//   - A start within the lease continues the totals.
//   - A later start cannot exclude that newer totals were sent. Totals start at 0 at the time of the
//     state, with a start timestamp that was not sent yet, so the energy since then is in them.
//   - The last state of a receiver that is shut down has a lease without end.
//
// While a store fails, collections wait for the end of the lease, so a lease is short.
type lease struct {
	length time.Duration // of a new lease
	// until is the end of the leases of all states that the store may have, by the clock of this
	// process. It is zero if the store has none.
	until time.Time
	// renews is set while the store replaces states in time. Only then is the lease renewed:
	// otherwise a store that is always late would delay every collection.
	renews bool
}

const (
	// leaseTime and the collection interval are the length of a lease.
	leaseTime = 5 * time.Minute
	// noEnd is the lease of a state after which nothing is sent.
	noEnd = time.Duration(math.MaxInt64)
)

// grant returns the lease of a state of the given time.
func (l *lease) grant(at time.Time) time.Duration {
	if l.renews {
		l.until = at.Add(l.length)
	}
	return max(l.until.Sub(at), 0)
}

// replaced records the outcome of keeper.replace.
func (l *lease) replaced(older bool, err error) {
	if l.renews = err == nil; err != nil && !older {
		l.until = time.Time{}
	}
}

// replace replaces the stored state, or removes it if that fails. older reports whether the store
// may still have an older state.
func (k *keeper) replace(ctx context.Context, value []byte) (older bool, err error) {
	if err = k.set(ctx, value); err == nil || k.store == nil {
		return err != nil, err
	}
	_ = k.remove(ctx) // without the older state, a disk may have room
	if err = k.set(ctx, value); err == nil {
		return false, nil
	}
	return k.remove(ctx) != nil, err
}
