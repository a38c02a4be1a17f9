// SPDX-License-Identifier: Apache-2.0

// Command split runs for a number of seconds, three times as long in one function as in another.
package main

import (
	"os"
	"strconv"
	"time"
)

var sink uint64

// work is inlined: leaf functions in Go save no frame pointer, so their stacks lack the caller.
func work(x uint64, n int) uint64 {
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

//go:noinline
func three(x uint64) uint64 { return work(x, 3_000_000) + 1 }

//go:noinline
func one(x uint64) uint64 { return work(x, 1_000_000) + 1 }

func main() {
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		panic(err)
	}
	for began := time.Now(); time.Since(began).Seconds() < seconds; {
		sink = one(three(sink))
	}
}
