// SPDX-License-Identifier: Apache-2.0

// Package kernfs lists /proc and reads the small files below it without allocating.
//
// It keeps the directory open and one buffer for names, because a pass over ten thousand processes is
// made of nothing but these calls. It knows no format. What must never be here: parsing, a cache, a
// file that is kept open, a meaning.
package kernfs
