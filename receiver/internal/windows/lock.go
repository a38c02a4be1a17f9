// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"time"
)

// Lock is a mutex with a timed lock operation. The zero lock is not usable; call NewLock.
type Lock chan struct{}

// NewLock returns an unlocked lock.
func NewLock() Lock { return make(Lock, 1) }

// Lock locks l.
func (l Lock) Lock() { l <- struct{}{} }

// Unlock unlocks l, which must be locked.
func (l Lock) Unlock() { <-l }

// LockUnless locks l unless ctx is done before. It reports whether l is locked.
func (l Lock) LockUnless(ctx context.Context) bool {
	select {
	case l <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// LockWithin locks l if that takes at most d. It reports whether l is locked.
func (l Lock) LockWithin(d time.Duration) bool {
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
