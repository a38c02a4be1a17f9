// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// BenchmarkIdentify identifies 300 active processes again. Each has run and renamed itself in the ten seconds since the
// last time, except the honest ones, which have run only. ns/op has no meaning here.
func BenchmarkIdentify(b *testing.B) {
	const processes, qemu = 300, "qemu-system-x86_64"
	for _, c := range []struct {
		name     string
		disguise crowd.Disguise
	}{
		{"honest", crowd.Disguise{Program: "crowd"}},
		{"short arguments", crowd.Disguise{Program: "crowd", Fill: "short"}},
		{"honest hypervisors", crowd.Disguise{Program: qemu}},
		{"hypervisors with NUL bytes", crowd.Disguise{Program: qemu, Fill: "nul"}},
		{"hypervisors with short arguments", crowd.Disguise{Program: qemu, Fill: "short"}},
	} {
		for _, counted := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/executions counted=%v", c.name, counted), func(b *testing.B) {
				dir := b.TempDir()
				stop, err := crowd.StartDisguised(dir, processes, c.disguise)
				if errors.Is(err, crowd.ErrNoCompiler) {
					b.Skip(err)
				}
				if err != nil {
					b.Fatal(err)
				}
				defer func() {
					if err := stop(); err != nil {
						b.Error(err)
					}
				}()
				rows := rowsOf(b, filepath.Join(dir, c.disguise.Program))
				id := NewIdentifier("/", Wanted{})
				defer func() { _ = id.Close() }() // it was only read from
				now := time.Hour
				look := func() {
					now += 10 * time.Second
					for i := range rows {
						if counted {
							rows[i].Cgroups, rows[i].Execs = 77, 3
						}
						if c.disguise.Fill != "" {
							rows[i].Comm[0]++
						}
						id.Identify(&rows[i], now)
					}
					id.Resolve()
				}
				look()
				used := time.Duration(0)
				for range b.N {
					time.Sleep(120 * time.Millisecond) // they run ten times a second
					before := cpuTime(b)
					look()
					used += cpuTime(b) - before
				}
				b.ReportMetric(float64(used.Microseconds())/float64(b.N*len(rows)), "cpu-µs/process")
			})
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rowsOf returns a row for each process of a program.
func rowsOf(b *testing.B, program string) (rows []cpu.Process) {
	all, err := procfs.AllProcs()
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range all {
		if exe, err := p.Executable(); err == nil && exe == program {
			rows = append(rows, cpu.Process{PID: int32(p.PID), Slot: int32(len(rows)), Start: time.Second})
		}
	}
	return rows
}
