// SPDX-License-Identifier: Apache-2.0

package units

// Division divides an amount in proportion to weights that add up to Total. Each part is the
// difference of two rounded prefix sums, so that all parts together are exactly the amount, and
// each is within one unit of its exact value, whatever the order of the weights.
type Division struct {
	Amount, Total uint64
	weights       uint64 // sum of the weights passed to Next
	divided       uint64 // sum of the parts returned by Next
}

// Next returns the part of the next weight, which is at most Left. It returns 0 if Total is 0.
func (d *Division) Next(weight uint64) uint64 {
	d.weights += weight
	upTo := MulDiv(d.Amount, d.weights, d.Total)
	part := upTo - d.divided
	d.divided = upTo
	return part
}

// Left returns Total minus all weights passed to Next. If the sum of the weights overflows Total,
// the caller passes Left instead of a larger weight.
func (d *Division) Left() uint64 { return d.Total - d.weights }

// Divide sets parts to the amount divided in proportion to weights. If all weights are 0, the first
// part is the amount. If there are more parts than weights, the rest are 0.
func Divide[T, W ~uint64](parts []T, amount T, weights []W) {
	clear(parts)
	d := Division{Amount: uint64(amount)}
	for _, w := range weights {
		d.Total = AddSaturating(d.Total, uint64(w))
	}
	if d.Total == 0 {
		parts[0] = amount
		return
	}
	for i, w := range weights {
		parts[i] = T(d.Next(min(uint64(w), d.Left())))
	}
}

// Portion returns amount*part/whole rounded down, and 0 if whole is 0. The part must not exceed the
// whole.
func Portion[T ~uint64](amount, part, whole T) T {
	return T(MulDiv(uint64(amount), uint64(part), uint64(whole)))
}
