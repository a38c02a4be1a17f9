// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"time"
)

// lock is a mutex with a timed lock operation. The zero lock is not usable; call newLock.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

// Lock locks l.
func (l lock) Lock() { l <- struct{}{} }

// Unlock unlocks l, which must be locked.
func (l lock) Unlock() { <-l }

// LockUnless locks l unless ctx is done before. It reports whether l is locked.
func (l lock) LockUnless(ctx context.Context) bool {
	select {
	case l <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// LockWithin locks l if that takes at most d. It reports whether l is locked.
func (l lock) LockWithin(d time.Duration) bool {
	select {
	case l <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case l <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}
