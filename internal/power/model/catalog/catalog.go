// SPDX-License-Identifier: Apache-2.0

// Package catalog makes power curves from what a machine is.
package catalog
