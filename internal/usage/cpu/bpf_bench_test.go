// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// BenchmarkBPFPass compares scans of this machine's processes and of 10,000 simulated ones, which
// measure a scan without the kernel's part.
func BenchmarkBPFPass(b *testing.B) {
	rescan := func(b *testing.B, source *BPF) {
		var table proc.Table
		require.NoError(b, scanAll(source, &table))
		b.ReportAllocs()
		for b.Loop() {
			if err := scanAll(source, &table); err != nil {
				b.Fatal(err)
			}
		}
		n := table.Len()
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/process")
		b.ReportMetric(float64(n), "processes")
	}
	b.Run("source=scan", func(b *testing.B) {
		source := openHere(b)
		if !strings.Contains(source.Traits().Name, "scan") {
			b.Skip("the kernel lacks what the scan needs")
		}
		rescan(b, source)
	})
	b.Run("source=stream", func(b *testing.B) {
		refuse(b, &openScan, errNoKfunc)
		rescan(b, openHere(b))
	})
	// The cost of a scan without the kernel's part, and the additional cost of ends.
	for _, c := range []struct {
		name string
		odd  func(k *fakeKernel)
	}{
		{"steady", func(*fakeKernel) {}},
		{"awaited", func(k *fakeKernel) { k.listed = append(k.listed[:7000:7000], k.listed[7010:]...) }},
		{"ends", func(k *fakeKernel) {
			for i := range uint32(1000) {
				k.ends = append(k.ends, tasks.Ended{Pid: 50_000 + i, Start: uint64(k.now) + uint64(i), Run: 1, Cgroup: rootCgroup, Parent: 100 + i})
			}
		}},
	} {
		b.Run("source=fake/"+c.name, func(b *testing.B) {
			k := &fakeKernel{now: time.Hour}
			for i := range uint32(10_000) {
				k.listed = append(k.listed, tasks.Process{Pid: 100 + i, Start: uint64(100 + i), Run: uint64(i), Cgroup: 7, Threads: 1})
			}
			source := newBPF(Options{Root: "/"}, k, k)
			source.bootNow = func() time.Duration { return k.now }
			var table proc.Table
			require.NoError(b, scanAll(source, &table))
			c.odd(k)
			ends := k.ends
			b.ReportAllocs()
			for b.Loop() {
				k.ends = ends
				if err := scanAll(source, &table); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/process")
		})
	}
}

// BenchmarkScanOfWhoRan compares a scan of all processes with one of those that ran in the 10 ms
// before, either without slices and with them, in turn, in CPU time of the thread. It needs a
// crowd: CROWD processes, of which one in ten runs for 20 us ten times a second, and besides one in
// twenty more that has eight threads, of which one in ten runs with all threads as often.
func BenchmarkScanOfWhoRan(b *testing.B) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("CROWD"), "1000"))
	require.NoError(b, err)
	stop, err := crowd.Start(b.TempDir(), n, n/10)
	if err != nil {
		b.Skip(err)
	}
	defer func() { require.NoError(b, stop()) }()
	for i := range n / 20 {
		pool := "pool:7:0"
		if i%10 == 0 {
			pool = "pool:7:20"
		}
		startBurner(b, nil, pool, "say", "wait").said()
	}
	var sources [2]*BPF
	var tables [2]proc.Table
	for i := range sources {
		sources[i], err = OpenBPF(Options{Root: "/", Slices: i == 1})
		skipUnlessPossible(b, err)
		defer func() { require.NoError(b, sources[i].Close()) }()
		sources[i].attachHook(b)
		require.NoError(b, scanAll(sources[i], &tables[i]))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took [4][]float64
	ran, used := 0, 0
	for i := 0; b.Loop(); i++ {
		which := i / 10 % 4 // in turns of ten
		table := &tables[which/2]
		request := Request{Want: Want{All: which%2 == 0}}
		time.Sleep(10 * time.Millisecond)
		before := threadTime()
		if err := scanFor(sources[which/2], table, request); err != nil {
			b.Fatal(err)
		}
		if i%10 > 1 { // the first two of a turn find what the others left
			took[which] = append(took[which], float64((threadTime() - before).Microseconds()))
			if which == 3 {
				ran += len(table.Active)
				for _, slot := range table.Active {
					p := &table.Rows[slot]
					used += len(table.Splits.Slices(p.Split, p.Used, p.LastCPU))
				}
			}
		}
	}
	for which, name := range []string{"all-cpu-us", "ran-cpu-us", "all-slices-cpu-us", "ran-slices-cpu-us"} {
		if slices.Sort(took[which]); len(took[which]) > 0 {
			b.ReportMetric(took[which][len(took[which])/2], name)
		}
	}
	b.ReportMetric(float64(ran)/max(1, float64(len(took[3]))), "ran/scan")
	b.ReportMetric(float64(used)/max(1, float64(len(took[3]))), "slices/scan")
	b.ReportMetric(float64(tables[1].Len()), "processes")
}
