// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command load uses a given amount of CPU time, for containers and virtual machines in tests:
//
//	load burn PERCENT SECONDS    uses that part of a CPU until it has used the seconds; 0 is
//	                             unlimited
//	load fork SECONDS            starts children of a few milliseconds, one after the other,
//	                             until they have used the seconds
//	load child SECONDS           uses the seconds and ends
//	load follow FILE             prints the file ten times a second
//
// The seconds are CPU time. After them it prints "done" and sleeps until a signal ends it.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() { // the first process of a PID namespace ignores signals that it does not handle
		<-signals
		os.Exit(0)
	}()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "follow" {
		return follow(args[1])
	}
	var numbers []float64
	for _, arg := range args[min(1, len(args)):] {
		n, err := strconv.ParseFloat(arg, 64)
		if err != nil {
			return err
		}
		numbers = append(numbers, n)
	}
	switch {
	case len(numbers) == 2 && args[0] == "burn":
		burn(numbers[0]/100, seconds(numbers[1]))
	case len(numbers) == 1 && args[0] == "fork":
		if err := fork(seconds(numbers[0])); err != nil {
			return err
		}
	case len(numbers) == 1 && args[0] == "child":
		spin(used() + seconds(numbers[0]))
		return nil
	default:
		return errors.New("usage: load burn PERCENT SECONDS | load fork SECONDS | load child SECONDS | load follow FILE")
	}
	fmt.Println("done")
	select {} // until a signal ends it
}

// burn uses a part of a CPU, in periods.
func burn(share float64, until time.Duration) {
	const period = 50 * time.Millisecond
	next := time.Now()
	for total := used(); until == 0 || total < until; total = used() {
		spin(total + time.Duration(share*float64(period)))
		next = next.Add(period)
		if late := time.Since(next); late > 0 { // lost time on a busy machine is not caught up
			next = next.Add(late)
		}
		time.Sleep(time.Until(next))
	}
}

// follow prints a file ten times a second, until the signal.
func follow(path string) error {
	for {
		text, err := os.ReadFile(path)
		if err == nil {
			_, err = os.Stdout.Write(text)
		}
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// childUses is the CPU time of each child in addition to its start.
const childUses = 3 * time.Millisecond

func fork(until time.Duration) error {
	for {
		var usage unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
			return err
		}
		if time.Duration(usage.Utime.Nano()+usage.Stime.Nano()) >= until {
			return nil
		}
		if err := exec.Command("/proc/self/exe", "child", fmt.Sprint(childUses.Seconds())).Run(); err != nil {
			return err
		}
	}
}

// spin uses the CPU until the total CPU time of the process is until.
func spin(until time.Duration) {
	for used() < until {
		for range 10_000 { // read the clock seldom
		}
	}
}

// used returns the process's CPU time.
func used() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
