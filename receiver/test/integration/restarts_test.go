// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// restarted is a collector that is started several times, with its sensor and its state directory.
// The output of each run goes to a separate file.
type restarted struct {
	sensor *simulatedSensor
	root   string
	state  string
	runs   []*collector
	values map[string]float64 // in joules, by metric and series
}

func newRestarted(t *testing.T) *restarted {
	need(t)
	sensor := startSensor(t)
	return &restarted{sensor: sensor, root: sensor.root, state: t.TempDir(), values: map[string]float64{}}
}

const restartedConfig = `
receivers:
  energy:
    root_path: ROOT
    meters: {use: [powercap]}
    collection_interval: 1s
    initial_delay: 0s
    cpu_time: procfs
    zones: [package, dram]
    model: none
    series: {processes: {group_by: pid, min_energy: 0, max: 0}}
    storage: STATE
    attribution: {preset: kepler}
`

// start starts the collector and returns after its first emission.
func (r *restarted) start(t *testing.T) *collector {
	t.Helper()
	config := strings.NewReplacer("ROOT", r.root, "STATE", r.state).Replace(restartedConfig)
	c := runCollector(t, fmt.Sprint("run-", len(r.runs)+1), config+fileExporter)
	r.runs = append(r.runs, c)
	return c
}

// kill kills the collector.
func (c *collector) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Kill())
	<-c.ended
}

// uses waits until the package has used some more joules.
func (r *restarted) uses(t *testing.T, joules float64) {
	t.Helper()
	const id = "intel-rapl:0"
	most := r.sensor.joules(id, time.Now()) + joules
	eventually(t, "energy is used", func() bool { return r.sensor.joules(id, time.Now()) >= most })
}

// rests ends all power, so that the counters no longer change.
func (r *restarted) rests(t *testing.T) {
	t.Helper()
	r.sensor.draw(t, nil)
}

// takes reads the output of all runs. The values of a series must not decrease.
func (r *restarted) takes(t *testing.T) (all []emission) {
	t.Helper()
	clear(r.values)
	for n, c := range r.runs {
		for _, e := range readEmissions(t, c.out) {
			all = append(all, e)
			for _, p := range e {
				if !strings.HasSuffix(p.metric, ".energy") {
					continue
				}
				series := p.metric + " " + p.series
				if p.value < r.values[series] && !(p.value == 0 && p.at.Equal(p.start)) {
					t.Errorf("run %d: %s went down from %v to %v", n+1, series, r.values[series], p.value)
				}
				r.values[series] = max(p.value, r.values[series])
			}
		}
	}
	return all
}

// sum adds up the last values of a metric over all series with these attributes, and counts the
// series.
func (r *restarted) sum(metric string, attributes ...string) (sum float64, series int) {
	for s, value := range r.values {
		if name, of, _ := strings.Cut(s, " "); name == metric && !slices.ContainsFunc(attributes, func(a string) bool { return !strings.Contains(","+of, ","+a+",") }) {
			sum += value
			series++
		}
	}
	return sum, series
}

// sumActive is sum without idle energy, which has its own state if it is shared.
func (r *restarted) sumActive(metric string, attributes ...string) float64 {
	all, _ := r.sum(metric, attributes...)
	idle, _ := r.sum(metric, append(attributes, "energy.state=idle")...)
	return all - idle
}

// balances checks that everything that was ever sent adds up: zones to the sensor's energy, and
// processes and unattributed energy to active energy.
func (r *restarted) balances(t *testing.T) {
	t.Helper()
	for id, kind := range map[string]string{"intel-rapl:0": "package", "intel-rapl:0:0": "dram"} {
		zone, _ := r.sum("hw.energy", "hw.id="+id)
		node, series := r.sum("system.energy", "energy.zone="+kind)
		active, _ := r.sum("system.energy", "energy.zone="+kind, "energy.state=active")
		processes := r.sumActive("process.energy", "energy.zone="+kind)
		unattributed := r.sumActive("system.unattributed.energy", "energy.zone="+kind)
		truth := r.sensor.joules(id, time.Now())
		t.Logf("%s: %.6f J, truly %.6f J; processes %.6f J + unattributed %.6f J, active %.6f J; %d series of the node", kind, zone, truth,
			processes, unattributed, active, series)
		assert.InDelta(t, zone, node, 0.5e-6, "active and idle add up to the zone")
		assert.InDelta(t, active, processes+unattributed, 0.5e-6, "processes and unattributed add up to active")
		assert.InDelta(t, truth, zone, 1.1e-6, "no energy is lost") // the counter shows whole microjoules
	}
}

var restartedPower = map[string]float64{"intel-rapl:0": 120, "intel-rapl:0:0": 15}

// The collector is stopped and killed while its counters continue, and wrap. One process runs all
// the time, and others start and end.
func TestRestartsLoseNoEnergy(t *testing.T) {
	r := newRestarted(t)
	load := build(t, "load")
	burner := exec.Command(load, "burn", "30", "0")
	startDaemon(t, burner, os.DevNull)
	pid := fmt.Sprint("process.pid=", burner.Process.Pid)
	c := r.start(t)
	r.sensor.draw(t, restartedPower)
	var before float64
	for n := range 6 {
		c.emits(t, 2)
		r.takes(t)
		energy, series := r.sum("process.energy", pid, "energy.zone=package")
		assert.Equal(t, 1, series, "run %d: the process has one series", n+1)
		assert.Greater(t, energy, before, "run %d: the series continues", n+1)
		before = energy
		if n == 5 {
			break
		}
		if n%2 == 0 {
			c.stop(t)
		} else {
			c.kill(t)
		}
		run(t, exec.Command(load, "child", "0.2"))
		r.uses(t, 60)
		c = r.start(t)
	}
	r.rests(t)
	c.emits(t, 2)
	c.stop(t)
	r.takes(t)
	r.balances(t)
	for _, metric := range []string{"hw.energy", "system.unattributed.energy"} {
		_, series := r.sum(metric)
		assert.Equal(t, 2, series, "%s: one series per zone, over all starts", metric)
	}
}
