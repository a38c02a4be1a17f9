// SPDX-License-Identifier: Apache-2.0

// Package series supports tests of backends. It simulates machines on which workloads start and
// exit, and runs receivers on them. It records the data that receivers sent, with the ground truth.
package series
