// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// write replaces a file by one that was written an hour ago, and some minutes.
func write(t testing.TB, path, text string, minutes int) time.Time {
	t.Helper()
	written := time.Now().Add(-time.Hour + time.Duration(minutes)*time.Minute).Truncate(time.Second)
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path+".new", written, written))
	require.NoError(t, os.Rename(path+".new", path))
	return written
}

func parse(text string) ([]signal.Period, error) {
	return new(file).parse([]byte(text), time.Unix(1000, 0), time.Unix(2000, 0))
}

func TestPeriodsAreReadFromTablesAndLists(t *testing.T) {
	hour := func(n int) time.Time { return time.Date(2026, 3, 29, n, 0, 0, 0, time.UTC) }
	want := []signal.Period{
		{From: hour(0), Until: hour(1), Rate: 87_210_000},
		{From: hour(1), Until: hour(2), Rate: 12_500_000, Estimated: true},
		{From: hour(2), Until: hour(4), Rate: 0},
	}
	for _, text := range []string{
		"from,until,value,estimated\n2026-03-29T01:00:00+01:00,2026-03-29T03:00:00+02:00,87.21,\n" +
			"2026-03-29T01:00:00Z,2026-03-29T02:00:00Z,12.50,true\n2026-03-29T02:00Z,2026-03-29T04:00Z,0,false\n",
		"\ufeff# forecast\r\nvalue, from, until, estimated\r\n87.21, 2026-03-29T00:00Z,, 0\r\n\r\n12.5, 2026-03-29T01:00Z,, 1\r\n0, 2026-03-29T02:00Z, 2026-03-29T04:00Z, f\r\n",
		`[{"from": "2026-03-29T00:00:00Z", "value": 87.21},
		  {"from": "2026-03-29T01:00:00Z", "value": "12.5", "estimated": true},
		  {"from": "2026-03-29T02:00:00Z", "until": "2026-03-29T04:00:00Z", "value": 0}]`,
	} {
		got, err := parse(text)
		require.NoError(t, err, text)
		require.Len(t, got, len(want))
		for i := range want {
			got[i].From, got[i].Until = got[i].From.UTC(), got[i].Until.UTC()
			assert.Equal(t, want[i], got[i])
		}
	}
}

func TestANumberHoldsFromWhenItWasWritten(t *testing.T) {
	got, err := parse("56.5\n")
	require.NoError(t, err)
	assert.Equal(t, []signal.Period{{From: time.Unix(1000, 0), Until: forever, Rate: 56_500_000}}, got)
	f := &file{maxAge: time.Minute}
	got, err = f.parse([]byte("56.5"), time.Unix(1000, 0), time.Unix(2000, 0))
	require.NoError(t, err)
	assert.Equal(t, []signal.Period{{From: time.Unix(1000, 0), Until: time.Unix(1060, 0), Rate: 56_500_000}}, got)
	got, err = f.parse([]byte("1"), time.Unix(3000, 0), time.Unix(2000, 0))
	require.NoError(t, err)
	assert.Equal(t, time.Unix(2000, 0), got[0].From, "the file server's clock is ahead")
}

func TestBadFilesAreErrors(t *testing.T) {
	const from = "2026-03-29T00:00:00Z"
	for text, want := range map[string]string{
		"":                            "neither a number nor CSV nor JSON",
		"-5":                          "the value is negative",
		"4000":                        "the value is impossible",
		"<html></html>":               `column "<html></html>" is not one of from, until, value, estimated`,
		"from,until\n":                `there is no column "value"`,
		"from,value,value\n":          `column "value" is not one of`,
		"from,value,end\n":            `column "end" is not one of`,
		"from,value\n" + from + ",56": "the last period has no until",
		"from,value\n" + from:         "wrong number of fields",
		"from,value\n29.3.2026,56":    "line 2: from: must be a time such as",
		"from,until,value\n" + from + ",later,56":             "line 2: until: must be a time such as",
		"from,value\n# x\n2026-03-29T00:00:00,56":             "line 3: from: must be a time such as",
		"from,value\n" + from + ",none":                       "line 2: value: the value is not a number",
		"from,value,estimated\n" + from + ",5,maybe":          "line 2: estimated: must be true or false",
		"from,value,currency\n" + from + ",5,EUR":             `column "currency" is not one of`,
		`[{"from": "` + from + `", "value": -1}]`:             "period 0: value: the value is negative",
		`[{"from": "` + from + `"}]`:                          "period 0: value: there is no value",
		`[{"from": "` + from + `", "value": 1, "unit": "g"}]`: `unknown field "unit"`,
		`[{"from": "` + from + `", "value": 1}] and more`:     "neither a number nor CSV nor JSON",
		`[{"from": "` + from + `", "value": 1}`:               "neither a number nor CSV nor JSON",
	} {
		_, err := parse(text)
		assert.ErrorContains(t, err, want, text)
	}
	_, err := parse("from,value\n" + strings.Repeat(from+",1\n", signal.MaxPeriods+1))
	assert.ErrorIs(t, err, signal.ErrMany)
}

func TestAFileIsReadAgainWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intensity")
	f := open(t, &File{Path: path}).Provider
	_, err := f.Ask(t.Context())
	assert.ErrorIs(t, err, os.ErrNotExist)
	for i, value := range []string{"56", "57", "58"} {
		written := write(t, path, value, i)
		answer, err := f.Ask(t.Context())
		require.NoError(t, err)
		require.Len(t, answer.Periods, 1)
		assert.Equal(t, value+"000000", fmt.Sprint(answer.Periods[0].Rate))
		assert.True(t, written.Equal(answer.Periods[0].From))
		for range 3 {
			answer, err = f.Ask(t.Context())
			require.NoError(t, err)
			assert.True(t, answer.Unchanged)
		}
	}
	write(t, path, "nonsense", 3)
	for range 2 {
		_, err = f.Ask(t.Context())
		assert.EqualError(t, err, path+`: the file is neither a number nor CSV nor JSON: column "nonsense" is not one of from, until, value, estimated, or occurs twice`)
	}
}

func TestAFileThatWasJustWrittenIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intensity")
	f := open(t, &File{Path: path}).Provider
	require.NoError(t, os.WriteFile(path, []byte("56"), 0o600))
	for range 2 {
		answer, err := f.Ask(t.Context())
		require.NoError(t, err)
		assert.False(t, answer.Unchanged, "another number of the same length may follow in the same moment")
	}
}

func TestAFileThatIsTooLargeIsNotRead(t *testing.T) {
	huge := filepath.Join(t.TempDir(), "huge")
	require.NoError(t, os.WriteFile(huge, nil, 0o600))
	require.NoError(t, os.Truncate(huge, 1<<40))
	_, err := ask(t, &File{Path: huge})
	assert.EqualError(t, err, "read "+huge+": the file is too large: the limit is 4194304 bytes")
}

func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"56", "from,until,value\n2026-03-29T00:00Z,2026-03-29T01:00Z,5", `[{"from":"2026-03-29T00:00Z","until":"2026-03-29T01:00Z","value":5}]`,
		"from,value\n\"2026", "# x", "[", "\ufeff1e2",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		periods, err := parse(string(text))
		if err != nil {
			return
		}
		for _, p := range periods {
			if p.Rate < 0 || p.Rate > signal.MaxRate || p.Until.IsZero() {
				t.Fatalf("%q is read as %v", text, p)
			}
		}
		_ = signal.NewTimeline(time.Hour).Put(time.Unix(1_780_000_000, 0), periods)
	})
}
