// SPDX-License-Identifier: Apache-2.0

// Package rules resolves the attribution rules that are in effect. The preset selects a rule for each
// setting that the configuration leaves out. CPU time replaces the preset's attribution weights that
// the machine cannot measure.
package rules
