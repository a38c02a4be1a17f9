// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/model"
	snap "github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// modelOf returns the options of energy model with flags, in an empty directory.
func modelOf(t *testing.T, args ...string) (*modelOptions, error) {
	t.Helper()
	o := &modelOptions{}
	c := o.subcommand()
	require.NoError(t, c.ParseFlags(args))
	return o, c.Args(c, c.Flags().Args())
}

// runModel runs energy model with flags.
func runModel(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	o, err := modelOf(t, args...)
	require.NoError(t, err)
	var text bytes.Buffer
	err = o.run(t.Context(), &text, io.Discard)
	return text.String(), err
}

// simulatedConfig writes the configuration of a receiver on a simulated machine with zones.
func simulatedConfig(t *testing.T, zones map[string]*hostsim.Zone) *hostsim.Host {
	t.Helper()
	h := hostsim.New(t.TempDir())
	h.CPUs, h.Zones, h.Cached = 10, zones, true
	h.Topology = make([]hostsim.Place, h.CPUs)
	h.Files["proc/cpuinfo"] = "processor: 0\nvendor_id: GenuineIntel\ncpu family: 6\nmodel: 85\nmodel name: Simulated CPU\n"
	h.Processes[70] = &hostsim.Process{Comm: "work", Exe: "/work", Parent: 1}
	require.NoError(t, h.Render())
	config := fmt.Sprintf("energy: {root_path: %s, cpu_time: procfs}\n", h.Root())
	require.NoError(t, os.WriteFile("config.yaml", []byte(config), 0o600))
	return h
}

func TestAModelIsTrainedWithoutACollector(t *testing.T) {
	t.Chdir(t.TempDir())
	h := simulatedConfig(t, map[string]*hostsim.Zone{"intel-rapl:0": {Name: "package-0", Max: 262_143_328_850}})
	o, err := modelOf(t, "--for", "10m", "--config", "config.yaml", "--record", "record.csv")
	require.NoError(t, err)
	o.out = "node.json"
	var out, messages bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Bool
		go func() { // 0 to 10 busy CPUs, with 20 to 120 W
			for second := 0; !done.Load(); second++ {
				time.Sleep(time.Second)
				busy := int64(second / 12 % 11)
				h.Run(time.Second, map[int]int64{70: 100 * busy})
				h.Zones["intel-rapl:0"].Energy += uint64(20+10*busy) * 1_000_000
				assert.NoError(t, h.Render())
			}
		}()
		time.Sleep(time.Second / 2)
		assert.NoError(t, o.run(t.Context(), &out, &messages))
		done.Store(true)
		time.Sleep(time.Second)
	})
	assert.Contains(t, out.String(), "Simulated CPU")
	assert.Contains(t, out.String(), "\nWritten to node.json\n")
	assert.Equal(t, "Recording for 10m0s, Ctrl-C ends it early\n", messages.String(), "one sentence where there is no terminal")
	data, err := os.ReadFile("node.json")
	require.NoError(t, err)
	m, err := trained.Parse(data)
	require.NoError(t, err)
	for _, u := range []float64{0, 0.5, 1} {
		assert.InDelta(t, 20+100*u, m.Zones[power.Package].Curve.Watts(u), 1)
	}

	_, err = runModel(t, "--from", "record.csv", "-o", "again.json")
	require.NoError(t, err)
	assert.FileExists(t, "again.json")

	text, err := runModel(t, "--from", "record.csv", "--kepler", "models")
	require.NoError(t, err)
	assert.Contains(t, text, "\nWritten to models: ")
	curves, err := trained.Curves("models/AbsPower-BPFOnly.json", machine.Machine{CPU: "Simulated CPU", Threads: 10}, trained.Options{})
	require.NoError(t, err)
	assert.InDelta(t, 20, curves[0].IdleWatts(), 1)
	require.NoError(t, os.WriteFile("models/AbsPower-Basic.json", []byte("of an earlier run"), 0o600))
	_, err = runModel(t, "--from", "record.csv", "--kepler", "models", "--force")
	require.NoError(t, err)
	left, err := os.ReadDir("models")
	require.NoError(t, err)
	assert.Len(t, left, 2)
	_, err = modelOf(t, "--from", "record.csv", "--kepler", "models")
	require.EqualError(t, err, "models/AbsPower-BPFOnly.json exists: use --force to replace it")
	assert.NoFileExists(t, "model.json")

	_, err = runModel(t, "--from", "record.csv", "--zone", "intel-rapl:0", "--plateau", "1h")
	require.ErrorContains(t, err, "the load was never steady for long enough")
}

func TestWithoutMetersTheReasonIsGivenAtOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	simulatedConfig(t, map[string]*hostsim.Zone{})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := runModel(t, "--config", "config.yaml")
		require.ErrorContains(t, err, "no energy of this machine is measured")
		require.ErrorContains(t, err, "no energy sensor found")
		assert.Zero(t, time.Since(began))
		assert.NoFileExists(t, "model.json")

		o, err := modelOf(t, "--config", "config.yaml", "--kepler", "models")
		require.NoError(t, err)
		var messages bytes.Buffer
		require.ErrorIs(t, o.run(t.Context(), io.Discard, &messages), model.ErrNoMeter)
		assert.Contains(t, messages.String(), "No models over hardware counters: "+perfevent.ErrOtherKernel.Error())

		out, err := runModel(t, "--config", "config.yaml", "--for", "5s", "--record", "record.csv")
		require.NoError(t, err)
		assert.Contains(t, out, "Recorded 0 meters and ", "enough for a wall meter")
	})
}

func TestWithoutACollectorAnEarlierRecordStays(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("record.csv", []byte("earlier"), 0o600))
	address := freeAddress(t)
	for _, file := range []string{"record.csv", "new.csv"} {
		_, err := runModel(t, "--endpoint", address, "--force", "--record", file)
		require.ErrorContains(t, err, "listens on "+address)
	}
	assert.Equal(t, "earlier", read(t, "record.csv"))
	assert.NoFileExists(t, "new.csv")
}

func TestACollectorWithoutFiguresForAModelIsReportedAtOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, want := range map[string]string{
		"": "has no figures of an energy receiver",
		"# TYPE hw_energy_joules_total counter\nhw_energy_joules_total{hw_id=\"a\",hw_type=\"cpu\"} 5\n":          "has no figures",
		`system_energy_joules_total{energy_zone="package",energy_method="measured",energy_state="idle"} 5` + "\n": "{system.cpu.busy: {enabled: true}}",
		"system_cpu_busy_ratio 0.5\n": "no energy of this machine is measured",
	} {
		_, err := runModel(t, "--endpoint", serveTexts(t, text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestARecordIsKeptIfNoModelCanBeMade(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	simulatedConfig(t, map[string]*hostsim.Zone{"intel-rapl:0": {Name: "package-0", Max: 262_143_328_850}})
	require.NoError(t, os.WriteFile("wall.csv", []byte("time,W\n"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		_, err := runModel(t, "--for", "5s", "--config", "config.yaml", "--wall", "wall.csv")
		require.ErrorContains(t, err, "wall.csv: no line with a time and a power")
		assert.Regexp(t, `the record is kept: --from .*/energy-record-\d+\.csv$`, err.Error())
	})
}

func TestOnlyThisMachineIsTrained(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := runModel(t, "--endpoint", "http://192.0.2.1/metrics")
	require.ErrorIs(t, err, errElsewhere)
}

func TestInvalidModelArgumentsAreRejected(t *testing.T) {
	for _, args := range [][]string{
		{"a"}, {"--wall", "a", "--zone", "b"}, {"--wall", "a", "-o", "b"}, {"--zone", "a", "--kepler", "b"}, {"--over", "a"}, {"--from", "a", "--record", "b"},
		{"--from", "a", "--endpoint", "b"}, {"--endpoint", "a", "--config", "b"}, {"--wall", "a", "--record", "./a"},
		{"-o", "a", "--record", "a"}, {"-o", "a", "--from", "./a"}, {"--interval", "0s"}, {"--for", "-1s"},
		{"--plateau", "0s"}, {"--settle", "-1s"}, {"--max-lag", "0s"},
	} {
		_, err := modelOf(t, args...)
		require.Error(t, err, "%q", args)
	}
}

func TestTheLineOfProgressHasTheMeasuredPower(t *testing.T) {
	s := &snap.Snapshot{Busy: 0.34, Zones: make([]snap.Zone, 2)}
	s.Zones[0] = snap.Zone{Class: power.Class{Zone: power.Package, Method: power.Measured}, ActiveWatts: 2, IdleWatts: 10.5}
	assert.Equal(t, "1m1s, CPU 34 %, package 12.5 W", progressLine(61*time.Second, s))
}
