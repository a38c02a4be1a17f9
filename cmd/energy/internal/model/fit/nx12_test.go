// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// nx12 returns the samples of nx12 of a zone kind.
func nx12(t *testing.T, k power.Kind) (samples []Sample) {
	t.Helper()
	text, err := os.ReadFile("../../../../../receiver/test/replay/testdata/kmdb-nx12-cputime.csv")
	require.NoError(t, err)
	_, text, _ = bytes.Cut(text, []byte("\n"))
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2203)
	for _, row := range rows[1:] {
		number := func(column int) float64 {
			v, err := strconv.ParseFloat(row[column], 64)
			require.NoError(t, err)
			return v
		}
		samples = append(samples, Sample{Watts: number(map[power.Kind]int{power.Package: 3, power.DRAM: 4}[k]), Rates: model.Rates{
			model.CPUTime: 32_000 * number(2), model.Cycles: number(6), model.Instructions: number(7), model.CacheMisses: number(8),
		}})
	}
	return samples
}

// errorOf returns the mean absolute error of a power, relative to the mean power.
func errorOf(samples []Sample, watts func(*model.Rates) float64) float64 {
	off, sum := 0.0, 0.0
	for i := range samples {
		off += math.Abs(watts(&samples[i].Rates) - samples[i].Watts)
		sum += samples[i].Watts
	}
	return off / sum
}

// evenAndOdd divides samples by their index.
func evenAndOdd(samples []Sample) (even, odd []Sample) {
	for pair := range slices.Chunk(samples, 2) {
		even, odd = append(even, pair[0]), append(odd, pair[1:]...)
	}
	return even, odd
}

// The models are trained on the even samples and tested on the odd samples, like the model of
// nx12-xgboost.json.gz, whose errors of package and dram are 4.39 % and 2.83 % (CounterOnly).
func TestFittedModelsFollowNX12(t *testing.T) {
	for trainer, want := range map[string]map[string][2]float64{
		Linear:     {"BPFOnly": {0.2687, 0.1426}, "CounterOnly": {0.1135, 0.0697}, "Basic": {0.1147, 0.0699}},
		Polynomial: {"BPFOnly": {0.2316, 0.1329}, "CounterOnly": {0.0830, 0.0440}, "Basic": {0.0782, 0.0389}},
		Boosted:    {"BPFOnly": {0.1515, 0.0553}, "CounterOnly": {0.0446, 0.0286}, "Basic": {0.0390, 0.0242}},
	} {
		for i, k := range []power.Kind{power.Package, power.DRAM} {
			even, odd := evenAndOdd(nx12(t, k))
			var off []string
			for _, g := range Groups {
				fitted, err := g.Fit(trainer, even)
				require.NoError(t, err)
				got := errorOf(odd, fitted.Watts)
				t.Logf("%s, %s, %s: mean absolute error %.2f %%", g.Name, trainer, k, 100*got)
				assert.InDelta(t, want[g.Name][i], got, 1e-4, "%s %s %s", g.Name, trainer, k)
				off = append(off, fmt.Sprintf("%.1f", 100*got))
			}
			t.Attr(trainer+"-"+string(k), strings.Join(off, ", ")+" %")
		}
	}
}

// unzipped returns the path of a copy of a model of Kepler Model Server.
func unzipped(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../../../../internal/power/model/trained/testdata/kepler", name))
	require.NoError(t, err)
	if strings.HasSuffix(name, ".gz") {
		r, err := gzip.NewReader(bytes.NewReader(data))
		require.NoError(t, err)
		data, err = io.ReadAll(r)
		require.NoError(t, err)
	}
	path := filepath.Join(t.TempDir(), "AbsPower.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// The models of v0.6 are the published ones. They were trained on this series, with instructions that
// were not scaled. The other models were trained on its even samples with the current settings of
// Model Server, and are tested on its odd samples.
func TestModelsOfKeplerModelServerFollowNX12(t *testing.T) {
	packages := map[string]float64{}
	for name, want := range map[string]struct{ pkg, dram float64 }{
		"nx12-linear.json":          {0.1132, 0.0722},
		"nx12-boosting-0.6.json.gz": {0.0399, 0.0220},
		"nx12-xgboost.json.gz":      {0.0439, 0.0283},
	} {
		curves, err := trained.Curves(unzipped(t, name), machine.Machine{Threads: 32}, trained.Options{})
		require.NoError(t, err)
		require.Len(t, curves, 2)
		for i := range curves {
			c := &curves[i]
			samples := nx12(t, c.Kind)
			if c.ExpectedError > 0 { // trained on the even samples
				_, samples = evenAndOdd(samples)
			}
			got := errorOf(samples, c.Function)
			t.Logf("%s, %s: mean absolute error %.2f %%", name, c.Kind, 100*got)
			assert.InDelta(t, map[power.Kind]float64{power.Package: want.pkg, power.DRAM: want.dram}[c.Kind], got, 5e-5, "%s %s", name, c.Kind)
			if c.Kind == power.Package {
				packages[name] = 100 * got
			}
		}
	}
	t.Attr("published-models", fmt.Sprintf("%.1f, %.1f %%", packages["nx12-linear.json"], packages["nx12-boosting-0.6.json.gz"]))
}
