// SPDX-License-Identifier: Apache-2.0

// Package command runs a command in a group of its own, and counts the CPU time of all its
// descendants, including descendants that are short-lived or outlive the command. Attach counts a
// process that runs already and its descendants.
//
// The group is a cgroup of version 2, or of the cpuacct hierarchy of version 1. The command is in it
// from its first instruction. Processes that others move there, such as container runtimes, count,
// too. If no cgroup can be made, the group is all descendants of this process. Their CPU time is the
// sum of the CPU clocks of running descendants and of the times of reaped children. In both cases
// this process adopts the orphans among its descendants (PR_SET_CHILD_SUBREAPER), and reaps them.
//
// What leaves the cgroup is not counted: services that systemd, cron or a container runtime start
// because the command asked them to.
package command

import (
	"errors"
	"os"
	"time"
)

// Method is how the CPU time of a group is counted.
type Method string

// The methods.
const (
	CgroupV2   Method = "cgroup v2"
	CgroupV1   Method = "cgroup v1"
	ChildTimes Method = "child times"
	// ProcessTree is the method of groups of processes that ran before.
	ProcessTree Method = "process tree"
)

// Options configures a group.
type Options struct {
	// Root is where the host's root directory is, "/" if it is empty.
	Root string
}

// Command is a program with its arguments, as for execve(2).
type Command struct {
	// Args has the name of the program, which is looked for in $PATH of this process, and its arguments.
	Args []string
	// Env is the environment, that of this process if it is nil.
	Env []string
	// Stdin, Stdout and Stderr are closed in the command where they are nil.
	Stdin, Stdout, Stderr *os.File
}

// Status is how a command ended.
type Status struct {
	// Code is the exit status as a shell reports it: 128 + the signal number if a signal ended the
	// command.
	Code int
	// Signal is the number of the signal that ended it, 0 if none did.
	Signal int
}

// Errors of Start, as a shell distinguishes them.
var (
	ErrNotFound      = errors.New("command not found")
	ErrNotExecutable = errors.New("command cannot be executed")
)

// Left is a process that the command left behind.
type Left struct {
	PID  int
	Name string // of its task, at most 15 bytes
	// CPU is the CPU time used so far, with the resolution of a clock tick.
	CPU time.Duration
}
