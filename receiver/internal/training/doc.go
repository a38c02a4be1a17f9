// SPDX-License-Identifier: Apache-2.0

// Package training restores the trained static power models, and records them to be stored.
package training
