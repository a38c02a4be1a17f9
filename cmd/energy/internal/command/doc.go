// SPDX-License-Identifier: Apache-2.0

// Package command runs a command in a group of its own, so that the CPU time of all its descendants is known: those that live
// for milliseconds, and those that it leaves behind.
package command
