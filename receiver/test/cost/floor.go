// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// floorInC is the source of the floor "wake", compiled to floorProgram.
//
//go:embed testdata/floor.c
var floorInC []byte

const floorProgram = "floor"

// floors are programs that repeat a minimum of work, which any such program needs.
var floors = map[string]func(every time.Duration) error{
	"procfs":  procfsFloor,
	"library": libraryFloor,
}

// be runs a floor. It returns only with an error.
func be(name string, every time.Duration) error {
	f, ok := floors[name]
	if !ok {
		return fmt.Errorf("there is no floor %q", name)
	}
	return f(every)
}

// procfsFloor opens, reads and closes each /proc/<pid>/stat.
func procfsFloor(every time.Duration) error {
	dir := kernfs.New("/proc")
	buf := make([]byte, 4096)
	return repeat(every, func() error {
		return dir.Each(func(name []byte) {
			if pid, err := strconv.ParseInt(string(name), 10, 32); err == nil {
				_, _ = dir.ReadOf(int32(pid), "stat", buf) // processes end
			}
		})
	})
}

// libraryFloor lists the processes and reads each stat file with prometheus/procfs, as other
// programs do.
func libraryFloor(every time.Duration) error {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	return repeat(every, func() error {
		all, err := proc.AllProcs()
		for _, p := range all {
			_, _ = p.Stat() // processes end
		}
		return err
	})
}

// repeat calls f at each expiration of a timer of the kernel.
func repeat(every time.Duration, f func() error) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return err
	}
	t := unix.NsecToTimespec(every.Nanoseconds())
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: t, Value: t}, nil); err != nil {
		return err
	}
	expirations := make([]byte, 8)
	for {
		if _, err := unix.Read(fd, expirations); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
}
