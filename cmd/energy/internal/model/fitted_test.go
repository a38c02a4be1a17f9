// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
)

var toWall = FitOptions{Wall: "wall.csv", Plateau: time.Minute, Settle: 30 * time.Second, MaxLag: 2 * time.Minute, Local: time.UTC}

// hour returns the record of an hour with levels of load and the file of the wall meter.
func hour(t *testing.T, wall curve) (*Record, string) {
	t.Helper()
	s := kavanagh(wall, 300, stairs...)
	return s.record(t, s.length), s.wall()
}

func fit(t *testing.T, r *Record, wall string, o FitOptions) (*Fitted, string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("wall.csv", []byte(wall), 0o600))
	f, err := r.Fit(o)
	if err != nil {
		return nil, "", err
	}
	var out strings.Builder
	f.WriteText(&out)
	return f, out.String(), nil
}

// The model of Kavanagh and Djemame was off by 0.17 % on average.
func TestACPUReadingAndABMCAreCalibratedToTheWallWithin02Percent(t *testing.T) {
	r, wall := hour(t, kavanaghs)
	o := toWall
	o.Settle = time.Minute
	f, text, err := fit(t, r, wall, o)
	require.NoError(t, err)
	c := f.curve.extended(1).simplified()
	for u := 0.0; u <= 1; u += 0.01 {
		assert.InEpsilon(t, kavanaghs.at(u), c.at(u), 0.002, "at a utilization of %.2f", u)
	}
	require.Len(t, f.meters, 2)
	bmc, cpu := f.meters[0], f.meters[1]
	for _, watts := range []float64{62, 100, 150, 189} {
		assert.InEpsilon(t, watts, bmc.offset+bmc.factor*bmcPower(watts), 0.002, "the BMC at %.0f W", watts)
		assert.InEpsilon(t, watts, cpu.offset+cpu.factor*cpuPower(watts), 0.002, "the CPU at %.0f W, without the cores", watts)
	}
	assert.InDelta(t, 7.3, f.lag, 0.3)
	assert.InDelta(t, 30, bmc.lag, 2, "half of the minute over which it averages")
	golden.Equal(t, "wall.golden", text)
}

func TestACurveIsPrintedToBePasted(t *testing.T) {
	over, zone := toWall, toWall
	over.Over = "intel-rapl:0,intel-rapl:0:0"
	zone.Wall, zone.Zone = "", "intel-rapl:0"
	for name, o := range map[string]FitOptions{"over.golden": over, "zone.golden": zone} {
		t.Run(name, func(t *testing.T) {
			r, wall := hour(t, kavanaghs)
			_, text, err := fit(t, r, wall, o)
			require.NoError(t, err)
			golden.Equal(t, name, text)
		})
	}
}

func TestAStraightMachineHasTwoPoints(t *testing.T) {
	r, wall := hour(t, curve{{0, 80}, {1, 200}})
	f, text, err := fit(t, r, wall, toWall)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(text, "- {utilization:"), "%v", f.curve)
}

func TestAPowerThatFallsIsFittedByALevelLine(t *testing.T) {
	r, wall := hour(t, curve{{0, 80}, {0.5, 150}, {0.8, 140}, {1, 200}})
	f, _, err := fit(t, r, wall, toWall)
	require.NoError(t, err)
	for i := 1; i < len(f.curve); i++ {
		assert.GreaterOrEqual(t, f.curve[i].Watts, f.curve[i-1].Watts)
	}
}

var readings = regexp.MustCompile(`;[^\n]*`)

func TestWhyNothingCanBeFitted(t *testing.T) {
	plateaus := func(seconds int, levels ...float64) *simulatedPower { return kavanagh(kavanaghs, seconds, levels...) }
	noZone := toWall
	noZone.Wall, noZone.Zone = "", "psys"
	for name, c := range map[string]struct {
		machine *simulatedPower
		clock   float64
		wall    func(string) string
		options FitOptions
		want    string
	}{
		"one level":       {machine: plateaus(300, 0.4, 0.41, 0.4, 0.42), want: "the load varied too little: from "},
		"little":          {machine: plateaus(300, 0.4, 0.5, 0.45, 0.55, 0.4), want: "the load varied too little: from 40 % to 55 %"},
		"two levels":      {machine: plateaus(300, 0, 1, 0, 1), want: "too few different loads: 2"},
		"short plateaus":  {machine: plateaus(80, stairs...), want: "never steady for long enough"},
		"another day":     {clock: 86_400, want: "no time in common: they are "},
		"wrong clock":     {clock: 200, want: "wall.csv: "},
		"another machine": {wall: shuffled, want: "does not follow the load"},
		"only NaN":        {wall: func(w string) string { return readings.ReplaceAllString(w, ";NaN") }, want: "no reading of a power"},
		"a word":          {wall: func(w string) string { return strings.Replace(w, ";118", ";high", 1) }, want: "is not a power in watts"},
		"gaps everywhere": {wall: gaps, want: "all left out: gaps"},
		"no such zone":    {options: noZone, want: `no zone "psys"; it has host, intel-rapl:0, `},
		"no wall meter":   {options: FitOptions{Wall: filepath.Join("no", "file")}, want: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.machine
			if s == nil {
				s = plateaus(300, stairs...)
			}
			if c.clock != 0 {
				s.clock = c.clock
			}
			r, o := s.record(t, s.length), c.options
			wall := s.wall()
			if c.wall != nil {
				wall = c.wall(wall)
			}
			if o == (FitOptions{}) {
				o = toWall
			}
			_, _, err := fit(t, r, wall, o)
			require.ErrorContains(t, err, c.want)
		})
	}
	r, wall := hour(t, kavanaghs)
	delete(r.series, utilization)
	_, _, err := fit(t, r, wall, toWall)
	require.ErrorIs(t, err, errNoUtilization)
}

// shuffled gives the readings to other times.
func shuffled(wall string) string {
	lines := strings.Split(strings.TrimSpace(wall), "\n")
	values := rand.New(rand.NewPCG(3, 4)).Perm(len(lines) - 1)
	mixed := lines[:1:1]
	for i, from := range values {
		at, _, _ := strings.Cut(lines[i+1], ";")
		_, value, _ := strings.Cut(lines[from+1], ";")
		mixed = append(mixed, at+";"+value)
	}
	return strings.Join(mixed, "\n")
}

// gaps leaves out 15 of every 60 seconds.
func gaps(wall string) string {
	var kept []string
	for i, line := range strings.Split(strings.TrimSpace(wall), "\n") {
		if i%60 >= 15 || i == 0 {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

func TestAGapCostsThePlateauThatItIsIn(t *testing.T) {
	r, wall := hour(t, kavanaghs)
	lines := strings.Split(wall, "\n")
	for i := 400; i < 450; i++ { // in the second plateau
		lines[i] = readings.ReplaceAllString(lines[i], ";NaN")
	}
	f, text, err := fit(t, r, strings.Join(lines, "\n"), toWall)
	require.NoError(t, err)
	assert.Equal(t, len(stairs)-1, f.plateaus)
	assert.Contains(t, text, "50 readings missing")
	assert.Contains(t, text, "1 left out")
}

func TestTheSectionOfAMeterFollowsFromItsZone(t *testing.T) {
	for id, want := range map[string]string{
		"host": host, "ipmi0": "ipmi", "ipmi": "ipmi", "redfish:4c4c4544-0042": "redfish", "http:feed-a": "http/feed-a",
		"ACPI000D:00:power1": "hwmon", "0-0040:VDD_IN": "hwmon", "0000:03:00.0:PPT": "", "intel-rapl:1": "",
		"intel-rapl-mmio:0": "", "power:energy-psys:0": "", "pm_counters:energy": "", "model:0": "", "CPUs and memory": "",
	} {
		assert.Equal(t, want, sectionOf(id), id)
	}
}

func TestALagIsASettingOfTheReceiver(t *testing.T) {
	for lag, want := range map[float64]string{-3: "", 0.4: "", 0.5: "0.5s", 29.54: "29.5s", 12: "12s", 150: "120s"} {
		assert.Equal(t, want, lagSetting(lag))
	}
}

// The receiver would reject a configuration with such settings.
func TestACorrectionThatTheReceiverRejectsIsNotPrinted(t *testing.T) {
	for want, m := range map[string]comparison{
		"\nipmi0 cannot be corrected: the factor 0.0500 is not between 0.1 and 10.\n":                                                {factor: 0.05},
		"\nipmi0 cannot be corrected: the factor -1.0000 is not between 0.1 and 10.\n":                                               {factor: -1},
		"\nipmi0 cannot be corrected: the offset -10500.0 W is not between -10000 and 10000 W.\n":                                    {factor: 1, offset: -10500},
		"\nThese lines correct the meters:\n\nreceivers:\n  energy:\n    meters:\n      ipmi: {factor: 10.0000, offset: -10000.0}\n": {factor: 10, offset: -10000},
	} {
		m.name = "ipmi0"
		var out strings.Builder
		(&Fitted{meters: []comparison{m}}).writeCorrections(&out)
		assert.Equal(t, want, out.String())
	}
}
