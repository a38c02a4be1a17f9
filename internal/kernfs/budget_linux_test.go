// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFilesOfAllOwnersTakeAnEighthOfTheDescriptorsOfTheProcess(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 800, Max: limit.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	owners := make([]Allowance, 17)
	for i := range owners {
		owners[i].Most = 30
	}
	takeAll := func() (held []int, sum int) {
		for i := range owners {
			for owners[i].Take() {
			}
			held = append(held, owners[i].Held)
			sum += owners[i].Held
		}
		return held, sum
	}
	held, sum := takeAll()
	assert.Equal(t, 100, sum)
	assert.Equal(t, []int{30, 30, 30, 10, 0}, held[:5])

	owners[0].Most = 0 // it is closed
	owners[0].GiveBack(30)
	held, sum = takeAll()
	assert.Equal(t, 100, sum)
	assert.Equal(t, []int{0, 30, 30, 30, 10, 0}, held[:6])

	for i := range owners {
		owners[i].GiveBack(owners[i].Held)
	}
	assert.Zero(t, Descriptors())
}

func TestCountersTakeHalfOfTheDescriptorsWithTheFiles(t *testing.T) {
	t.Cleanup(LimitDescriptors(80))
	files := Allowance{Most: 100}
	for files.Take() {
	}
	assert.Equal(t, 10, files.Held)
	require.NoError(t, FitCounters(30))
	require.ErrorContains(t, FitCounters(31), "more than 40 descriptors")
	for range 30 {
		require.NoError(t, TakeCounter())
	}
	require.ErrorContains(t, TakeCounter(), "LimitNOFILE")
	assert.EqualValues(t, 40, Descriptors())

	files.GiveBack(10)
	assert.False(t, files.Take(), "the counters take more than an eighth")
	for range 30 {
		GiveBackCounter()
	}
	assert.True(t, files.Take())
	files.GiveBack(1)
	assert.Zero(t, Descriptors())
}

// The owners of two receivers run on different goroutines.
func TestOwnersThatTakeAtTheSameTimeStayWithinTheBudget(t *testing.T) {
	t.Cleanup(LimitDescriptors(64))
	var files, all, taken, exceeded atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 5000 {
				kept, counters := Allowance{Most: 6}, int64(0)
				for kept.Take() {
					taken.Add(1)
					exceeded.Add(max(0, files.Add(1)-8))
					exceeded.Add(max(0, all.Add(1)-32))
				}
				for TakeCounter() == nil {
					counters++
					exceeded.Add(max(0, all.Add(1)-32))
				}
				files.Add(-int64(kept.Held))
				all.Add(-int64(kept.Held) - counters)
				kept.GiveBack(kept.Held)
				for ; counters > 0; counters-- {
					GiveBackCounter()
				}
			}
		})
	}
	group.Wait()
	assert.Zero(t, exceeded.Load())
	assert.Positive(t, taken.Load())
	assert.Zero(t, Descriptors())
}
