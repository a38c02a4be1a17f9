// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStart reports how much later a command starts than energy measure does, the median in
// milliseconds.
//
//	go test -run '^$' -bench Start -benchtime 50x .
func BenchmarkStart(b *testing.B) {
	energy := filepath.Join(b.TempDir(), "energy")
	build := exec.Command("go", "build", "-o", energy, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the Makefile: a dynamic linker costs milliseconds
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	// started returns the time until a program, which the arguments start, prints the current time.
	started := func(b *testing.B, args ...string) float64 {
		c := exec.Command(args[0], append(args[1:], "date", "+%s%N")...)
		c.Env = append(os.Environ(), "LC_ALL=C")
		began := time.Now()
		out, err := c.Output()
		require.NoError(b, err)
		told, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		require.NoError(b, err)
		return time.Unix(0, told).Sub(began).Seconds() * 1000
	}
	for _, flags := range []string{"", "--model 35-120", "--model auto"} {
		b.Run(strings.ReplaceAll(flags, " ", "_"), func(b *testing.B) {
			args := slices.Concat([]string{energy, "measure", "--quiet"}, strings.Fields(flags), []string{"--"})
			var with, without []float64
			for b.Loop() {
				with = append(with, started(b, args...))
				without = append(without, started(b, "/usr/bin/env"))
			}
			b.ReportMetric(median(with)-median(without), "ms/start")
		})
	}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
