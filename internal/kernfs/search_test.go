// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestASearchBelowASimulatedRootRunsOnTheCallersGoroutine(t *testing.T) {
	s := Search[int]{Root: t.TempDir()}
	found := 0 // the race detector reports another goroutine
	if result, ok := s.Run(func() int { found++; return found }); !ok || result != 1 || s.IsGuarded() {
		t.Errorf("%d, %v, guarded %v", result, ok, s.IsGuarded())
	}
}

func TestSysfsIsGuarded(t *testing.T) {
	if !IsSysfs("/sys") {
		t.Skip("lacks /sys")
	}
	s := Search[int]{Root: "/", Dir: "/sys/class"}
	if result, ok := s.Run(func() int { return 1 }); !ok || result != 1 || !s.IsGuarded() {
		t.Errorf("%d, %v, guarded %v", result, ok, s.IsGuarded())
	}
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
			if result, ok := s.Run(hang); ok != want || ok && result != searches {
				t.Errorf("%d, %v, want a result: %v", result, ok, want)
			}
			assert.Equal(t, wait, time.Since(began))
		}
		run(false, firstPatience)
		for range 3 {
			if err := s.Err(); err == nil || !strings.Contains(err.Error(), "/simulated hangs") {
				t.Errorf("error %v, want one that names the directory", err)
			}
			run(false, 0)
		}
		close(unblocked)
		synctest.Wait()
		run(true, 0)
		if s.Running() || s.Err() != nil || searches != 1 {
			t.Errorf("running %v, %v, %d searches", s.Running(), s.Err(), searches)
		}

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
	if n, err := Within(t.TempDir(), "", func() (int, error) { return 3, failed }, drop); n != 3 || !errors.Is(err, failed) {
		t.Errorf("%d, %v", n, err)
	}
}
