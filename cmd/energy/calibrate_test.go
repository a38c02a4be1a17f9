// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/calibration"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
)

// server is a simulated machine whose true power is known: the case of Kavanagh and Djemame, whose
// server had a wall meter, a BMC and RAPL.
type server struct {
	truth   calibration.Curve // power at the wall over utilization
	loads   []float64         // of the plateaus
	plateau float64           // seconds
	clock   float64           // by which the wall meter's clock is wrong, in seconds
	noise   float64           // of the wall meter, in watts
}

const began = 1.7e9 // seconds of Unix

var readings = regexp.MustCompile(`;[^\n]*`)

func kavanagh() *server {
	return &server{
		truth: calibration.Curve{{X: 0, Y: 62}, {X: 0.3, Y: 118}, {X: 0.7, Y: 151}, {X: 1, Y: 189}},
		loads: []float64{0, 0.5, 0.1, 0.7, 0.2, 0.9, 0.3, 1, 0.6, 0.4, 0.8, 0.05}, plateau: 300, clock: 7.3, noise: 0.5,
	}
}

// The machine's meters by the true power at the wall. The BMC shows the supply's output, too little
// by a factor and an offset, as the average of a minute, and in whole watts. RAPL has the CPUs and
// the memory only.
func cpuPower(wall float64) float64 { return (wall - 41) / 1.18 }
func bmcPower(wall float64) float64 { return (wall - 3.15) / 1.05 }

// utilization returns the load at a time since the beginning.
func (s *server) utilization(at float64) float64 {
	i := int(at / s.plateau)
	return s.loads[max(min(i, len(s.loads)-1), 0)]
}

// run returns what the collector reports each 5 s and what the wall meter records each second.
func (s *server) run() (*record, string) {
	random := rand.New(rand.NewPCG(1, 2))
	r := newRecord()
	var wall strings.Builder
	wall.WriteString("Time;Power (W)\n")
	length := int(s.plateau) * len(s.loads)
	var cpu, bmc, busy float64
	var lately []float64
	for second := range length {
		at := float64(second)
		u := s.utilization(at)
		if u > 0 && u < 1 {
			u = min(max(u+0.004*random.NormFloat64(), 0), 1)
		}
		w := s.truth.At(u)
		if lately = append(lately, w); len(lately) > 60 {
			lately = lately[1:]
		}
		mean := 0.0
		for _, v := range lately {
			mean += v / float64(len(lately))
		}
		cpu, bmc, busy = cpu+cpuPower(w), bmc+math.Round(bmcPower(mean)), busy+u
		fmt.Fprintf(&wall, "%s;%s\n", time.UnixMilli(int64((began+at+0.5+s.clock)*1e3)).UTC().Format(time.RFC3339Nano),
			strings.Replace(fmt.Sprintf("%.2f", w+s.noise*random.NormFloat64()), ".", ",", 1))
		if now := began + at + 1; second%5 == 4 {
			r.utilization = append(r.utilization, calibration.Point{Time: now, Value: busy / 5})
			r.zone("intel-rapl:0", "cpu", false).add(calibration.Point{Time: now, Value: 0.9 * cpu})
			r.zone("intel-rapl:0:0", "memory", false).add(calibration.Point{Time: now, Value: 0.1 * cpu})
			r.zone("intel-rapl:0:1", "cpu", true).add(calibration.Point{Time: now, Value: 0.6 * cpu})
			r.zone("host", "host", false).add(calibration.Point{Time: now, Value: bmc})
			busy = 0
		}
	}
	return r, wall.String()
}

// calibrated writes what the machine's run left, and fits it.
func (s *server) calibrated(t *testing.T, args ...string) (*fitted, string, error) {
	t.Helper()
	r, wall := s.run()
	return fitFiles(t, r, wall, args...)
}

func fitFiles(t *testing.T, r *record, wall string, args ...string) (*fitted, string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	var text bytes.Buffer
	require.NoError(t, r.write(&text))
	require.NoError(t, os.WriteFile("record.csv", text.Bytes(), 0o600))
	require.NoError(t, os.WriteFile("wall.csv", []byte(wall), 0o600))
	o, err := parsed[calibrateOptions](append([]string{"--from", "record.csv"}, args...))
	require.NoError(t, err)
	o.local = time.UTC
	read, err := o.obtain(t.Context())
	if err != nil {
		return nil, "", err
	}
	f, err := o.fit(read)
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	f.render(&out)
	return f, out.String(), nil
}

// Kavanagh and Djemame's own model was off by 0.17 % on average.
func TestACPUReadingAndABMCAreCalibratedToTheWallWithin02Percent(t *testing.T) {
	s := kavanagh()
	f, _, err := s.calibrated(t, "--wall", "wall.csv", "--settle", "60s")
	require.NoError(t, err)
	points, _, _ := wholeCurve(f.curve)
	for u := 0.0; u <= 1; u += 0.01 {
		assert.InEpsilon(t, s.truth.At(u), points.At(u), 0.002, "at a utilization of %.2f", u)
	}
	require.Len(t, f.meters, 2)
	bmc, cpu := f.meters[0], f.meters[1]
	require.NoError(t, bmc.err)
	require.NoError(t, cpu.err)
	for _, wall := range []float64{62, 100, 150, 189} {
		assert.InEpsilon(t, wall, bmc.line.Offset+bmc.line.Factor*bmcPower(wall), 0.002, "the BMC at %.0f W", wall)
		assert.InEpsilon(t, wall, cpu.line.Offset+cpu.line.Factor*cpuPower(wall), 0.002, "the CPU at %.0f W", wall)
	}
	assert.InDelta(t, s.clock, f.lag, 0.3)
	assert.InDelta(t, 30, bmc.lag, 2, "half of the minute that it averages over")
	med, p90 := calibration.MedianAndP90(f.errs)
	assert.Less(t, med, 0.002)
	assert.Less(t, p90, 0.02, "where a level at a bend is left out")
}

func TestCalibrationIsPrintedToBePasted(t *testing.T) {
	for name, args := range map[string][]string{
		"calibrate":      {"--wall", "wall.csv", "--settle", "60s"},
		"calibrate_over": {"--wall", "wall.csv", "--settle", "60s", "--over", "intel-rapl:0,intel-rapl:0:0"},
		"calibrate_zone": {"--zone", "intel-rapl:0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, got, err := kavanagh().calibrated(t, args...)
			require.NoError(t, err)
			golden.Equal(t, name+".golden", got)
		})
	}
}

func TestAStraightMachineHasTwoPoints(t *testing.T) {
	s := kavanagh()
	s.truth = calibration.Curve{{X: 0, Y: 80}, {X: 1, Y: 200}}
	f, _, err := s.calibrated(t, "--wall", "wall.csv")
	require.NoError(t, err)
	assert.Len(t, f.curve, 2)
}

func TestAPowerThatFallsIsFittedByALevelLine(t *testing.T) {
	s := kavanagh()
	s.truth = calibration.Curve{{X: 0, Y: 80}, {X: 0.5, Y: 150}, {X: 0.8, Y: 140}, {X: 1, Y: 200}}
	f, _, err := s.calibrated(t, "--wall", "wall.csv")
	require.NoError(t, err)
	for i := 1; i < len(f.curve); i++ {
		assert.GreaterOrEqual(t, f.curve[i].Y, f.curve[i-1].Y)
	}
}

func TestWhyNothingCanBeFitted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *server)
		wall   func(string) string
		args   []string
		want   string
	}{
		"one level":       {change: func(s *server) { s.loads = []float64{0.4, 0.41, 0.4, 0.42} }, want: "the load varied too little: from 0.4 to 0.42"},
		"little":          {change: func(s *server) { s.loads = []float64{0.4, 0.5, 0.45, 0.55, 0.4} }, want: "the load varied too little: from 0.4 to 0.55"},
		"two levels":      {change: func(s *server) { s.loads = []float64{0, 1, 0, 1} }, want: "fewer than three different levels of load: 2"},
		"short plateaus":  {change: func(s *server) { s.plateau = 80 }, want: "never steady for long enough"},
		"another day":     {change: func(s *server) { s.clock = 86_400 }, want: "no time in common: they are 82800 s apart"},
		"wrong clock":     {change: func(s *server) { s.clock = 200 }, want: "wall.csv: "},
		"another machine": {wall: shuffled, want: "does not follow the load"},
		"only NaN":        {wall: func(w string) string { return readings.ReplaceAllString(w, ";NaN") }, want: "no reading of a power"},
		"a word":          {wall: func(w string) string { return strings.Replace(w, ";118", ";high", 1) }, want: "is not a power in watts"},
		"empty":           {wall: func(string) string { return "" }, want: "no reading of a power"},
		"gaps everywhere": {wall: gaps, want: "all left out because of gaps"},
		"no such zone":    {args: []string{"--zone", "psys"}, want: `no zone "psys"; it has host, intel-rapl:0, `},
	} {
		t.Run(name, func(t *testing.T) {
			s := kavanagh()
			if c.change != nil {
				c.change(s)
			}
			r, wall := s.run()
			if c.wall != nil {
				wall = c.wall(wall)
			}
			if c.args == nil {
				c.args = []string{"--wall", "wall.csv"}
			}
			_, _, err := fitFiles(t, r, wall, c.args...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// shuffled gives the readings to other times.
func shuffled(wall string) string {
	lines := strings.Split(strings.TrimSpace(wall), "\n")
	random := rand.New(rand.NewPCG(3, 4))
	for i := len(lines) - 1; i > 1; i-- {
		j := 1 + random.IntN(i)
		a, b, _ := strings.Cut(lines[i], ";")
		c, d, _ := strings.Cut(lines[j], ";")
		lines[i], lines[j] = a+";"+d, c+";"+b
	}
	return strings.Join(lines, "\n")
}

// gaps leaves out 15 of each 60 seconds.
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
	s := kavanagh()
	r, wall := s.run()
	lines := strings.Split(wall, "\n")
	for i := 400; i < 450; i++ { // in the second plateau
		lines[i] = readings.ReplaceAllString(lines[i], ";NaN")
	}
	f, text, err := fitFiles(t, r, strings.Join(lines, "\n"), "--wall", "wall.csv")
	require.NoError(t, err)
	assert.Len(t, f.levels, len(s.loads)-1)
	assert.Contains(t, text, "50 readings missing")
	assert.Contains(t, text, "1 left out")
}

func TestACollectorThatRestartsHasAGap(t *testing.T) {
	s := kavanagh()
	r, wall := s.run()
	for _, z := range r.zones {
		for i := range z.reads {
			if i > 80 {
				z.reads[i].Value -= z.reads[80].Value
			}
		}
	}
	f, _, err := fitFiles(t, r, wall, "--wall", "wall.csv", "--settle", "60s")
	require.NoError(t, err)
	require.NoError(t, f.meters[0].err)
	assert.InEpsilon(t, 1.05, f.meters[0].line.Factor, 0.01)
}

func TestACollectorWithoutUtilizationSaysWhatToSet(t *testing.T) {
	r, wall := kavanagh().run()
	r.utilization = nil
	_, _, err := fitFiles(t, r, wall, "--wall", "wall.csv")
	require.ErrorContains(t, err, "system.cpu.busy: {enabled: true}")
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	r, _ := kavanagh().run()
	r.zone(`odd "id", with, commas`, "gpu", false).add(calibration.Point{Time: began, Value: 1.25})
	var text bytes.Buffer
	require.NoError(t, r.write(&text))
	again, err := readRecord(&text)
	require.NoError(t, err)
	assert.Equal(t, r, again)
}

func TestAMalformedRecordIsRejected(t *testing.T) {
	for _, text := range []string{
		"", "time,W\n", recordHeader + "\n1,2\n", recordHeader + "\nx,cpu,false,\"a\",1\n", recordHeader + "\n1,cpu,false,a,1\n",
		recordHeader + "\n1,cpu,false,\"a\",x\n",
	} {
		_, err := readRecord(strings.NewReader(text))
		require.Error(t, err, text)
	}
}

// exporter answers as the collector's Prometheus exporter.
type exporter struct {
	began time.Time
	fails atomic.Bool
	at    bool // samples have their time
	// steady keeps the utilization the same.
	steady bool
	// unset leaves the utilization out.
	unset bool
}

func (e *exporter) RoundTrip(*http.Request) (*http.Response, error) {
	if e.fails.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	interval := time.Since(e.began) / (10 * time.Second)
	stamp := ""
	if e.at {
		stamp = fmt.Sprintf(" %d", e.began.Add(interval*10*time.Second).UnixMilli())
	}
	steady := interval % 10
	if e.steady {
		steady = 5
	}
	text := fmt.Sprintf(`# TYPE hw_energy_joules_total counter
hw_energy_joules_total{hw_id="intel-rapl:0",hw_type="cpu"} %d%[2]s
# TYPE hw_host_energy_joules_total counter
hw_host_energy_joules_total{hw_id="ipmi0"} %[3]d%[2]s
# TYPE system_cpu_busy_ratio gauge
system_cpu_busy_ratio 0.%[4]d%[2]s
`, 100*interval, stamp, 200*interval, steady)
	if e.unset {
		text, _, _ = strings.Cut(text, "# TYPE system_cpu")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
}

func TestEachCollectionIsRecordedOnce(t *testing.T) {
	for _, with := range []struct{ at, steady bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 65*time.Second)
			defer stop()
			e := &exporter{began: time.Now(), at: with.at, steady: with.steady}
			r, err := collect(ctx, &http.Client{Transport: e}, "http://collector/metrics", time.Second)
			require.NoError(t, err)
			require.Len(t, r.utilization, 7)
			assert.Len(t, r.zones["ipmi0"].reads, 7)
			assert.Equal(t, "host", r.zones["ipmi0"].kind)
			last := r.zones["intel-rapl:0"].reads[6]
			assert.InDelta(t, 600, last.Value, 0)
			assert.InDelta(t, float64(e.began.Add(time.Minute).UnixMilli())/1e3, last.Time, 1.001)
		})
	}
}

func TestACollectorThatNoLongerAnswersEndsTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{began: time.Now()}
		time.AfterFunc(25*time.Second, func() { e.fails.Store(true) })
		r, err := collect(t.Context(), &http.Client{Transport: e}, "http://collector/metrics", time.Second)
		require.ErrorContains(t, err, "no answer from http://collector/metrics for 1m0s")
		assert.Len(t, r.utilization, 3, "what was recorded is kept")
	})
}

func TestWhyTheFirstAnswerIsMissing(t *testing.T) {
	for length, want := range map[time.Duration]string{
		2 * time.Second: "no answer from http://collector/metrics: ", time.Hour: "no answer from http://collector/metrics for 10s: ",
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &exporter{}
			e.fails.Store(true)
			ctx, stop := context.WithTimeout(t.Context(), length)
			defer stop()
			_, err := collect(ctx, &http.Client{Transport: e}, "http://collector/metrics", time.Second)
			require.ErrorContains(t, err, want)
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		})
	}
}

func TestAnEarlierRecordStaysUntilThereIsAnother(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.csv")
	ended, end := context.WithCancel(t.Context())
	end()
	o := recorder{record: file, endpoint: "http://127.0.0.1:0/metrics", interval: time.Second}
	_, err := o.obtain(ended)
	require.ErrorContains(t, err, "no answer")
	assert.NoFileExists(t, file)

	require.NoError(t, os.WriteFile(file, []byte("earlier"), 0o600))
	o.force = true
	_, err = o.obtain(ended)
	require.ErrorContains(t, err, "no answer")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "earlier", string(content))
}

func TestACollectorWithoutUtilizationIsToldBeforeTheTimeIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{began: time.Now(), unset: true}
		r, err := collect(t.Context(), &http.Client{Transport: e}, "http://collector/metrics", time.Second)
		require.ErrorIs(t, err, errNoUtilization)
		assert.Equal(t, 30*time.Second, time.Since(e.began), "the fourth collection")
		assert.NotEmpty(t, r.zones)
	})
}

func TestAFileThatCannotBeWrittenIsToldBeforeTheTimeIsSpent(t *testing.T) {
	o := calibrateOptions{recorder: recorder{record: filepath.Join(t.TempDir(), "no", "file"), endpoint: "http://127.0.0.1:0", interval: time.Second}}
	require.ErrorIs(t, o.run(t.Context(), io.Discard), fs.ErrNotExist)
}

func TestInvalidCalibrateArgumentsAreRejected(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--from", "a"}, {"--wall", "a", "--zone", "b"}, {"--record", "a", "--from", "b"}, {"--wall", "a", "--interval", "0s"}, {"--wall", "a", "--for", "-1s"},
		{"--wall", "a", "--record", "./a"}, {"--wall", "a", "b"}, {"--wall", "a", "--plateau", "0s"}, {"-nosuch"},
	} {
		_, err := parsed[calibrateOptions](args)
		require.Error(t, err, "%q", args)
	}
}

func FuzzReadRecord(f *testing.F) {
	f.Add(recordHeader + "\n1700000000.000,utilization,,,0.5\n1700000000.000,cpu,true,\"intel-rapl:0\",12.5\n")
	f.Add(recordHeader + "\n1,,,,\n")
	f.Fuzz(func(_ *testing.T, text string) {
		r, err := readRecord(strings.NewReader(text))
		if err != nil || r.check() != nil {
			return
		}
		_, _ = (&calibrateOptions{zone: strings.Join(r.ids(), ","), plateau: time.Minute, maxLag: time.Minute}).fit(r)
	})
}
