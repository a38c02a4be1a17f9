// SPDX-License-Identifier: Apache-2.0

package feed

import "context"

// energyKey is the context key of the energy in a batch of profiles.
type energyKey struct{}

// WithEnergy returns a context for a batch of energy profiles that a component of this process made from windows of
// the receiver. energy is the sum of the batch's energy profiles in µJ.
//
// The mark is in the context because no sender can forge it: everything in a profile is data that any OTLP client can
// send. A component that does not pass on the context, such as a queue, loses the mark.
func WithEnergy(ctx context.Context, energy uint64) context.Context {
	return context.WithValue(ctx, energyKey{}, energy)
}

// EnergyOf returns the energy in µJ that a batch of profiles has according to [WithEnergy]. ok is false if the batch
// has no mark: its energy profiles did not come from a receiver of this process.
func EnergyOf(ctx context.Context) (energy uint64, ok bool) {
	energy, ok = ctx.Value(energyKey{}).(uint64)
	return energy, ok
}
