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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/calibration"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// testMachine is the machine of the simulated collector.
var testMachine = machine.Machine{
	CPU: "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", Vendor: "GenuineIntel", Family: 6, Model: 85, Stepping: 7,
	Threads: 96, Cores: 48, Sockets: 2, Memory: 384 << 30,
}

// node is a collector on a machine whose true power is known: a package that rises like those of
// two-socket servers, memory, and the whole machine by a BMC. Each collection is of 10 s, of which
// the load changes within.
type node struct {
	packages, dram, board calibration.Curve // over utilization
	// load returns the utilization at a time since the beginning, in seconds.
	load func(at float64) float64
	// noise is the standard deviation of the power of a second, as a share.
	noise float64
	// lag is by how much the BMC is behind, in seconds.
	lag int
	// source of the package's energy, measured if it is empty.
	source string
	// restarts are when the collector begins again, in seconds.
	restarts []int
	// answer changes the answer of a scrape at a time since the beginning. nil leaves it.
	answer func(at float64, text string) (*http.Response, error)

	random               *rand.Rand
	began                time.Time
	now                  int // seconds until which it has run
	collected            string
	busy, pkg, mem, host float64 // of the collection
	lately               []float64
}

func newNode(seed uint64) *node {
	random := rand.New(rand.NewPCG(seed, 1))
	n := &node{
		packages: calibration.Curve{{X: 0, Y: 54.7}, {X: 0.1, Y: 137.9}, {X: 0.3, Y: 223.9}, {X: 0.6, Y: 343.8}, {X: 1, Y: 440.1}},
		dram:     calibration.Curve{{X: 0, Y: 40}, {X: 0.1, Y: 60}, {X: 1, Y: 85}},
		board:    calibration.Curve{{X: 0, Y: 90}, {X: 1, Y: 120}},
		noise:    0.02, random: random,
	}
	n.load = wandering(random)
	return n
}

// wandering returns a load that stays for a minute or some, and then goes elsewhere: more often to
// a low one than to a high one.
func wandering(random *rand.Rand) func(float64) float64 {
	until, level := 0.0, 0.0
	return func(at float64) float64 {
		if at >= until {
			until, level = at+40+random.Float64()*160, 1.05*math.Pow(random.Float64(), 2)
		}
		return min(max(level+0.02*level*random.NormFloat64(), 0), 1)
	}
}

// step runs the machine for a second.
func (n *node) step() {
	for _, at := range n.restarts {
		if n.now == at {
			n.pkg, n.mem, n.host = 0, 0, 0
		}
	}
	u := n.load(float64(n.now))
	noise := 1 + n.noise*n.random.NormFloat64()
	pkg, mem := n.packages.At(u)*noise, n.dram.At(u)
	n.lately = append(n.lately, pkg+mem+n.board.At(u))
	n.busy, n.pkg, n.mem, n.host = n.busy+u, n.pkg+pkg, n.mem+mem, n.host+n.lately[max(n.now-n.lag, 0)]
	if n.now++; n.now%10 == 0 {
		n.collect()
		n.busy = 0
	}
}

func (n *node) collect() {
	stamp := n.began.Add(time.Duration(n.now) * time.Second).UnixMilli()
	source := n.source
	if source == "" {
		source = "measured"
	}
	var b strings.Builder
	fmt.Fprintln(&b, "# TYPE system_energy_joules_total counter")
	for _, z := range []struct {
		name, source string
		joules       float64
	}{{"package", source, n.pkg}, {"dram", "measured", n.mem}, {"platform", "measured", n.host}, {"core", "modeled", n.pkg / 2}} {
		fmt.Fprintf(&b, "system_energy_joules_total{energy_zone=%q,energy_method=%q,energy_state=\"active\"} %f %d\n", z.name, z.source, z.joules/4, stamp)
		fmt.Fprintf(&b, "system_energy_joules_total{energy_zone=%q,energy_method=%q,energy_state=\"idle\"} %f %d\n", z.name, z.source, z.joules*3/4, stamp)
	}
	fmt.Fprintf(&b, "# TYPE system_cpu_busy_ratio gauge\nsystem_cpu_busy_ratio %f %d\n", n.busy/10, stamp)
	n.collected = b.String()
}

// RoundTrip answers as the collector's Prometheus exporter.
func (n *node) RoundTrip(*http.Request) (*http.Response, error) {
	for at := int(time.Since(n.began).Seconds()); n.now < at; {
		n.step()
	}
	if n.answer != nil {
		if response, err := n.answer(float64(n.now), n.collected); response != nil || err != nil {
			return response, err
		}
	}
	return answer(http.StatusOK, n.collected), nil
}

func answer(status int, text string) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(text))}
}

// recorded returns what was recorded of the node.
func (n *node) recorded(t *testing.T, length time.Duration) (r *record) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), length+2*time.Second) // between two scrapes
		defer stop()
		n.began = time.Now()
		var err error
		r, err = collect(ctx, &http.Client{Transport: n}, "http://collector/metrics", 5*time.Second)
		require.NoError(t, err)
	})
	r.machine = &testMachine
	return r
}

func trainingOptions(t *testing.T, args ...string) trainOptions {
	t.Helper()
	o, err := parsed[trainOptions](append([]string{"-o", filepath.Join(t.TempDir(), "node.json")}, args...))
	require.NoError(t, err)
	o.now = func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
	return o
}

func (n *node) trained(t *testing.T, length time.Duration) *trainedRecord {
	t.Helper()
	o := trainingOptions(t)
	fitted, err := o.fit(n.recorded(t, length))
	require.NoError(t, err)
	return fitted
}

// off returns the mean and the largest error of a trained zone over all utilizations, as shares of the true power.
func off(fitted *trainedRecord, k power.Kind, truth func(u float64) float64) (mean, worst float64) {
	curve := fitted.model.Zones[k].Curve
	const n = 1000
	for i := range n + 1 {
		u := float64(i) / n
		e := math.Abs(curve.Watts(u)/truth(u) - 1)
		mean, worst = mean+e/(n+1), max(worst, e)
	}
	return mean, worst
}

// whole is the machine's power.
func (n *node) whole(u float64) float64 { return n.packages.At(u) + n.dram.At(u) + n.board.At(u) }

// docs/power-models.md states these bounds.
func TestAMachineIsFoundAgainFromThreeHoursOfItsLoad(t *testing.T) {
	for seed := range uint64(5) {
		n := newNode(seed)
		n.lag = 12
		fitted := n.trained(t, 3*time.Hour)
		for k, truth := range map[power.Kind]func(float64) float64{power.Package: n.packages.At, power.DRAM: n.dram.At, power.Platform: n.whole} {
			mean, worst := off(fitted, k, truth)
			assert.Less(t, mean, 0.02, "%s, seed %d", k, seed)
			assert.Less(t, worst, 0.06, "%s, seed %d", k, seed)
			assert.InDelta(t, 0.01, fitted.model.Zones[k].Error, 0.01, "%s, seed %d", k, seed)
		}
	}
}

func TestAMachineIsFoundAgainWithoutNoiseOnSteadyLoads(t *testing.T) {
	n := newNode(1)
	n.noise, n.load = 0, func(at float64) float64 { return math.Mod(math.Floor(at/120)*8, 21) / 20 }
	fitted := n.trained(t, 90*time.Minute)
	for k, truth := range map[power.Kind]func(float64) float64{power.Package: n.packages.At, power.DRAM: n.dram.At, power.Platform: n.whole} {
		mean, worst := off(fitted, k, truth)
		assert.Less(t, mean, 0.002, k)
		assert.Less(t, worst, 0.02, k)
	}
}

// notNumbers matches the values of samples.
var notNumbers = regexp.MustCompile(` [0-9.]+ 1`)

// A restart in a collection loses that one, and a scrape that fails is made up for by the next.
func TestRestartsAndBadScrapesDoNotChangeTheModel(t *testing.T) {
	n := newNode(3)
	n.restarts = []int{1234, 4321, 4400, 9005}
	scrapes := 0
	n.answer = func(_ float64, text string) (*http.Response, error) {
		switch scrapes++; scrapes % 11 {
		case 1:
			return nil, io.ErrUnexpectedEOF
		case 3:
			return answer(http.StatusInternalServerError, text), nil
		case 5:
			return answer(http.StatusOK, text[:len(text)/2]), nil
		case 7:
			return answer(http.StatusOK, "<html>"), nil
		case 9:
			return answer(http.StatusOK, notNumbers.ReplaceAllString(text, " NaN 1")), nil
		case 10:
			return answer(http.StatusOK, strings.ReplaceAll(text, `energy_state="idle"} `, `energy_state="idle"} 9999999`)), nil // an impossible jump
		}
		return nil, nil
	}
	fitted := n.trained(t, 3*time.Hour)
	for k, truth := range map[power.Kind]func(float64) float64{power.Package: n.packages.At, power.DRAM: n.dram.At} {
		mean, worst := off(fitted, k, truth)
		assert.Less(t, mean, 0.02, k)
		assert.Less(t, worst, 0.06, k)
	}
}

func TestWhatWasTrainedIsPrintedAndWritten(t *testing.T) {
	n := newNode(1)
	n.lag = 12
	r := n.recorded(t, 3*time.Hour)
	t.Chdir(t.TempDir())
	writeRecord(t, r)
	o := trainingOptions(t, "--from", "record.csv")
	o.out = "node.json"
	var out bytes.Buffer
	require.NoError(t, o.run(t.Context(), &out))
	written, err := os.ReadFile("node.json")
	require.NoError(t, err)
	golden.Equal(t, "train.golden", out.String())
	golden.Equal(t, "train.json", string(written))
	curves, err := trained.Curves("node.json", testMachine, trained.Options{})
	require.NoError(t, err)
	assert.Len(t, curves, 3)
}

func writeRecord(t *testing.T, r *record) {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, r.write(&text))
	require.NoError(t, os.WriteFile("record.csv", text.Bytes(), 0o600))
}

func TestAnExistingFileIsReplacedOnlyOnRequest(t *testing.T) {
	r := newNode(1).recorded(t, time.Hour)
	t.Chdir(t.TempDir())
	writeRecord(t, r)
	require.NoError(t, os.WriteFile("node.json", []byte("mine"), 0o600))
	o := trainingOptions(t, "--from", "record.csv")
	o.out = "node.json"
	require.ErrorContains(t, o.run(t.Context(), io.Discard), "node.json exists: --force replaces it")
	text, err := os.ReadFile("node.json")
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))

	o.force = true
	require.NoError(t, o.run(t.Context(), io.Discard))
	_, err = trained.Curves("node.json", testMachine, trained.Options{})
	require.NoError(t, err)
	there, err := filepath.Glob("*")
	require.NoError(t, err)
	hidden, err := filepath.Glob(".*.json*")
	require.NoError(t, err)
	assert.Equal(t, []string{"node.json", "record.csv"}, there)
	assert.Empty(t, hidden)

	o.out = filepath.Join("nowhere", "node.json")
	require.ErrorIs(t, o.run(t.Context(), io.Discard), fs.ErrNotExist)
}

func TestOnlyWhatIsMeasuredIsTrained(t *testing.T) {
	for _, source := range []string{"modeled", "reported"} {
		n := newNode(1)
		n.source = source
		fitted := n.trained(t, time.Hour)
		assert.NotContains(t, fitted.model.Zones, power.Package)
		assert.Contains(t, fitted.model.Zones, power.DRAM)
		var out bytes.Buffer
		fitted.render(&out)
		assert.Contains(t, out.String(), "package   not trained: it is "+source+", not measured")
	}
}

func TestWhatIsExtrapolatedIsTold(t *testing.T) {
	n := newNode(1)
	n.load = func(at float64) float64 { return 0.2 + math.Mod(math.Floor(at/120)*3, 10)/20 }
	var out bytes.Buffer
	n.trained(t, time.Hour).render(&out)
	assert.Contains(t, out.String(), "package: the load was never below 20 %, where power rises steeply: the idle power may be far off\n"+
		"package: the load was never above 65 %: the curve continues its line from there\n")
	n = newNode(1)
	n.load = func(at float64) float64 { return math.Mod(math.Floor(at/120)*2, 5) / 4 }
	out.Reset()
	n.trained(t, time.Hour).render(&out)
	assert.Contains(t, out.String(), "package: only ")
}

func TestWhyAZoneIsNotTrained(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *node)
		length time.Duration
		want   string
	}{
		"little time": {nil, 4 * time.Minute, "too little time: "},
		"one load":    {func(n *node) { n.load = func(float64) float64 { return 0.4 } }, time.Hour, "the load varied too little: from 40 % to 40 %"},
		"two loads":   {func(n *node) { n.load = func(at float64) float64 { return math.Mod(math.Floor(at/600), 2) } }, time.Hour, "too few different loads: 2, at least 4 are needed"},
		"no energy":   {func(n *node) { n.packages = calibration.Curve{{}, {X: 1}} }, time.Hour, "its meter counted nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(1)
			if c.change != nil {
				c.change(n)
			}
			fitted := n.trained(t, c.length)
			require.Error(t, fitted.zones[0].err)
			require.ErrorContains(t, fitted.zones[0].err, c.want)
		})
	}
}

func TestARecordThatCannotBeTrainedSaysWhatIsMissing(t *testing.T) {
	r := newNode(1).recorded(t, time.Hour)
	t.Chdir(t.TempDir())
	o := trainingOptions(t, "--from", "record.csv")
	r.machine = nil
	writeRecord(t, r)
	require.ErrorIs(t, o.run(t.Context(), io.Discard), errNoMachine)
	r.machine = &testMachine
	kinds := r.kinds
	r.kinds = nil
	r.zone("intel-rapl:0", "cpu", false).add(calibration.Point{Time: began, Value: 1})
	writeRecord(t, r)
	require.ErrorIs(t, o.run(t.Context(), io.Discard), errNoKinds)
	r.kinds = kinds
	for id := range r.kinds {
		if strings.HasSuffix(id, " measured") {
			delete(r.kinds, id)
		}
	}
	writeRecord(t, r)
	require.ErrorIs(t, o.run(t.Context(), io.Discard), errUntrained)
}

func TestARecordKeepsItsMachine(t *testing.T) {
	r := newNode(1).recorded(t, 10*time.Minute)
	var text bytes.Buffer
	require.NoError(t, r.write(&text))
	again, err := readRecord(&text)
	require.NoError(t, err)
	assert.Equal(t, r, again)
	_, err = readRecord(strings.NewReader(recordHeader + "\n" + machineMark + "{}\n"))
	require.ErrorContains(t, err, "line 2: neither cpu")
}

func TestOnlyThisMachineIsTrained(t *testing.T) {
	for endpoint, here := range map[string]bool{
		"http://127.0.0.1:8889/metrics": true, "http://[::1]:8889/metrics": true, "http://192.0.2.1:8889/metrics": false, "http://[2001:db8::1]/": false,
		":": false,
	} {
		assert.Equal(t, here, isHere(t.Context(), endpoint), endpoint)
	}
	o := trainingOptions(t, "--endpoint", "http://192.0.2.1/metrics")
	require.ErrorIs(t, o.run(t.Context(), io.Discard), errElsewhere)
}

func TestWhatCannotBeIsLeftOutOfARecord(t *testing.T) {
	for name, text := range map[string]string{
		"utilization above 1": "system_cpu_busy_ratio 1.5 20000\n",
		"no utilization":      "system_cpu_busy_ratio NaN 20000\n",
		"endless energy":      `system_energy_joules_total{energy_zone="package",energy_method="measured",energy_state="active"} +Inf 20000` + "\n" + `system_energy_joules_total{energy_zone="package",energy_method="measured",energy_state="idle"} 1 20000` + "\n",
		"negative energy":     `hw_energy_joules_total{hw_id="intel-rapl:0",hw_type="cpu"} -5 20000` + "\n",
		"half of an energy":   `system_energy_joules_total{energy_zone="package",energy_method="measured",energy_state="active"} 5 20000` + "\n",
		"two times in one":    `system_energy_joules_total{energy_zone="package",energy_method="measured",energy_state="active"} 5 20000` + "\n" + `system_energy_joules_total{energy_zone="package",energy_method="measured",energy_state="idle"} 5 10000` + "\n",
	} {
		found, err := families(strings.NewReader(text))
		require.NoError(t, err)
		r := newRecord()
		r.take(found, time.Unix(20, 0))
		assert.Empty(t, r.utilization, name)
		for _, zones := range []map[string]*meterZone{r.kinds, r.zones} {
			for id, z := range zones {
				assert.Empty(t, z.reads, "%s: %s", name, id)
			}
		}
	}
}

func TestInvalidTrainArgumentsAreRejected(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--from", "a"}, {"-o", "a", "--record", "a", "--from", "b"}, {"-o", "a", "--record", "a"}, {"-o", "a", "--from", "./a"}, {"-o", "a", "--interval", "0s"}, {"-o", "a", "--for", "-1s"}, {"-o", "a", "b"},
		{"-o", "a", "--max-lag", "0s"}, {"-nosuch"},
	} {
		_, err := parsed[trainOptions](args)
		require.Error(t, err, "%q", args)
	}
}

func FuzzTrain(f *testing.F) {
	machineLine := machineMark + `{"cpu":"x","threads":2}` + "\n"
	f.Add(recordHeader + "\n" + machineLine + "1700000000.000,utilization,,,0.5\n1700000000.000,system,false,\"package measured\",12.5\n")
	var text strings.Builder
	for i := range 60 {
		fmt.Fprintf(&text, "%d,utilization,,,%g\n%[1]d,system,false,\"package measured\",%[3]d\n%[1]d,system,false,\"platform measured\",%[3]d\n", 1_700_000_000+10*i, float64(i%10)/10, 100*i*i)
	}
	f.Add(recordHeader + "\n" + machineLine + text.String())
	o := trainOptions{maxLag: time.Minute, now: time.Now}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := readRecord(strings.NewReader(text))
		if err != nil || r.check() != nil {
			return
		}
		fitted, err := o.fit(r)
		if err != nil {
			return
		}
		fitted.render(io.Discard)
		if len(fitted.model.Zones) == 0 {
			return
		}
		data, err := fitted.model.Encode()
		if err == nil {
			_, err = trained.Parse(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
