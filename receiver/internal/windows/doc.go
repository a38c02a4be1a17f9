// SPDX-License-Identifier: Apache-2.0

// Package windows paces the attribution windows: it ends them, counts missed windows, and reports
// collections that hang.
package windows
