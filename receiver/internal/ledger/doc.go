// SPDX-License-Identifier: Apache-2.0

// Package ledger fills the engine's ledger from measurements, emits it as metrics, and publishes its
// windows to readers of the feed.
package ledger
