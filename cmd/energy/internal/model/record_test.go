// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	r := fleet(1).record(600)
	r.add(counter{kind: "gpu", id: "odd \"id\", with,\ncommas"}, point{began, 1.25})
	var text strings.Builder
	require.NoError(t, r.Write(&text))
	again, err := ReadRecord([]byte(text.String()))
	require.NoError(t, err)
	assert.Equal(t, r, again)
	assert.Contains(t, again.series, counter{kind: "cpu", id: "intel-rapl:0:1", part: true})
	assert.Equal(t, "5 meters and 60 CPU utilizations", again.String())
}

func TestAMalformedRecordIsRejected(t *testing.T) {
	head := "time,kind,part,id,value\n"
	for text, want := range map[string]string{
		"": "not a record", "time,W\n": "not a record", "time,kind,part,id,joules\n": "not a record",
		head + ",machine,,{},\n":          "line 2: neither cpu",
		head + "1,2\n":                    "line 2",
		head + "x,cpu,false,a,1":          "line 2",
		head + "1,cpu,false,a,x":          "line 2",
		head + "1,cpu,false,a,-1":         "line 2: ",
		head + "1,utilization,false,,1.5": "line 2: ",
	} {
		_, err := ReadRecord([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

// A collector measures every 10 s and is read every second, with its timestamps or with those of the
// reading, and with a load that changes or that is steady.
func TestEachCollectionIsRecordedOnce(t *testing.T) {
	for _, own := range []bool{true, false} {
		for _, steady := range []float64{0, 1} {
			r := &Record{}
			for second := range 65 {
				n := float64(second / 10)
				s := snapshotAt(second, 0.05*n*(1-steady), 100*n, 10*n, 200*n)
				if s.Untimed = !own; own {
					s = snapshotAt(second/10*10, 0.05*n*(1-steady), 100*n, 10*n, 200*n)
				}
				r.Add(s)
			}
			assert.Len(t, r.series[utilization], 7)
			reads := r.series[counter{kind: host, id: "host"}]
			assert.Len(t, reads, 7)
			assert.Equal(t, point{began + 60, 1200}, reads[6])
		}
	}
}

func TestUnusableFiguresAreLeftOut(t *testing.T) {
	r := &Record{}
	partial := snapshotAt(0, 0.5, 1, 2, 3)
	partial.Partial = true
	r.Add(partial)
	assert.True(t, r.IsEmpty(), "energies of two collections")
	for i, u := range []float64{1.5, math.NaN(), -1, math.Inf(1)} {
		r.Add(snapshotAt(i, u, float64(i), 0, 0))
	}
	assert.Empty(t, r.series[utilization])
}

// collect records from a source that answers once a second, until it is empty.
func collect(answers func(second int) (*snapshot.Snapshot, error), meters bool) (*Record, time.Duration, error) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	start, r := time.Now(), &Record{}
	err := r.Collect(ctx, Source{
		Every: time.Second, Meters: meters, Progress: func(*snapshot.Snapshot) {},
		Read: func(context.Context) (*snapshot.Snapshot, error) { return answers(int(time.Since(start).Seconds())) },
	})
	return r, time.Since(start), err
}

func TestWhenARecordingEnds(t *testing.T) {
	figures := func(second int, busy float64) *snapshot.Snapshot {
		return snapshotAt(second, busy, float64(second), float64(second), float64(second))
	}
	modeled := func(second int) (*snapshot.Snapshot, error) {
		s := figures(second, 0.5)
		s.Zones = slices.DeleteFunc(s.Zones, isMeasured)
		return s, nil
	}
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		answers func(second int) (*snapshot.Snapshot, error)
		meters  bool
		want    error
		after   time.Duration
		busy    int
	}{
		"at its end":      {func(i int) (*snapshot.Snapshot, error) { return figures(i, 0.5), nil }, true, nil, 5 * time.Minute, 300},
		"no answer":       {func(int) (*snapshot.Snapshot, error) { return nil, refused }, false, refused, 0, 0},
		"no meter":        {modeled, true, ErrNoMeter, 0, 0},
		"no meter needed": {modeled, false, nil, 5 * time.Minute, 300},
		"silence": {func(i int) (*snapshot.Snapshot, error) {
			if i%2 == 1 || i > 20 {
				return nil, refused
			}
			return figures(i, 0.5), nil
		}, true, refused, 80 * time.Second, 11},
		"a read that hangs": {func(i int) (*snapshot.Snapshot, error) {
			if i >= 20 {
				time.Sleep(time.Hour)
			}
			return figures(i, 0.5), nil
		}, true, nil, 5*time.Minute + grace, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, took, err := collect(c.answers, c.meters)
				require.ErrorIs(t, err, c.want)
				assert.Equal(t, c.after, took)
				assert.InDelta(t, c.busy, len(r.series[utilization]), 1, "what was recorded is kept")
				time.Sleep(time.Hour) // until no read hangs
			})
		})
	}
}

// minutes returns a load that has another value every minute, and later by a lag.
func minutes(from float64, count int) (points []point) {
	for second := range count * 60 {
		points = append(points, point{from + float64(second), float64(second / 60 * 7 % 10)})
	}
	return points
}

func TestTheLagHasTheBestCorrelation(t *testing.T) {
	load := averages(minutes(newYear, 20))
	for _, lag := range []float64{-40, -0.7, 0, 3.3, 90} {
		_, got, correlation, err := align(load, averages(minutes(newYear+lag, 20)), 120)
		require.NoError(t, err)
		assert.InDelta(t, lag, got, 0.06)
		assert.Greater(t, correlation, 0.999)
	}
	_, _, _, err := align(load, averages(minutes(newYear+125, 20)), 30)
	require.Error(t, err)
	far := averages([]point{{newYear, 1}, {newYear + 1e8, 2}})
	_, _, _, err = align(far, far, 120)
	require.ErrorContains(t, err, "1157 days in common")
}

func TestTheMeanOverAGapIsNaN(t *testing.T) {
	s := samples([]point{{0, 10}, {1, 20}, {2, 30}, {100, 40}, {101, 50}})
	assert.InDelta(t, 15, s.mean(0.5, 1), 1e-9)
	assert.True(t, math.IsNaN(s.mean(0, 10)), "98 s without a reading are a gap")
	assert.InDelta(t, 40, sumOf(s, s).mean(0, 2), 1e-9)
	sum := sumOf(s, averages([]point{{1, 0}, {2, 7}, {3, 7}}))
	assert.InDelta(t, 32, sum.mean(1, 2), 1e-9)
	assert.True(t, math.IsNaN(sum.mean(0, 2)), "one of them begins later")
	s = powerOf([]point{{0, 0}, {10, 100}, {20, 200}, {30, 50}, {40, 150}, {140, 1150}, {150, 1250}, {160, 1350}})
	assert.InDelta(t, 10, s.mean(0, 20), 1e-9)
	assert.True(t, math.IsNaN(s.mean(20, 30)), "a restart")
	assert.InDelta(t, 10, s.mean(30, 40), 1e-9)
	assert.True(t, math.IsNaN(s.mean(50, 60)), "silence")
}

func TestWindowsHaveTheLengthOfTheCoarserSeriesAndNoGaps(t *testing.T) {
	load := averages([]point{{0, 0}, {10, 0.1}, {20, 0.2}, {30, 0.3}, {40, 0.4}, {400, 0.5}, {410, 0.6}})
	watts := powerOf([]point{{0, 0}, {10, 100}, {20, 300}, {30, 50}, {390, 60}, {400, 70}, {410, 570}})
	assert.Equal(t, []window{
		{From: 0, Seconds: 10, Load: 0.1, Watts: 10}, {From: 10, Seconds: 10, Load: 0.2, Watts: 20}, {From: 400, Seconds: 10, Load: 0.6, Watts: 50},
	}, windowsOn(coarsest(load, watts), load, watts))
	slow := powerOf([]point{{0, 0}, {30, 300}, {60, 900}})
	load = averages([]point{{0, 0}, {10, 0.1}, {20, 0.2}, {30, 0.3}, {40, 0.4}, {50, 0.5}, {60, 0.6}})
	windows := windowsOn(coarsest(load, slow), load, slow)
	require.Len(t, windows, 2)
	assert.InDelta(t, 0.5, windows[1].Load, 1e-9)
	assert.InDelta(t, 20, windows[1].Watts, 1e-9)
}

func FuzzReadRecord(f *testing.F) {
	var text strings.Builder
	require.NoError(f, fleet(1).record(600).Write(&text))
	f.Add(text.String())
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ReadRecord([]byte(text))
		if err != nil {
			return
		}
		for _, c := range r.sensors() {
			if fitted, err := r.Fit(FitOptions{Zone: c.id, Plateau: time.Minute, MaxLag: time.Minute}); err == nil {
				fitted.WriteText(io.Discard)
			}
		}
		result, err := r.Train(time.Minute, noon)
		if err != nil {
			return
		}
		result.WriteText(io.Discard)
		data, err := result.Model.Encode()
		if err == nil {
			_, err = trained.Parse(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
