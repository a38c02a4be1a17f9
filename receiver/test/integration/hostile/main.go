// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command hostile performs attacks of an unprivileged process that mislead or burden readers of
// /proc. The environment variable HOSTILE selects the attack. The arguments are only data in /proc,
// except for deny-bpf:
//
//	idle         runs for a moment ten times a second
//	storm        forks children that exit at once, as fast as possible
//	deny-bpf     executes its arguments as a program without bpf(2) and perf_event_open(2)
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		<-signals
		os.Exit(0)
	}()
	if err := run(os.Getenv("HOSTILE")); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func run(what string) error {
	switch what {
	case "idle":
		live()
	case "storm":
		return storm()
	case "deny-bpf":
		if err := denyBPF(); err != nil {
			return err
		}
		path, err := exec.LookPath(os.Args[1])
		if err != nil {
			return err
		}
		return unix.Exec(path, os.Args[1:], os.Environ())
	}
	return fmt.Errorf("invalid HOSTILE=%q", what)
}

// live runs until it is killed. It first prints "ready".
func live() {
	fmt.Println("ready")
	for {
		for began := time.Now(); time.Since(began) < 50*time.Microsecond; {
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// storm runs until it is killed. It first prints "ready".
func storm() error {
	signal.Ignore(unix.SIGCHLD) // no child becomes a zombie
	fmt.Println("ready")
	for {
		child, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && child == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
}

// denyBPF installs a system call filter, as container runtimes do (seccomp(2)), for all threads.
func denyBPF() error {
	const retErrno, retAllow, tsync = 0x00050000, 0x7fff0000, 1
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_BPF, Jt: 1},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PERF_EVENT_OPEN, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: retErrno | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: retAllow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const setModeFilter = 1
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
