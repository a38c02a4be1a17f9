// SPDX-License-Identifier: Apache-2.0

// Package rules resolves the attribution rules that are in effect: the settings of a configuration,
// the rules of its preset in place of settings that are left out, and plain CPU time in place of
// rules of the preset that the machine does not support.
package rules
