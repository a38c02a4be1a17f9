// SPDX-License-Identifier: Apache-2.0

// Package crowd starts and ends thousands of real processes, for tests and benchmarks. They are
// forked from one small program, so that ten thousand processes use little memory.
package crowd
