// SPDX-License-Identifier: Apache-2.0

// Package meters opens the configured meters, reads them, and reports their errors. Package drivers
// has the table of all meters.
package meters
