// SPDX-License-Identifier: Apache-2.0

// Package static has the static power models, which divide the energy of zones into idle and active
// energy. Static power is the power that hardware draws even if it is not used. Its energy is idle
// energy.
//
// Fixed has a configured static power. A Model is trained, by one of five methods: NewMinimum,
// NewResting, NewBase, NewRegression and NewCurve. The package does no I/O and has no clock.
//
// A new method consists of an estimator in its own file, and a function that returns a Model with
// it. Package rules of the receiver calls the function (receiver/internal/rules/static.go).
// Training.rule lists the settings that training depends on
// (receiver/internal/training/training.go): a model that was stored with other settings is not
// restored.
package static
