// SPDX-License-Identifier: Apache-2.0

// Package config holds the receiver's settings with their defaults and validation, and converts
// them to the options of other packages. The file preset.go lists the rules of each preset.
package config
