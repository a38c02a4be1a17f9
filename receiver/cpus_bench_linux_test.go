// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
)

// BenchmarkCPUs has cpusProcesses processes, of which cpusActive run in each window.
const cpusProcesses, cpusActive = 100_000, 1000

// BenchmarkCPUs measures windows of a second on simulated machines with the same processes and
// different numbers of CPUs and packages, by the default rules: the CPU time of the receiver and
// the reads of files. The BPF programs are simulated, and cost nothing.
func BenchmarkCPUs(b *testing.B) {
	var first float64
	for _, c := range []struct{ packages, cpus int }{{1, 8}, {8, 8}, {8, 64}, {8, 256}} {
		b.Run(fmt.Sprintf("%d CPUs in %d packages", c.cpus, c.packages), func(b *testing.B) {
			n := newManyCPUs(b, c.packages, c.cpus)
			for range 5 {
				n.run()
				n.s.sample()
			}
			var used time.Duration
			var reads int
			for b.Loop() {
				n.run()
				began, read := cpuTime(b), readsOf(b)
				n.s.sample()
				used += cpuTime(b) - began
				reads += readsOf(b) - read - 1 // without the read of readsOf
			}
			perWindow := float64(used.Microseconds()) / float64(b.N)
			if first == 0 {
				first = perWindow
			}
			b.ReportMetric(perWindow, "cpu-µs/op")
			b.ReportMetric(float64(reads)/float64(b.N), "reads/op")
			b.ReportMetric(perWindow/first, "ratio")
		})
	}
}

var readCalls = regexp.MustCompile(`syscr: (\d+)`)

// readsOf returns the number of read system calls of this process.
func readsOf(b *testing.B) int {
	text, err := os.ReadFile("/proc/self/io")
	require.NoError(b, err)
	n, err := strconv.Atoi(string(readCalls.FindSubmatch(text)[1]))
	require.NoError(b, err)
	return n
}

// manyCPUs is a receiver on a simulated machine. Its host shows only the active processes.
type manyCPUs struct {
	*hostsim.Kernel
	b       *testing.B
	s       *energyScraper
	host    *hostsim.Host
	listing tasks.Listing
}

func newManyCPUs(b *testing.B, packages, cpus int) *manyCPUs {
	var sockets []*hostsim.Socket
	for range packages {
		sockets = append(sockets, &hostsim.Socket{CPUs: cpus / packages, Threads: 2})
	}
	m := hostsim.NewMachine(b.TempDir(), sockets...)
	n := &manyCPUs{Kernel: hostsim.NewKernel(m), b: b, host: m.Host}
	n.host.EachCPU = make([]hostsim.CPU, cpus)
	for cpu := range cpus {
		n.host.Clocks[cpu] = int64(2_000_000 + 1000*cpu)
	}
	for i := range cpusProcesses {
		pid := 100 + i
		cpu := i % cpus
		if i%(cpusProcesses/cpusActive) == 0 {
			cpu = i / (cpusProcesses / cpusActive) % cpus
			n.host.Processes[pid] = &hostsim.Process{Parent: 1, Comm: "crowd", Exe: "/bin/crowd", Args: []string{"crowd"}, LastCPU: cpu}
			n.listing.Changed = append(n.listing.Changed, uint64(i))
		}
		n.listing.Processes = append(n.listing.Processes, tasks.Process{
			Pid: uint32(pid), Parent: 1, Start: uint64(100 + i), Cgroup: 1, Cgroups: 1, Threads: 1, Cpu: uint32(cpu), Comm: [16]byte{'c'},
		})
	}
	n.run()
	cfg := realConfig("", time.Second, func(c *Config) {
		c.RootPath, c.Attribution.Preset, c.Meters.Use = m.Host.Root(), "", only("powercap")
	})
	local := machine.Local()
	local.Now, local.OpenWeigher = n.host.Now, openClocks(n.host)
	local.Clocks = func() (boot, suspended time.Duration) { return n.host.Uptime, 0 }
	local.OpenCPU = func(o cpu.Options) (*cpu.Reader, error, error) {
		return cpu.NewReader(cpu.NewSimulatedBPF(o, n, n.Now), o), nil, nil
	}
	n.s = newScraper(b, cfg, local)
	require.NoError(b, n.s.start(context.Background(), componenttest.NewNopHost()))
	n.s.windows.Sampler.Stop()
	b.Cleanup(func() { require.NoError(b, n.s.shutdown(context.Background())) })
	require.Equal(b, packages > 1, n.s.node.CPU.Topology() != nil)
	require.True(b, n.s.node.Keys.OfClockRates())
	return n
}

// List implements cpu.Kernel.
func (n *manyCPUs) List(bool) (tasks.Listing, error) { return n.listing, nil }

// run lets a second pass, in which each active process runs for 1 ms.
func (n *manyCPUs) run() {
	for _, i := range n.listing.Changed {
		n.listing.Processes[i].Run += uint64(time.Millisecond)
	}
	n.listing.Same = len(n.listing.Processes)
	n.host.Run(time.Second, nil)
	for tick := range cpusActive * time.Millisecond / hostsim.Tick {
		n.host.CPU.User++
		n.host.EachCPU[int(tick)%n.host.CPUs].User++
	}
	for cpu := range n.host.EachCPU {
		n.host.EachCPU[cpu].Idle += int64(time.Second / hostsim.Tick)
	}
	for _, z := range n.host.Zones {
		z.Energy += 50_000_000
	}
	require.NoError(n.b, n.host.Render())
}
