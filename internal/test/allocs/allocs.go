// SPDX-License-Identifier: Apache-2.0

// Package allocs counts allocations in tests.
package allocs

import (
	"math"
	"runtime"
)

// Count returns how many allocations steps calls of step make in total. testing.AllocsPerRun rounds
// down to whole allocations per call, so it misses allocations in some of the calls.
//
// Allocations of other goroutines count as well. Count therefore returns the lowest of three
// measurements.
func Count(steps int, step func()) uint64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fewest := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range steps {
			step()
		}
		runtime.ReadMemStats(&after)
		if fewest = min(fewest, after.Mallocs-before.Mallocs); fewest == 0 {
			break
		}
	}
	return fewest
}
