// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestASearchBelowASimulatedRootRunsOnTheCallersGoroutine(t *testing.T) {
	s := Search[int]{Root: t.TempDir()}
	found := 0 // the race detector reports another goroutine
	result, ok := s.Run(func() int { found++; return found })
	assert.True(t, ok)
	assert.Equal(t, 1, result)
	assert.False(t, s.IsGuarded())
}

func TestSysfsIsGuarded(t *testing.T) {
	if !IsSysfs("/sys") {
		t.Skip("lacks /sys")
	}
	s := Search[int]{Root: "/", Dir: "/sys/class"}
	result, ok := s.Run(func() int { return 1 })
	assert.True(t, ok)
	assert.Equal(t, 1, result)
	assert.True(t, s.IsGuarded())
}

// A search that hangs is waited for once. Its result is used when it is there.
func TestASearchThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Search[int]{Dir: "/simulated", Always: true}
		unblocked, searches := make(chan struct{}), 0
		hang := func() int { searches++; <-unblocked; return searches }
		run := func(want bool, wait time.Duration) {
			t.Helper()
			began := time.Now()
			result, ok := s.Run(hang)
			assert.Equal(t, want, ok)
			assert.True(t, !ok || result == searches, result)
			assert.Equal(t, wait, time.Since(began))
		}
		run(false, firstPatience)
		for range 3 {
			assert.ErrorContains(t, s.Err(), "/simulated hangs")
			run(false, 0)
		}
		close(unblocked)
		synctest.Wait()
		run(true, 0)
		assert.False(t, s.Running())
		assert.NoError(t, s.Err())
		assert.Equal(t, 1, searches)

		unblocked = make(chan struct{})
		run(false, patience)
		close(unblocked)
		synctest.Wait()
		run(true, 0)

		unblocked, s.Waits = make(chan struct{}), NewWaits()
		run(false, firstPatience)
		assert.Zero(t, s.Waits.left, "for the reads of the scan")
		close(unblocked)
		synctest.Wait()
		run(true, 0)
		unblocked = make(chan struct{})
		run(false, searchHaste) // the scan has waited
		assert.NoError(t, s.Err())
		close(unblocked)
	})
}

func TestTheResultOfAnAbandonedSearchIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := 0
		s := Search[int]{Dir: "/simulated", Always: true, Drop: func(n int) { dropped = n }}
		unblocked := make(chan struct{})
		s.Run(func() int { <-unblocked; return 7 })
		s.Close()
		close(unblocked)
		synctest.Wait()
		assert.Equal(t, 7, dropped)
	})
}

func TestWithinReturnsTheError(t *testing.T) {
	failed := errors.New("failed")
	drop := func(int) { t.Error("dropped") }
	n, err := Within(t.TempDir(), "", func() (int, error) { return 3, failed }, drop)
	assert.ErrorIs(t, err, failed)
	assert.Equal(t, 3, n)
}
