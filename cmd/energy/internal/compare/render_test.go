// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

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
	for name, r := range map[string]*Report{
		"pairs":   NewReport(Plan{Runs: 5, Warmup: 1, Two: true}, [2][]measure.Result{a, b}, "The other command is run by a shell"),
		"one":     NewReport(Plan{Runs: 1, Two: true}, [2][]measure.Result{a[:1], b[:1]}),
		"alone":   NewReport(Plan{Runs: 5, Warmup: 2}, [2][]measure.Result{b}),
		"unknown": NewReport(Plan{Runs: 2, Two: true}, [2][]measure.Result{unknown(), unknown()}),
	} {
		t.Run(name, func(t *testing.T) {
			var table, document, rows bytes.Buffer
			require.NoError(t, r.WriteTable(&table))
			require.NoError(t, r.WriteJSON(&document))
			require.NoError(t, r.WriteCSV(&rows))
			golden.Equal(t, name+".golden", table.String())
			if name == "one" || name == "unknown" {
				golden.Equal(t, name+".json", document.String())
			}
			golden.Equal(t, name+".csv", rows.String())
			assert.True(t, json.Valid(document.Bytes()))
			for line := range strings.Lines(table.String()) {
				assert.LessOrEqual(t, utf8.RuneCountInString(line), figure.Columns+1, line)
			}
		})
	}
}

// unknown are runs where nothing measures energy.
func unknown() []measure.Result {
	r := measure.Result{Command: []string{"x"}, Wall: time.Second, Notes: []string{"No joules are known"}}
	return []measure.Result{r, r}
}
