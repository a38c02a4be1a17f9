// SPDX-License-Identifier: Apache-2.0

// Package meters opens the meters that the configuration selects, reads them, and reports what is
// wrong with them. Package drivers has the table of all meters.
package meters
