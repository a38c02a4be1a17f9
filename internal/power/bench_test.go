// SPDX-License-Identifier: Apache-2.0

package power

import (
	"testing"
	"time"
)

func BenchmarkPowercapReadSixZones(b *testing.B) {
	tr := newTree(b)
	sixZones(tr)
	p := tr.meter()
	tr.read(p, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Read(Sample{At: after(time.Second)}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPowercapDiscoverSixZones(b *testing.B) {
	tr := newTree(b)
	sixZones(tr)
	p := tr.meter()
	tr.read(p, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Discover(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkModelRead(b *testing.B) {
	m := NewModel(mustCurve(b, Point{0, 40}, Point{0.5, 100}, Point{1, 120}))
	d := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		d += time.Millisecond
		if _, err := m.Read(load(d, d.Seconds()*2, d.Seconds()*4)); err != nil {
			b.Fatal(err)
		}
	}
}
