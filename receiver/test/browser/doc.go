// SPDX-License-Identifier: Apache-2.0

// Package browser tests the pages of energy web, energy measure and energy report in Chromium.
// `make browser` builds energy and runs the tests. dev/integration.md lists their options.
package browser
