// SPDX-License-Identifier: Apache-2.0

package powercap

import (
	"context"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

func BenchmarkPowercapReadSixZones(b *testing.B) {
	tr := newTree(b)
	sixZones(tr)
	p := tr.meter()
	tr.read(p, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Read(context.Background(), power.Sample{At: after(time.Second)}); err != nil {
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
		if err := p.discover(); err != nil {
			b.Fatal(err)
		}
	}
}
