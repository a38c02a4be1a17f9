// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// neighbor is a program that evicts the CPUs' caches: on each CPU, a number of times a second, it walks a buffer that
// is a quarter larger than the last-level cache.
type neighbor struct {
	size int
	end  chan struct{}
	done chan error
	cpus int
}

// startNeighbor starts a neighbor that walks its buffer so many times a second.
func startNeighbor(rate float64) (*neighbor, error) {
	cache, err := lastLevelCache("/sys/devices/system/cpu/cpu0/cache")
	if err != nil {
		return nil, err
	}
	n := &neighbor{size: cache + cache/4, end: make(chan struct{}), done: make(chan error), cpus: runtime.NumCPU()}
	buffer := make([]byte, n.size)
	every := time.Duration(float64(time.Second) / rate)
	for cpu := range n.cpus {
		go func() { n.done <- n.walk(buffer, cpu, every) }()
	}
	return n, nil
}

func (n *neighbor) walk(buffer []byte, cpu int, every time.Duration) error {
	const line = 64
	runtime.LockOSThread() // and never unlocked, so that the thread ends with its affinity
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-n.end:
			return nil
		case <-ticker.C:
			for i := cpu; i < len(buffer); i += line { // each CPU writes bytes of its own
				buffer[i]++
			}
		}
	}
}

func (n *neighbor) stop() (err error) {
	close(n.end)
	for range n.cpus {
		err = errors.Join(err, <-n.done)
	}
	return err
}

// lastLevelCache returns the size in bytes of the largest cache that a CPU uses.
func lastLevelCache(dir string) (size int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "index*", "size"))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		kB, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(string(b)), "K"))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		size = max(size, kB<<10)
	}
	if size == 0 {
		return 0, fmt.Errorf("%s has no cache", dir)
	}
	return size, nil
}
