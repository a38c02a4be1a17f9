// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func wholeReport() *Report {
	return &Report{
		Epoch: "QIRM2CJDXJ", Generation: 4, Time: time.Unix(0, 1767323045000000001),
		Zones: []Zone{{Kind: power.Package, Energy: 52310000}, {Kind: power.DRAM, Energy: math.MaxUint64}},
	}
}

const wholeDocument = `{"version":1,"epoch":"QIRM2CJDXJ","generation":"4","time_unix_nano":"1767323045000000001",` +
	`"zones":[{"zone":"package","energy_uj":"52310000"},{"zone":"dram","energy_uj":"18446744073709551615"}]}`

func TestADocumentKeepsAReport(t *testing.T) {
	text, err := marshal(wholeReport())
	require.NoError(t, err)
	assert.JSONEq(t, wholeDocument, string(text))
	r, err := unmarshal(text)
	require.NoError(t, err)
	assert.Equal(t, wholeReport(), r)
}

func TestADocumentHasRoomForEveryZone(t *testing.T) {
	r := &Report{ID: strings.Repeat("x", 256), Epoch: strings.Repeat("x", maxEpoch), Generation: math.MaxUint64, Time: time.Unix(0, math.MaxInt64)}
	for _, k := range treeKinds[:len(treeKinds)-1] { // platform has the place of psys
		r.Zones = append(r.Zones, Zone{Kind: k, Energy: math.MaxUint64})
	}
	text, err := marshal(r)
	require.NoError(t, err)
	assert.Less(t, len(text), maxDocument/4)
	got, err := unmarshal(text)
	require.NoError(t, err)
	assert.Equal(t, r, got)
}

func TestADocumentMayHaveWhatALaterVersionAdds(t *testing.T) {
	for _, text := range []string{
		strings.Replace(wholeDocument, `"epoch"`, `"carbon":{"g":[1]},"epoch"`, 1),
		strings.Replace(wholeDocument, `"zones":[`, `"zones":[{"zone":"npu","energy_uj":"1"},{"zone":"npu","energy_uj":"2"},`, 1),
		" " + wholeDocument + "\n",
	} {
		r, err := unmarshal([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, wholeReport(), r, text)
	}
}

func TestWhatIsNotADocumentIsRefused(t *testing.T) {
	change := func(from, to string) string {
		require.Contains(t, wholeDocument, from)
		return strings.Replace(wholeDocument, from, to, 1)
	}
	const none = "not an energy report"
	for text, want := range map[string]string{
		"":                                     none,
		"null":                                 "the report has version 0, not 1",
		"[]":                                   none,
		wholeDocument + "{}":                   none,
		`{"version":2,"x":[]}`:                 "the report has version 2, not 1",
		change(`"version":1`, `"version":"1"`): none,
		change("QIRM2CJDXJ", ""):               none,
		change("QIRM2CJDXJ", strings.Repeat("x", 65)): none,
		change(`"4"`, `"-4"`):                         none,
		change(`"4"`, `"18446744073709551616"`):       none,
		change("1767323045000000001", "-1"):           none,
		change(`"52310000"`, `"5.2"`):                 none,
		change(`"52310000"`, `"-1"`):                  none,
		change(`"zone":"dram"`, `"zone":"package"`):   "the report has two zones of one kind",
		change(`"zones":[`, `"zones":[{"zone":"psys","energy_uj":"1"},{"zone":"platform","energy_uj":"1"},`): "the report has two zones of one kind",
		wholeDocument + strings.Repeat(" ", maxDocument):                                                     none,
		strings.Repeat("[", maxDocument):                                                                     none,
	} {
		_, err := unmarshal([]byte(text))
		assert.EqualError(t, err, want, text)
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(wholeDocument))
	f.Add([]byte(`{"version":1,"epoch":"a","zones":null}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := unmarshal(text)
		if err != nil {
			return
		}
		places := map[string]units.Energy{}
		for _, z := range r.Zones {
			id, _, _ := Place(z.Kind)
			assert.NotContains(t, places, id)
			assert.True(t, IsExported(z.Kind), z.Kind)
			places[id] = z.Energy
		}
		again, err := marshal(r)
		require.NoError(t, err)
		back, err := unmarshal(again)
		require.NoError(t, err)
		assert.Equal(t, r, back)
	})
}
