// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// restarted is a collector that is started again and again, with the sensor that it reads and the
// directory in which it keeps its state. What it sends goes to a file a run.
type restarted struct {
	sensor *simulatedSensor
	root   string
	state  string
	every  time.Duration
	runs   []*collector
	values map[string]float64 // in joules, by metric and series
}

func newRestarted(t *testing.T) *restarted {
	need(t)
	sensor := startSensor(t)
	return &restarted{sensor: sensor, root: sensor.root, state: t.TempDir(), every: time.Second, values: map[string]float64{}}
}

const restartedConfig = `
receivers:
  energy:
    root_path: ROOT
    meters: {use: [powercap]}
    collection_interval: EVERY
    initial_delay: 0s
    cpu_time: procfs
    zones: [package, dram]
    model: none
    series: {processes: {group_by: pid, min_energy: 0, max: 0}}
    storage: STATE
`

// start starts the collector, with further settings of the receiver, and returns when it has sent something.
func (r *restarted) start(t *testing.T, settings ...string) *collector {
	t.Helper()
	config := strings.NewReplacer("ROOT", r.root, "STATE", r.state, "EVERY", r.every.String()).Replace(restartedConfig)
	if len(settings) == 0 {
		settings = []string{"attribution: {preset: kepler}"}
	}
	for _, setting := range settings {
		config += "    " + setting + "\n"
	}
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

// uses waits until the package has used some joules more.
func (r *restarted) uses(t *testing.T, joules float64) {
	t.Helper()
	const id = "intel-rapl:0"
	most := r.sensor.joules(id, time.Now()) + joules
	eventually(t, "energy is used", func() bool { return r.sensor.joules(id, time.Now()) >= most })
}

// rests ends all power. What is counted then no longer changes.
func (r *restarted) rests(t *testing.T) {
	t.Helper()
	r.sensor.draw(t, nil)
}

// takes reads what all runs have sent. Within a series no value may be lower than one before.
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

// sum adds up the last values of a metric over all series with these attributes, and counts the series.
func (r *restarted) sum(metric string, attributes ...string) (sum float64, series int) {
	for s, value := range r.values {
		if name, of, _ := strings.Cut(s, " "); name == metric && !slices.ContainsFunc(attributes, func(a string) bool { return !strings.Contains(","+of, ","+a+",") }) {
			sum += value
			series++
		}
	}
	return sum, series
}

// sumActive is the same without idle energy, which has a state of its own where it is shared.
func (r *restarted) sumActive(metric string, attributes ...string) float64 {
	all, _ := r.sum(metric, attributes...)
	idle, _ := r.sum(metric, append(attributes, "energy.state=idle")...)
	return all - idle
}

// balances checks that everything that was ever sent adds up: zones to the sensor's energy, if
// nothing is lost, and processes to what is active.
func (r *restarted) balances(t *testing.T, lost bool) {
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
		assert.InDelta(t, zone, node, 0.5e-6, "active and idle are what the zone counted")
		assert.InDelta(t, active, processes+unattributed, 0.5e-6, "processes and unattributed are what is active")
		if lost {
			assert.LessOrEqual(t, zone, truth+1e-6, "nothing is invented")
		} else {
			assert.InDelta(t, truth, zone, 1.1e-6, "nothing is lost") // the counter shows whole microjoules
		}
	}
}

var restartedPower = map[string]float64{"intel-rapl:0": 120, "intel-rapl:0:0": 15}

// The collector is stopped and killed while its counters go on, and wrap. A process runs all the
// time, and others come and go.
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
		assert.Greater(t, energy, before, "run %d: it goes on", n+1)
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
	r.balances(t, false)
	for _, metric := range []string{"hw.energy", "system.unattributed.energy"} {
		_, series := r.sum(metric)
		assert.Equal(t, 2, series, "%s: one series a zone, over all starts", metric)
	}
}

func TestRestartsSendALastCollection(t *testing.T) {
	r := newRestarted(t)
	r.every = time.Hour
	c := r.start(t)
	r.sensor.draw(t, restartedPower)
	r.uses(t, 30)
	r.rests(t)
	c.stop(t)
	require.Equal(t, 2, c.emissions(), "the first collection and the last")
	r.takes(t)
	r.balances(t, false)
}

// Another configuration has other totals, which start at 0 with the state.
func TestRestartsWithAnotherConfiguration(t *testing.T) {
	r := newRestarted(t)
	for n, settings := range [][]string{nil, {"attribution: {preset: kepler, static_power: {package: {model: fixed, power: 20}, dram: {model: fixed, power: 2}}}"}, {"attribution: {preset: scaphandre, idle: used}"}} {
		c := r.start(t, settings...)
		r.sensor.draw(t, restartedPower)
		c.emits(t, 3)
		if n == 2 {
			r.rests(t)
			c.emits(t, 2)
		}
		c.stop(t)
		r.uses(t, min(float64(2-n), 1)*30)
	}
	r.takes(t)
	r.balances(t, false)
	_, series := r.sum("hw.energy", "hw.id=intel-rapl:0")
	assert.Equal(t, 3, series, "one a configuration")
}

// otherRoot is the root of the same machine with the boot identifier of another one.
func (r *restarted) otherRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(r.sensor.root, "sys"), filepath.Join(root, "sys")))
	for _, name := range []string{"stat", "uptime", "loadavg", "meminfo", "cpuinfo", "version", "mounts", "self", "1"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
		require.NoError(t, os.Symlink(filepath.Join("/proc", name), filepath.Join(root, "proc", name)))
	}
	random := filepath.Join(root, "proc/sys/kernel/random")
	require.NoError(t, os.MkdirAll(random, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(random, "boot_id"), []byte("00000000-0000-4000-8000-000000000000\n"), 0o600))
	return root
}

// A state that cannot be used costs the energy of the time between two runs, and invents nothing.
func TestRestartsWithoutAGoodState(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, r *restarted, file string){
		"deleted": func(t *testing.T, _ *restarted, file string) { require.NoError(t, os.Remove(file)) },
		"damaged": func(t *testing.T, _ *restarted, file string) {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			content[len(content)/2] ^= 1
			require.NoError(t, os.WriteFile(file, content, 0o600))
		},
		"empty": func(t *testing.T, _ *restarted, file string) { require.NoError(t, os.Truncate(file, 0)) },
		"of another boot": func(t *testing.T, r *restarted, file string) {
			require.NoError(t, os.Remove(file))
			r.root = r.otherRoot(t)
			other := r.start(t)
			other.emits(t, 2)
			other.stop(t)
			r.runs, r.root = r.runs[:len(r.runs)-1], r.sensor.root
			require.FileExists(t, file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestarted(t)
			r.sensor.draw(t, restartedPower)
			c := r.start(t)
			c.emits(t, 2)
			c.stop(t)
			files, err := filepath.Glob(filepath.Join(r.state, "*.state"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			spoil(t, r, files[0])
			c = r.start(t)
			c.emits(t, 3)
			c.kill(t)
			c = r.start(t)
			c.emits(t, 2)
			c.stop(t)
			r.takes(t)
			r.balances(t, true)
		})
	}
}

// A store that cannot be written to is a condition that is logged once, and keeps nothing from being measured.
func TestRestartsWithAStoreThatFails(t *testing.T) {
	for name, breaks := range map[string]func(t *testing.T, dir string){
		"full": func(t *testing.T, dir string) {
			file, err := os.Create(filepath.Join(dir, "other"))
			require.NoError(t, err)
			for block := make([]byte, 4096); err == nil; {
				_, err = file.Write(block)
			}
			require.ErrorIs(t, err, unix.ENOSPC)
			require.NoError(t, file.Close())
		},
		"read-only": func(t *testing.T, dir string) {
			require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestarted(t)
			if err := unix.Mount("tmpfs", r.state, "tmpfs", 0, "size=1m"); err != nil {
				t.Skipf("lacks mounts: %v", err)
			}
			t.Cleanup(func() { require.NoError(t, unix.Unmount(r.state, unix.MNT_DETACH)) })
			breaks(t, r.state)
			r.sensor.draw(t, restartedPower)
			for range 2 {
				c := r.start(t)
				c.emits(t, 4)
				c.stop(t)
				log, err := os.ReadFile(c.log)
				require.NoError(t, err)
				t.Logf("%d lines of the log are about the store", strings.Count(string(log), "storage"))
				degraded := 0
				for line := range strings.Lines(string(log)) {
					if strings.Contains(line, `"Collection degraded"`) && strings.Contains(line, `"condition":"storage"`) {
						degraded++
					}
				}
				assert.LessOrEqual(t, degraded, 2, "said once a key, the log is in %s", c.log)
				assert.Contains(t, string(log), "storage:", "the setting is named, the log is in %s", c.log)
			}
			r.takes(t)
			r.balances(t, true)
		})
	}
}
