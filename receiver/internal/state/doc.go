// SPDX-License-Identifier: Apache-2.0

// Package state stores the totals and the trained models, and restores them at the next start.
package state
