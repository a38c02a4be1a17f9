// SPDX-License-Identifier: Apache-2.0

// Package trained reads and writes power models that were trained on a machine with meters.
package trained
