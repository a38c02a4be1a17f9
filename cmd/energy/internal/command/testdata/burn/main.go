// SPDX-License-Identifier: Apache-2.0

// Command burn uses a known CPU time, by the clock of its own process, and prints how much it was in nanoseconds.
//
//	burn TIME [CHILDREN [ignored]]
//
// With CHILDREN it starts as many, one after the other, each of which uses TIME, and prints what it
// used itself, too. Ignored ones end unnoticed: it ignores SIGCHLD.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	each, err := time.ParseDuration(os.Args[1])
	if err != nil {
		fail(err)
	}
	if len(os.Args) > 2 {
		children, err := strconv.Atoi(os.Args[2])
		if err != nil {
			fail(err)
		}
		if len(os.Args) > 3 {
			signal.Ignore(syscall.SIGCHLD)
		}
		for range children {
			start(os.Args[1])
		}
		each = 0
	}
	for used() < each {
	}
	fmt.Println(used().Nanoseconds())
}

// start runs a child.
func start(each string) {
	p, err := os.StartProcess("/proc/self/exe", []string{"burn", each}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err == nil {
		_, err = p.Wait()
	}
	if err != nil && !errors.Is(err, syscall.ECHILD) {
		fail(err)
	}
}

// used returns the CPU time of this process.
func used() time.Duration {
	const processClock = 2 // CLOCK_PROCESS_CPUTIME_ID
	var t syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, processClock, uintptr(unsafe.Pointer(&t)), 0); err != 0 {
		fail(err)
	}
	return time.Duration(t.Nano())
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "burn:", err)
	os.Exit(1)
}
