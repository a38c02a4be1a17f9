// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"
)

// takeQuietTurn takes a turn while all other processes use less than quiet CPUs, 0 for any. It waits a while for that,
// and repeats a turn during which they used more. If none is quiet it returns the quietest.
func takeQuietTurn(v variant, pace pace, price price, quiet float64) (best turn, err error) {
	const tries = 4
	if quiet == 0 {
		return takeTurn(v, pace, price)
	}
	for i := range tries {
		if err := awaitQuiet(quiet); err != nil {
			return best, err
		}
		before, err := readBusy()
		if err != nil {
			return best, err
		}
		began := time.Now()
		t, err := takeTurn(v, pace, price)
		if err != nil {
			return best, err
		}
		after, err := readBusy()
		if err != nil {
			return best, err
		}
		t.others = (after-before).Seconds()/time.Since(began).Seconds() - t.share
		if i == 0 || t.others < best.others {
			best = t
		}
		if v.starts || t.others < quiet { // a start is short, and mostly its own
			break
		}
	}
	return best, nil
}

// awaitQuiet waits until all processes together use less than quiet CPUs for two seconds, or a minute is over.
func awaitQuiet(quiet float64) error {
	const step, longest = 2 * time.Second, time.Minute
	for deadline := time.Now().Add(longest); time.Now().Before(deadline); {
		before, err := readBusy()
		if err != nil {
			return err
		}
		began := time.Now()
		time.Sleep(step)
		after, err := readBusy()
		if err != nil {
			return err
		}
		if (after - before).Seconds() < quiet*time.Since(began).Seconds() {
			return nil
		}
	}
	return nil
}

// readBusy returns the CPU time that all CPUs were not idle since the boot.
func readBusy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(string(b))
}

// parseBusy parses the first line of /proc/stat, proc_stat(5): user, nice, system, idle, iowait,
// irq, softirq and steal. Time that a hypervisor took is none of the machine's.
func parseBusy(text string) (busy time.Duration, err error) {
	const idle, waiting, stolen, tick = 4, 5, 8, 10 * time.Millisecond
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < stolen || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat has no CPU times")
	}
	for i, field := range fields[1:stolen] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		if i+1 != idle && i+1 != waiting {
			busy += time.Duration(n) * tick
		}
	}
	return busy, nil
}
