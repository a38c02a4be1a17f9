// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const newYear = 1767225600 // 2026-01-01T00:00:00Z

func TestWallMetersWriteTheirTimesAndWattsInManyWays(t *testing.T) {
	for name, text := range map[string]string{
		"Unix seconds":        "1767225600,61.5\n1767225601,62\n",
		"Unix milliseconds":   "time_ms,watts\n1767225600000,61.5\n1767225601000,62\n",
		"RFC 3339":            "time,power\n2026-01-01T00:00:00Z,61.5\n2026-01-01T00:00:01Z,62\n",
		"other zone":          "2026-01-01T01:00:00+01:00,61.5\n2026-01-01T01:00:01+01:00,62\n",
		"local":               "2026-01-01 00:00:00,61.5\n2026-01-01 00:00:01,62\n",
		"semicolons, commas":  "Zeit;Leistung [W]\n01.01.2026 00:00:00;61,5\n01.01.2026 00:00:01;62,0\n",
		"tabs":                "2026/01/01 00:00:00\t61,5 W\n2026/01/01 00:00:01\t62 W\n",
		"two columns of time": "Date,Time,Volt,Power\n2026-01-01,00:00:00,230,61.5\n2026-01-01,00:00:01,229,62\n",
		"quotes":              "\"Timestamp\",\"Current A\",\"Active power (W)\"\n\"2026-01-01 00:00:00\",\"0.2\",\"61.5\"\n\"2026-01-01 00:00:01\",\"0.2\",\"62\"\n",
		"kilowatts":           "time;kW\n1767225600;0,0615\n1767225601;0,062\n",
		"comments, blanks":    "\ufeff# a plug\n\ntime,W\n\n1767225600,61.5\r\n1767225601,62\r\n",
		"number first":        "1,1767225600,61.5\n2,1767225601,62\n",
		"power first":         "power,timestamp\n61.5,1767225600\n62,1767225601\n",
	} {
		points, _, err := readWall([]byte(text), time.UTC)
		require.NoError(t, err, name)
		require.Len(t, points, 2, name)
		assert.InDelta(t, newYear, points[0].Time, 1e-6, name)
		assert.InDelta(t, newYear+1, points[1].Time, 1e-6, name)
		assert.InDelta(t, 61.5, points[0].Value, 1e-9, name)
		assert.InDelta(t, 62, points[1].Value, 1e-9, name)
	}
}

func TestMissingReadingsAreCounted(t *testing.T) {
	_, missing, err := readWall([]byte("1767225600,61\n1767225601,NaN\n1767225602,\n1767225603,-\n1767225604,60\n"), time.UTC)
	require.NoError(t, err)
	assert.Equal(t, 3, missing)
}

func TestAnInvalidReadingIsAnErrorWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"1767225600,61\n1767225601,high\n": "line 2", "1767225600,61\nnoon,62\n": "line 2", "1767225600,61\n1767225601\n": "line 2",
		"1767225601,61\n1767225600,61\n": "line 2: the time is before the previous one", "1767225600,61\n1767225601,-5\n": "line 2",
		"1767225600,61\n1767225601,Inf\n": "line 2", "1767225600,61\n12,62\n": "line 2", "": "no line with", "time,W\n": "no line with",
	} {
		_, _, err := readWall([]byte(text), time.UTC)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzReadWall(f *testing.F) {
	f.Add("time,W\n1767225600,61.5\n")
	f.Add("Zeit;kW\n01.01.2026 00:00:00;0,5\n")
	f.Add("a\tb\n2026-01-01\t00:00:00\t1\n")
	f.Fuzz(func(t *testing.T, text string) {
		points, _, err := readWall([]byte(text), time.UTC)
		if err != nil {
			return
		}
		for i, p := range points {
			if math.IsInf(p.Value, 0) || p.Value < 0 || i > 0 && p.Time < points[i-1].Time {
				t.Fatalf("%q: %v", text, points)
			}
		}
	})
}
