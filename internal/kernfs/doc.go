// SPDX-License-Identifier: Apache-2.0

// Package kernfs lists /proc and reads the small files of /proc and /sys without allocating, and
// parses the numbers in them.
//
// A Dir keeps a directory open, because a scan of ten thousand processes consists of reads below
// it. A File keeps a file open that is read every interval. InjectFaults makes reads fail, for
// simulations. The package does not interpret the files, and caches no content.
//
// Users can block some of these files forever. A Guard reads files that their process can block,
// and a Search looks for files in directories that any user can lock. Both share the time of a scan
// in a Waits. dev/kernel-reads.md lists the files and the locks.
package kernfs
