// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"math/rand/v2"
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
	var files, all, mostFiles, mostOfAll atomic.Int64
	var group sync.WaitGroup
	for seed := range uint64(8) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			kept, counters := Allowance{Most: 6}, int64(0)
			giveBack := func(n, c int64) {
				files.Add(-n)
				all.Add(-n - c)
				kept.GiveBack(int(n))
				for counters -= c; c > 0; c-- {
					GiveBackCounter()
				}
			}
			for range 2000 {
				switch random.IntN(3) {
				case 0:
					if kept.Take() {
						raise(&mostFiles, files.Add(1))
						raise(&mostOfAll, all.Add(1))
					}
				case 1:
					if TakeCounter() == nil {
						counters++
						raise(&mostOfAll, all.Add(1))
					}
				default:
					giveBack(random.Int64N(int64(kept.Held)+1), random.Int64N(counters+1))
				}
			}
			giveBack(int64(kept.Held), counters)
		})
	}
	group.Wait()
	assert.LessOrEqual(t, mostFiles.Load(), int64(8))
	assert.LessOrEqual(t, mostOfAll.Load(), int64(32))
	assert.Positive(t, mostFiles.Load())
	assert.Zero(t, Descriptors())
}

// raise sets highest to n if n is higher.
func raise(highest *atomic.Int64, n int64) {
	for {
		before := highest.Load()
		if n <= before || highest.CompareAndSwap(before, n) {
			return
		}
	}
}

func TestTheZeroAllowanceAllowsNothing(t *testing.T) {
	var zero Allowance
	assert.False(t, zero.Take())
}
