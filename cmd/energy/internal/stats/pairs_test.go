// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded has the values of one quantity in 400 pairs of runs of the same command.
type recorded struct{ a, b []float64 }

// recording returns the CPU times and the energies of a file of testdata.
func recording(t *testing.T, name string) (cpu, joules recorded) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".csv")
	require.NoError(t, err)
	_, rows, ok := strings.Cut(string(text), "a_joules,b_joules,a_cpu_seconds,b_cpu_seconds\n")
	require.True(t, ok)
	for row := range strings.Lines(rows) {
		var of [4]float64
		_, err := fmt.Sscanf(row, "%g,%g,%g,%g", &of[0], &of[1], &of[2], &of[3])
		require.NoError(t, err)
		joules.a, joules.b = append(joules.a, of[0]), append(joules.b, of[1])
		cpu.a, cpu.b = append(cpu.a, of[2]), append(cpu.b, of[3])
	}
	require.Len(t, cpu.b, 400)
	return cpu, joules
}

// found adds a relative difference to A. It returns in how many of 500 trials with n consecutive
// pairs the ratio is above a limit, and in how many of 500 trials with n random pairs. Consecutive
// pairs keep periods of noise together.
func (r recorded) found(n int, difference, limit float64) []int {
	random, hits := rand.New(rand.NewPCG(45, uint64(n))), make([]int, 2)
	a, b := make([]float64, n), make([]float64, n)
	for trial := range 1000 {
		start := random.IntN(len(r.a))
		for i := range n {
			pair := (start + i) % len(r.a)
			if trial%2 == 1 {
				pair = random.IntN(len(r.a))
			}
			a[i], b[i] = r.a[pair]*(1+difference), r.b[pair]
		}
		if Paired(a, b, 1e-6).Above(limit) {
			hits[trial%2]++
		}
	}
	return hits
}

func TestTheActionFindsFivePercentOnABusyVirtualMachine(t *testing.T) {
	action, err := os.ReadFile("../../../../deploy/action/action.yml")
	require.NoError(t, err)
	assert.Contains(t, string(action), `default: "40"`)
	assert.Contains(t, string(action), `default: "1.02"`)
	page, err := os.ReadFile("../../../../deploy/action/README.md")
	require.NoError(t, err)
	gzip, gzipJoules := recording(t, "gzip")
	gofmt, gofmtJoules := recording(t, "gofmt")
	columns := []recorded{gzip, gofmt, gzipJoules, gofmtJoules}
	for _, r := range columns {
		assert.GreaterOrEqual(t, slices.Min(r.found(40, 0.05, 1.02)), 495)
		assert.LessOrEqual(t, slices.Max(r.found(40, 0, 1.02)), 10)
		assert.LessOrEqual(t, slices.Max(r.found(40, 0, 1)), 35, "without a limit: an interval of 95 % is above 1 in about 2.5 % of the trials")
	}
	for _, c := range []struct {
		difference, limit float64
		pairs             []int // for a difference found in 95 % of the trials
	}{{0.05, 1.02, []int{4, 25, 35, 30}}, {0.03, 1.01, []int{8, 60, 80, 80}}, {0.02, 1.01, []int{10, 160, 120, 160}}, {0.01, 1.005, []int{25, 0, 400, 0}}} {
		row := fmt.Sprintf("| %.0f %% | %v |", 100*c.difference, c.limit)
		for i, n := range c.pairs {
			if n == 0 {
				row += " more than 400 |"
				assert.Less(t, slices.Min(columns[i].found(400, c.difference, c.limit)), 475)
				continue
			}
			row += fmt.Sprintf(" %d |", n)
			assert.GreaterOrEqual(t, slices.Min(columns[i].found(n, c.difference, c.limit)), 475)
		}
		assert.Contains(t, string(page), row+"\n")
	}
}
