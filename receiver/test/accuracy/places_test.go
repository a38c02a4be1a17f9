// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// memoryOfTheOtherSocket is a machine of two sockets with a container and a process that use the
// memory of the other socket. Their resident memory is in proportion to their memory power per CPU.
func memoryOfTheOtherSocket(l *simulator) {
	l.on(withMemory(straight(4, 20, 100)), withMemory(straight(4, 20, 100)))
	place := func(w *simWorkload, watts float64, memory int) {
		w.weighs(1, watts).holds(uint64(watts * (1 << 30)))
		w.tasks[0].MemorySocket = memory
	}
	place(l.container("remote", 0, 1.5), 4, 1)
	place(l.process("agent", 1, 0.5), 1, 0)
	place(l.process("local", 1, 1), 2, 1)
	place(l.container("near", 0, 1), 3, 0)
}

func TestDRAMIsDividedByTheSocketOfTheMemory(t *testing.T) {
	remote := simScenario{name: "Remote memory", build: memoryOfTheOtherSocket}
	by := func(options string) accuracy {
		return measure(t, remote, named("scope zone, fixed, DRAM by "+options), simShort)
	}
	assert.Greater(t, by("cpu_time, 1 s, BPF").misattributedDRAM, 0.2, "by the socket of the CPU time")
	for _, source := range []string{"BPF", "procfs"} {
		a := by("memory_cpu_time, 1 s, " + source)
		assert.Less(t, a.misattributedDRAM, 0.02, source)
		assert.InDelta(t, 0, a.active, 1e-3, source)
	}
	assert.Less(t, by("memory_cpu_time, 100 ms, BPF").misattributedDRAM, 0.02)
	assert.Less(t, by("memory_cpu_time, 10 s, BPF").misattributedDRAM, 0.02)
	assert.Less(t, by("memory, 1 s, BPF").misattributedDRAM, 0.2)
}
