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

// Command is a program with its arguments, as for execve(2).
type Command struct {
	// Args has the name of the program, which is looked for in $PATH of this process, and its arguments.
	Args []string
	// Env is the environment, or nil for the environment of this process.
	Env []string
	// Stdin, Stdout and Stderr are closed in the command if they are nil.
	Stdin, Stdout, Stderr *os.File
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
	// CPU is its CPU time until now.
	CPU time.Duration
}
