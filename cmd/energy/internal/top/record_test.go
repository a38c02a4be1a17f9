// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// aRecording returns the JSON documents of frames, one per line.
func aRecording(t *testing.T, frames ...*Frame) string {
	t.Helper()
	var b strings.Builder
	for _, f := range frames {
		require.NoError(t, JSON(&b, f, []string{"a note"}, ""))
	}
	return b.String()
}

func TestARecordingIsReadAsItWasWritten(t *testing.T) {
	f := aFrame()
	f.Period, f.Wrong, f.Zones[1].Uncertainty = 1_999_999_999, "wrong", 0.23
	f.Tables[Processes][0].Zones = []units.Energy{277_999_999, 1}
	f.Tables[GPUs] = []Row{{Key: "g", Power: 12.5, GPU: 12.5, Busy: 0.75, Energy: 8_999_999_999_999_999, CPUTime: -1, Text: [numTexts]string{ID: "GPU-0"}}}
	second := &Frame{At: f.At.Add(2 * time.Second), Active: math.NaN(), Zones: []Zone{{Active: math.NaN()}}}
	want := aRecording(t, f, second)
	var got bytes.Buffer
	require.NoError(t, ReadRecording(strings.NewReader(want), func(f *Frame, notes []string) error { return JSON(&got, f, notes, "") }))
	assert.Equal(t, want, got.String())
}

func TestATruncatedLastDocumentIsIgnoredAndOtherErrorsNameTheirDocument(t *testing.T) {
	good := aRecording(t, aFrame())
	read := func(text string) (n int, err error) {
		err = ReadRecording(strings.NewReader(text), func(*Frame, []string) error { n++; return nil })
		return n, err
	}
	for _, tt := range []struct {
		text string
		n    int
		err  string
	}{
		{"", 0, "document 1 is not output of energy top --json: EOF"},
		{good + good, 2, ""},
		{good + good[:len(good)/2], 1, ""},
		{good + "\n" + good, 2, ""},
		{good + "# a page\n", 1, "document 2 is not output of energy top --json: invalid character"},
		{good[:len(good)/2], 0, "document 1 is not output of energy top --json: unexpected EOF"},
		{good + `{"schema": 2}` + "\n" + good, 1, "document 2 is not output of energy top --json: the schema is 2, not 1"},
		{strings.Replace(good, `"joules":3292`, `"joules":-1`, 1) + good, 0, "document 1 is not output of energy top --json: an energy is"},
		{strings.Replace(good, `"joules":3292`, `"joules":1e300`, 1) + good, 0, "an energy is missing, negative or too large"},
		{strings.Replace(good, `"period_seconds":null`, `"period_seconds":1e300`, 1) + good, 0, "a time is negative or too large"},
		{good + `"` + strings.Repeat("x", maxDocument+1<<20), 1, "it has more than 67108864 bytes"},
	} {
		n, err := read(tt.text)
		assert.Equal(t, tt.n, n)
		if tt.err == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, tt.err)
		}
	}
	stop := errors.New("stop")
	require.ErrorIs(t, ReadRecording(strings.NewReader(good), func(*Frame, []string) error { return stop }), stop)
}
