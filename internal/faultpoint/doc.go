// SPDX-License-Identifier: Apache-2.0

// Package faultpoint is where a simulation makes reads of files fail.
//
// The rooms that read the host's files show it what they got; outside of simulations it hands that back
// untouched, at the price of one atomic load. What must never be here: a fault, or a decision about one.
package faultpoint
