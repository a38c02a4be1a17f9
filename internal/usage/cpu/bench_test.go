// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"testing"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// BenchmarkPass compares scans of this machine's processes: the source's, the system calls alone
// that a scan needs, and prometheus/procfs.
func BenchmarkPass(b *testing.B) {
	perProcess := func(b *testing.B, processes int) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(processes), "ns/process")
		b.ReportMetric(float64(processes), "processes")
	}
	b.Run("source=procfs", func(b *testing.B) {
		source := realProc(b)
		var t proc.Table
		b.ReportAllocs()
		for b.Loop() {
			if err := scanAll(source, &t); err != nil {
				b.Fatal(err)
			}
		}
		perProcess(b, len(t.Rows))
	})
	b.Run("source=floor", func(b *testing.B) {
		realProc(b)
		dir, buf, n := kernfs.New("/proc"), make([]byte, 4096), 0
		defer func() { _ = dir.Close() }()
		b.ReportAllocs()
		for b.Loop() {
			n = 0
			if err := dir.Each(func(name []byte) {
				if pid, ok := parsePID(name); ok {
					if _, err := dir.ReadOf(pid, "stat", buf); err == nil {
						n++
					}
				}
			}); err != nil {
				b.Fatal(err)
			}
		}
		perProcess(b, n)
	})
	b.Run("source=prometheus", func(b *testing.B) {
		realProc(b)
		proc, err := procfs.NewFS("/proc")
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		b.ReportAllocs()
		for b.Loop() {
			n = 0
			all, err := proc.AllProcs()
			if err != nil {
				b.Fatal(err)
			}
			for _, p := range all {
				if _, err := p.Stat(); err == nil {
					n++
				}
			}
		}
		perProcess(b, n)
	})
}
