// SPDX-License-Identifier: Apache-2.0

package feed

import "context"

// energyKey is the context key of the energy of a batch of profiles.
type energyKey struct{}

// WithEnergy returns a context that marks a batch of energy profiles. The mark means that a component of this process
// made the batch from windows of the receiver. energy is the sum of the batch's energy profiles in µJ.
//
// The mark is in the context because clients can send any content of a profile, but no context. A
// component that does not pass on the context, such as a queue, loses the mark.
func WithEnergy(ctx context.Context, energy uint64) context.Context {
	return context.WithValue(ctx, energyKey{}, energy)
}

// EnergyOf returns the energy in µJ that [WithEnergy] recorded for a batch of profiles. ok is false
// if the context has no mark, because the energy does not come from a receiver of this process or a
// component has lost the context.
func EnergyOf(ctx context.Context) (energy uint64, ok bool) {
	energy, ok = ctx.Value(energyKey{}).(uint64)
	return energy, ok
}
