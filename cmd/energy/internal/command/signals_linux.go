// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"
)

// passedOn are the signals that Relay passes on. A terminal sends the first three to all of its
// foreground process group. SIGTSTP and SIGCONT are left to the kernel: at a terminal they reach
// the command, too.
var (
	fromTerminal = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH}
	fromOthers   = []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}
)

// Relay passes the signals that this process gets on to the command, until stop is called. Until
// then these signals do not end this process. Signals that this process ignores stay ignored.
//
// What Ctrl-C and the like send, the command has got from the terminal already if this process is
// in the terminal's foreground process group, and it is not sent again.
func (p *Process) Relay() (stop func()) {
	caught := slices.DeleteFunc(slices.Concat(fromTerminal, fromOthers), signal.Ignored)
	signals, done := make(chan os.Signal, 16), make(chan struct{})
	signal.Notify(signals, caught...)
	go func() {
		defer close(done)
		for s := range signals {
			if !slices.Contains(fromTerminal, s) || !isForeground() {
				_ = p.Signal(s) // it may have ended
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

// isForeground reports whether this process is in the foreground process group of its terminal.
func isForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false // it has no terminal
	}
	defer func() { _ = tty.Close() }()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}
