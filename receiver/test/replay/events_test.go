// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/weigh/calibrated"
)

// nx12 returns the series of a zone of nx12.
func nx12(t *testing.T, zone string) *Series {
	for _, s := range committed(t) {
		if s.Machine == "nx12" && s.Zone == zone {
			return &s
		}
	}
	t.Fatal("the series is missing")
	return nil
}

func mean(of []float64) (mean float64) {
	for _, x := range of {
		mean += x / float64(len(of))
	}
	return mean
}

// The programs of the second half have up to 40 times as many cache misses as the programs of the
// first half.
func TestACalibratedModelFollowsUnseenPrograms(t *testing.T) {
	for zone, most := range map[string]struct{ watts, relative float64 }{"package": {5, 0.06}, "dram": {3, 0.06}} {
		e := Calibrate(nx12(t, zone))
		t.Logf("%s: error %.2f W of %.1f W (median %.2f, 90th percentile %.2f), fitted %d times for %d samples; fitted once %.0f W, mean of the last %.1f W",
			zone, mean(e.Calibrated), e.Watts, quantile(e.Calibrated, 0.5), quantile(e.Calibrated, 0.9), e.Fits, len(e.Calibrated),
			mean(e.Once), mean(e.Mean))
		require.Len(t, e.Calibrated, 1101)
		assert.Less(t, mean(e.Calibrated), most.watts, zone)
		assert.Less(t, mean(e.Calibrated)/e.Watts, most.relative, zone)
		assert.Less(t, mean(e.Calibrated), mean(e.Mean)/3, zone)
		assert.Greater(t, mean(e.Once), 10*mean(e.Calibrated), "without calibration: "+zone)
		assert.Less(t, e.Fits, len(e.Calibrated), zone)
	}
}

func TestCacheMissesExplainThePowerOfMemoryBetterThanCPUTime(t *testing.T) {
	event := func(k int) func(*Sample) float64 { return func(s *Sample) float64 { return s.Events[k] } }
	cpuTime := func(s *Sample) float64 { return s.Utilization }
	cycles, instructions, misses := event(0), event(1), event(2)
	dram, pkg := nx12(t, "dram"), nx12(t, "package")
	for _, c := range []struct {
		s    *Series
		of   func(*Sample) float64
		want float64
	}{
		{dram, cpuTime, 0.36}, {dram, cycles, 0.48}, {dram, instructions, 0.08}, {dram, misses, 0.66},
		{pkg, cpuTime, 0.64}, {pkg, cycles, 0.91}, {pkg, instructions, 0.46}, {pkg, misses, 0.28},
	} {
		assert.InDelta(t, c.want, Explained(c.s, c.of), 0.01)
	}
	for _, s := range []*Series{dram, pkg} {
		for _, x := range s.Samples {
			assert.NotEqual(t, calibrated.Rates{}, x.Events)
		}
	}
}
