// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "-update writes it")
}

// pairs are runs of two commands of which the second uses a third more.
func pairs() (a, b []measure.Result) {
	for i := range 5 {
		jitter := 1 + 0.01*float64(i*i%5)
		a = append(a, result(12*jitter, 1.5, time.Duration(1100+3*i)*time.Millisecond))
		b = append(b, result(16*jitter+0.1*float64(i), 1.6, time.Duration(1500-20*i)*time.Millisecond))
	}
	return a, b
}

func TestGoldenTables(t *testing.T) {
	a, b := pairs()
	half := func(e units.Energy) units.Energy { return e / 2 }
	for i := range a {
		r := &a[i]
		for _, name := range []string{"install", "test"} {
			p := measure.Phase{Name: name, Wall: r.Wall / 2}
			for _, z := range r.Zones {
				p.Used = append(p.Used, half(z.Used))
			}
			r.Phases = append(r.Phases, p)
		}
	}
	var out bytes.Buffer
	ca, cb := Describe(a), Describe(b)
	ca.WriteTable(&out)
	fmt.Fprintln(&out)
	cb.WriteTable(&out)
	fmt.Fprintln(&out)
	Compare(ca, cb).WriteTable(&out)
	golden(t, "pairs.golden", out.Bytes())

	out.Reset()
	ca, cb = Describe(a[:1]), Describe(b[:1])
	ca.WriteTable(&out)
	fmt.Fprintln(&out)
	Compare(ca, cb).WriteTable(&out)
	golden(t, "one.golden", out.Bytes())
}
