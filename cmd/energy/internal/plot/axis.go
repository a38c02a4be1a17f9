// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"math"
	"strconv"
)

// axis is a linear axis that begins at 0.
type axis struct {
	most float64 // the largest value, in seconds or watts
	unit
}

// unit is the unit of an axis.
type unit struct {
	name   string
	factor float64 // of seconds or watts
}

// newAxis returns an axis in the last unit that makes its largest value at least 3. Units of factor 1 need only 1.
func newAxis(most float64, units ...unit) axis {
	if most == 0 {
		most = 1
	}
	a := axis{most, units[0]}
	for _, u := range units {
		if most*u.factor >= 3 || u.factor == 1 && most >= 1 {
			a.unit = u
		}
	}
	return a
}

// tick is a mark of an axis.
type tick struct {
	value float64 // in seconds or watts
	label string
}

// ticks returns about so many marks at multiples of 1, 2 or 5 times a power of ten.
func (a axis) ticks(about float64) (ticks []tick) {
	most := a.most * a.factor
	rough := most / about
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	step := power
	for _, times := range []float64{2, 5, 10} {
		if step < rough {
			step = times * power
		}
	}
	decimals := max(0, int(-math.Floor(math.Log10(step*1.0001))))
	for i := 0; float64(i)*step <= most*1.0001; i++ {
		value := float64(i) * step
		ticks = append(ticks, tick{value / a.factor, strconv.FormatFloat(value, 'f', decimals, 64)})
	}
	return ticks
}
