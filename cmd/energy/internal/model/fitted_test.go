// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

var toWall = FitOptions{Wall: "wall.csv", Plateau: time.Minute, Settle: 30 * time.Second, MaxLag: 2 * time.Minute}

// hour returns the record of an hour with levels of load and the file of the wall meter.
func hour(wall model.Curve) (*Record, string) {
	s := kavanagh(wall, 300, stairs...)
	return s.record(s.length), s.wall()
}

func fitTo(t *testing.T, r *Record, wall string, o FitOptions) (*Fitted, string, error) {
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
	r, wall := hour(kavanaghs)
	o := toWall
	o.Settle = time.Minute
	f, text, err := fitTo(t, r, wall, o)
	require.NoError(t, err)
	c := simplified(extended(f.curve))
	mean := 0.0
	for u := 0.0; u <= 1; u += 0.01 {
		assert.InEpsilon(t, kavanaghs.Watts(u), c.Watts(u), 0.002, "at a utilization of %.2f", u)
		mean += (c.Watts(u)/kavanaghs.Watts(u) - 1) / 101
	}
	t.Attr("calibration", fmt.Sprintf("%.2f %%", 100*mean))
	require.Len(t, f.meters, 2)
	bmc, cpu := f.meters[0], f.meters[1]
	for _, watts := range []float64{62, 100, 150, 189} {
		assert.InEpsilon(t, watts, bmc.offset+bmc.factor*bmcPower(watts), 0.002, "the BMC at %.0f W", watts)
		assert.InEpsilon(t, watts, cpu.offset+cpu.factor*cpuPower(watts), 0.002, "the CPU at %.0f W, without the cores", watts)
	}
	assert.InDelta(t, 7.3, f.lag, 0.3)
	assert.InDelta(t, 30, bmc.lag, 2, "half of the minute over which it averages")
	t.Attr("averaging", fmt.Sprintf("%.0f s", bmc.lag))
	golden.Equal(t, "wall.golden", text)
}

func TestACurveIsPrintedToBePasted(t *testing.T) {
	over, zone := toWall, toWall
	over.Over = "intel-rapl:0,intel-rapl:0:0"
	zone.Wall, zone.Zone = "", "intel-rapl:0"
	for name, o := range map[string]FitOptions{"over.golden": over, "zone.golden": zone} {
		t.Run(name, func(t *testing.T) {
			r, wall := hour(kavanaghs)
			_, text, err := fitTo(t, r, wall, o)
			require.NoError(t, err)
			golden.Equal(t, name, text)
		})
	}
}

func TestAPowerThatFallsIsFittedByALevelLine(t *testing.T) {
	r, wall := hour(curve(0, 80, 0.5, 150, 0.8, 140, 1, 200))
	f, _, err := fitTo(t, r, wall, toWall)
	require.NoError(t, err)
	for i := 1; i < len(f.curve); i++ {
		assert.GreaterOrEqual(t, f.curve[i].Watts, f.curve[i-1].Watts)
	}
}

var readings = regexp.MustCompile(`;[^\n]*`)

func TestErrorsOfAFit(t *testing.T) {
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
		"little":          {machine: plateaus(300, 0.4, 0.5, 0.45, 0.55, 0.4), want: "the load varied too little: from 40 % to 55 %"},
		"two levels":      {machine: plateaus(300, 0, 1, 0, 1), want: "too few different loads: 2"},
		"short plateaus":  {machine: plateaus(80, stairs...), want: "never steady for long enough"},
		"another day":     {clock: 86_400, want: "no time in common: they are "},
		"wrong clock":     {clock: 200, want: "wall.csv: "},
		"another machine": {wall: another, want: "does not follow the load"},
		"no reading":      {wall: func(string) string { return "" }, want: "wall.csv: no line with a time and a power"},
		"gaps everywhere": {wall: gaps, want: "unsteady power: 12"},
		"no such zone":    {options: noZone, want: `no sensors ["psys"]; it has host, intel-rapl:0, `},
		"no wall meter":   {options: FitOptions{Wall: filepath.Join("no", "file")}, want: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := c.machine, c.options
			if s == nil {
				s = plateaus(300, stairs...)
			}
			if o == (FitOptions{}) {
				o = toWall
			}
			s.clock += c.clock
			r := s.record(s.length)
			wall := s.wall()
			if c.wall != nil {
				wall = c.wall(wall)
			}
			_, _, err := fitTo(t, r, wall, o)
			require.ErrorContains(t, err, c.want)
		})
	}
	r, wall := hour(kavanaghs)
	delete(r.series, utilization)
	_, _, err := fitTo(t, r, wall, toWall)
	require.ErrorIs(t, err, errNoUtilization)
}

// another returns the readings of a machine with another load.
func another(string) string {
	other := kavanagh(kavanaghs, 300, 1, 0, 1, 0, 0, 0.9, 0.2, 0.3, 0, 0.8, 0.1, 0.9)
	other.snapshots(other.length)
	return other.wall()
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
	r, wall := hour(kavanaghs)
	lines := strings.Split(wall, "\n")
	for i := 400; i < 450; i++ { // in the second plateau
		lines[i] = readings.ReplaceAllString(lines[i], ";NaN")
	}
	f, text, err := fitTo(t, r, strings.Join(lines, "\n"), toWall)
	require.NoError(t, err)
	assert.Equal(t, len(stairs)-1, f.plateaus)
	assert.Contains(t, text, "50 readings missing")
	assert.Contains(t, text, "1 more excluded")
}

func TestTheIDOfAMeterCannotAddLines(t *testing.T) {
	r, wall := hour(kavanaghs)
	r.series[counter{kind: host, id: "http:a\n\x1b[2Jb"}] = r.series[counter{kind: host, id: host}]
	_, text, err := fitTo(t, r, wall, toWall)
	require.NoError(t, err)
	assert.NotContains(t, text, "\x1b")
	assert.Regexp(t, `\n      http/a .*b: \{lag: `, text)
}

func TestALagIsASettingOfTheReceiver(t *testing.T) {
	for lag, want := range map[float64]string{-3: "", 0.4: "", 0.5: "0.5s", 29.54: "29.5s", 12: "12s", 150: "120s"} {
		assert.Equal(t, want, lagSetting(lag))
	}
}

// The receiver would reject a configuration with such settings.
func TestACorrectionThatTheReceiverRejectsIsNotPrinted(t *testing.T) {
	for want, m := range map[string]comparison{
		"the factor 0.0500 is not between 0.1 and 10":             {factor: 0.05},
		"the factor -1.0000 is not between 0.1 and 10":            {factor: -1},
		"the offset -10500.0 W is not between -10000 and 10000 W": {factor: 1, offset: -10500},
		"      ipmi: {factor: 10.0000, offset: -10000.0}\n":       {factor: 10, offset: -10000},
	} {
		m.name = "ipmi0"
		var out strings.Builder
		(&Fitted{meters: []comparison{m}}).writeMeters(&out)
		assert.Contains(t, out.String(), want)
		assert.NotEqual(t, strings.Contains(out.String(), "cannot be corrected"), strings.Contains(out.String(), "ipmi: {"))
	}
}
