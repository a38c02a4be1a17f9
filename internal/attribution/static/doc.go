// SPDX-License-Identifier: Apache-2.0

// Package static has the static power models: they divide the energy of zones into an idle part,
// the static power that the hardware draws whether or not it is used, and an active part.
//
// Fixed has a configured static power. A Model learns it, by one of five methods that NewMinimum,
// NewResting, NewBase, NewRegression and NewCurve return. The package does no I/O and has no clock.
//
// A new method is an estimator in a file of its own and a function that returns a Model of it. The
// receiver registers it in staticModels (receiver/rules.go), and training.rule
// (receiver/training.go) names the settings that its training depends on: a model that was stored
// with other settings is not restored.
package static
