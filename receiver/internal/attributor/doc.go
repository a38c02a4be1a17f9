// SPDX-License-Identifier: Apache-2.0

// Package attributor attributes the energy of measurements, emits the totals as metrics, and publishes
// windows to readers of the feed.
package attributor
