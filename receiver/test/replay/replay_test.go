// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

var (
	traces = flag.String("traces", "", "directory with series to replay, see dev/replay.md")
	write  = flag.Bool("write", false, "write the tables to dev/results")
)

// TestTable prints the figures of the series in -traces. With -write it writes them to dev/results.
// make replay runs it.
func TestTable(t *testing.T) {
	if *traces == "" {
		t.Skip("requires the published series (make replay TRACES=DIR)")
	}
	all, err := Read(*traces)
	require.NoError(t, err)
	show(t, "replay-static-power.csv", Table(all))
}

// TestTableOfShares does the same for the figures of two programs side by side.
func TestTableOfShares(t *testing.T) {
	if !*write {
		t.Skip("takes a minute; make replay runs it")
	}
	f := newFigures()
	f.addMemory(memory(t))
	f.addPowerModel(performance(t))
	show(t, "replay-shares.csv", f.Table)
}

func show(t *testing.T, file string, all *table.Table) {
	t.Logf("\n%s", all.Markdown())
	if *write {
		require.NoError(t, all.Write("../../../dev/results/"+file))
	}
}

// committed returns the series that are part of the repository.
func committed(t *testing.T) []Series {
	all, err := Read("testdata")
	require.NoError(t, err)
	require.Len(t, all, 6)
	return all
}

func TestARunThatBeginsUnderLoadIsBetterThanTheUtilizationRule(t *testing.T) {
	n := 0
	for _, s := range committed(t) {
		if s.Machine != "nx12" {
			continue
		}
		starts := LoadedStarts(&s)
		n += len(starts)
		rule := quantile(each(starts, func(e Energy) float64 { return e.Utilization }), 0.5)
		assert.LessOrEqual(t, quantile(each(starts, func(e Energy) float64 { return e.Trained }), 0.5), max(rule/2, 0.1), s.String())
		assert.GreaterOrEqual(t, part(starts, func(e Energy) bool { return e.Within }), 0.9, s.String())
	}
	assert.Equal(t, 120, n)
}

// There are eight models of one workload or more, which read 148 to 153 W at rest. As models of
// counters with the same power, some would be trained.
func TestNoModelOfAWallMeterIsTrained(t *testing.T) {
	var runs, asCounters []*Series
	for _, s := range committed(t) {
		if s.Zone == "wall" {
			runs = append(runs, &s)
			counter := s
			counter.Counter = true
			asCounters = append(asCounters, &counter)
		}
	}
	trained := func(p Power) bool { return p.Trained }
	cases := Workloads(runs)
	assert.Len(t, cases, 8)
	assert.Zero(t, part(cases, trained))
	assert.Positive(t, part(Workloads(asCounters), trained), "with counters some models must be trained")
	for _, c := range cases {
		assert.Less(t, c.Watts, 10.0, c.Case)
		assert.Greater(t, c.Watts, -10.0, c.Case)
	}
}

func TestTheActiveEnergyOfAWholeRunIsWithinATenth(t *testing.T) {
	n := 0
	for _, s := range committed(t) {
		if !s.truth().Known && s.Machine != "nx12" {
			continue
		}
		n++
		e := WholeRun(&s)
		assert.Less(t, math.Abs(e.Trained), 0.1, e.Case)
		assert.Less(t, math.Abs(e.Trained), math.Abs(e.Utilization)/4, e.Case)
	}
	assert.Equal(t, 4, n)
}

func TestTheTableListsMachinesThatThePriorDoesNotExclude(t *testing.T) {
	const figure = "machines that are not part of the prior, and not excluded from it"
	all := committed(t)
	assert.Negative(t, Table(all).Find(figure))
	all[0].Machine = "another"
	rows := Table(all).Rows
	assert.Equal(t, []string{figure, "1", "another"}, rows[len(rows)-1])
}

func TestASampleWithoutARecordedLoadIsLeftOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dataSets", "A machine")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_run.csv"), []byte(`timestamp,powerWatts,contexts,Core_0,Core_1
100,90,7,0,0
102,150,7,50,30
104,140,7,,
106,140,7,50,
108,,7,50,30
,150,7,50,30
112,150,7,50,30
114,91,,2,0
`), 0o600))
	all, err := Read(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, all, 1)
	// The sample at 112 s is left out too, because the time before it is empty.
	assert.Equal(t, []Sample{
		{Time: 102, Seconds: 2, Utilization: 0.4, Watts: 150},
		{Time: 114, Seconds: 2, Utilization: 0.01, Watts: 91},
	}, all[0].Samples)
}
