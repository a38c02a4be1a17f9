// SPDX-License-Identifier: Apache-2.0

package config

import "slices"

// StaticModel is a static power model.
type StaticModel string

// The static power models.
const (
	StaticUtilization     StaticModel = "utilization"
	StaticTotal           StaticModel = "total" // all power is static
	StaticFixed           StaticModel = "fixed"
	StaticMinimum         StaticModel = "minimum"
	StaticResting         StaticModel = "resting"
	StaticRegression      StaticModel = "regression"       // a straight line
	StaticCubicRegression StaticModel = "regression_cubic" // a polynomial of the third degree
	StaticBase            StaticModel = "base"
	StaticTrained         StaticModel = "trained"
)

// StaticModelNames lists the static power models.
var StaticModelNames = []StaticModel{
	StaticUtilization, StaticFixed, StaticMinimum, StaticResting, StaticRegression, StaticCubicRegression, StaticBase, StaticTrained, StaticTotal,
}

// IsTrained reports whether the model must be trained before it can be applied.
func (m StaticModel) IsTrained() bool {
	return m != "" && !slices.Contains([]StaticModel{StaticUtilization, StaticFixed, StaticTotal}, m)
}
