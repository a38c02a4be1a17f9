// SPDX-License-Identifier: Apache-2.0

// Package kernfs lists /proc and reads the small files of /proc and /sys without allocating, and parses the numbers in
// them.
//
// A Dir keeps a directory open, because a scan of ten thousand processes is made of nothing but reads below it. A File
// keeps one file open that is read each interval. InjectFaults makes reads fail, for simulations. What must never be
// here: what a file means, a cache.
package kernfs
