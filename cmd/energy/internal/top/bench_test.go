// SPDX-License-Identifier: Apache-2.0

package top

import (
	"testing"
	"time"
)

func BenchmarkFrameOf10000Rows(b *testing.B) {
	m := many(10_000)
	f := m.frame
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		next := *f
		next.At = f.At.Add(time.Duration(i) * time.Second)
		_, m = m.Show(&next, nil).Draw(200, 50)
	}
}
