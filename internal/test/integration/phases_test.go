// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// phaseMarker marks phases by `energy phase`, at the socket of a collector.
type phaseMarker struct{ program, socket string }

func (p *phaseMarker) command(args ...string) *exec.Cmd {
	return exec.Command(p.program, append([]string{"phase", "-socket", p.socket}, args...)...)
}

// during runs a program in a phase, and returns when the phase began and ended at the latest.
func (p *phaseMarker) during(t *testing.T, name string, cmd *exec.Cmd) (began, ended time.Time) {
	t.Helper()
	run(t, p.command("begin", name))
	began = time.Now()
	run(t, cmd)
	ended = time.Now()
	run(t, p.command("end"))
	return began, ended
}

// The phases of a collector that are marked by commands have, together, what the node has, and each what was used in it.
func TestPhasesInTheCollector(t *testing.T) {
	need(t)
	load := build(t, "load")
	dir, err := os.MkdirTemp("", "phases-") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	p := &phaseMarker{program: energyBinary(t), socket: filepath.Join(dir, "phases.sock")}
	c := startCollector(t, "auto", "phases: {socket: "+p.socket+"}")

	info, err := os.Stat(p.socket)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o660, info.Mode())
	began, ended := p.during(t, "build", exec.Command(load, "child", "0.7"))
	c.emits(t, 1)
	p.during(t, "a test", exec.Command(load, "child", "0.2"))
	for range 20 { // more often than there are collections
		p.during(t, "short", exec.Command("true"))
	}
	againBegan, againEnded := p.during(t, "build", exec.Command(load, "child", "0.3"))
	refused, err := p.command("begin", "none").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(refused), "none")
	p.testOthers(t)
	c.emits(t, 2)
	c.stop(t)
	require.Error(t, p.command("begin", "late").Run(), "nobody listens")
	require.NoError(t, p.command("-optional", "begin", "late").Run())

	emissions := readEmissions(t, c.out)
	requireBalance(t, emissions, "package")
	requirePhases(t, emissions)
	seconds := total(emissions, "system.phase.time", "energy.phase=build")
	atLeast := ended.Sub(began) + againEnded.Sub(againBegan)
	assert.InDelta(t, atLeast.Seconds(), seconds, 0.5, "time of both, and of the marks")
	assert.GreaterOrEqual(t, seconds, atLeast.Seconds())
	// The program used one second of CPU time in this phase. Others may have used more.
	assert.GreaterOrEqual(t, total(emissions, "system.phase.energy", "energy.phase=build", "energy.state=active"), 0.98*byCurve(t, 1))
	assert.Positive(t, total(emissions, "system.phase.energy", "energy.phase=a test"))
	assert.Positive(t, total(emissions, "system.phase.energy", "energy.phase=short"))
	assert.Zero(t, total(emissions, "system.phase.energy", "energy.phase=late"))
}

// testOthers checks that another user's mark is refused.
func (p *phaseMarker) testOthers(t *testing.T) {
	t.Helper()
	require.NoError(t, os.Chmod(filepath.Dir(p.socket), 0o755)) // the socket has a mode of its own
	program, err := os.Open(p.program)                          // its directory may be for root only
	require.NoError(t, err)
	defer func() { _ = program.Close() }()
	cmd := exec.Command("/proc/self/fd/3", "phase", "-socket", p.socket, "begin", "stranger")
	cmd.ExtraFiles = []*os.File{program}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	said, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(said), "permission denied")
}

// requirePhases checks after each emission that phases add up to the node, in energy and in time.
func requirePhases(t *testing.T, emissions []emission) {
	t.Helper()
	names := map[string]bool{}
	for _, state := range []string{"energy.state=active", "energy.state=idle"} {
		phases := totals(emissions, "system.phase.energy", "energy.zone=package", state)
		node := totals(emissions, "system.energy", "energy.zone=package", state)
		for i, e := range emissions {
			require.InDelta(t, node[i], phases[i], 0.5e-6, "phases = node, %s, emission %d", state, i)
			for _, p := range e.filter("system.phase.energy", state) {
				names[p.attributes["energy.phase"]] = true
			}
		}
		t.Logf("%s: %.6f J of the node, %.6f J of %d phases", state, node[len(node)-1], phases[len(phases)-1], len(names))
	}
	assert.Equal(t, map[string]bool{"none": true, "build": true, "a test": true, "short": true}, names)
	last := emissions[len(emissions)-1]
	points := last.filter("system.phase.time")
	require.NotEmpty(t, points)
	assert.InDelta(t, points[0].at.Sub(points[0].start).Seconds(), total(emissions, "system.phase.time"), 1e-3, "time of all phases, %s",
		strings.TrimSpace(points[0].series))
}
