// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// judged is the adapter of a program that runs as a process on the files of a simulated machine.
// The program cannot read the true energies.
type judged struct {
	name, title string
	// binary is the path of the program.
	binary *string
	// start writes the program's configuration, and returns its arguments. read adds the energies
	// that the program reports to the series of the trial, as of the files at the time of the call.
	start func(*trial) (arguments []string, read func())
	// every is the time between two calls of read. It divides simHorizon.
	every time.Duration
	// simulated returns the misattributed share of the program's rules in the simulator.
	simulated func(*testing.T, simScenario) float64
}

// allJudged has one entry for each file with an adapter.
var allJudged = []judged{keplerProgram, collectorProgram}

// trial is one program on the files of a machine that several programs read. The series of its
// simulator are the series that the program reports.
type trial struct {
	simulator
	program  judged
	scenario simScenario
	dir      string // of the configuration
	read     func()
	before   simTotals
}

const (
	// judgeStep is the time between two changes of the files.
	judgeStep = 100 * time.Millisecond
	// judgeTolerance is the largest difference between the misattributed shares of a program and of
	// its rules in the simulator. A program reads the files at other times.
	judgeTolerance = 0.01
)

// judgePrograms runs all programs on the files of one machine, in real time. It returns their
// misattributed shares.
func judgePrograms(t *testing.T, sc simScenario) (misattributed []float64) {
	l := build(t, treeDir(t), sc, "")
	l.machine.Host.Files["proc/sys/kernel/random/boot_id"] = "01234567-89ab-4cde-8f01-23456789abcd\n"
	l.machine.Host.Booted = time.Now().Add(-l.machine.Now())
	l.show()
	var trials []*trial
	for _, program := range allJudged {
		trials = append(trials, l.try(program, sc))
	}
	for began := time.Now(); l.at < simHorizon; {
		time.Sleep(time.Until(began.Add(l.at)))
		l.run(judgeStep, nil)
		l.show()
		for _, tr := range trials {
			if l.at%tr.program.every == 0 {
				tr.read()
			}
		}
	}
	for _, tr := range trials {
		misattributed = append(misattributed, tr.totals().since(tr.before).accuracy().misattributed)
	}
	return misattributed
}

// show writes the files of the machine, and the file comm of each process, which Kepler reads.
func (l *simulator) show() {
	require.NoError(l.tb, l.machine.Render())
	for pid, p := range l.machine.Host.Processes {
		require.NoError(l.tb, os.WriteFile(filepath.Join(l.root, "proc", strconv.Itoa(pid), "comm"), []byte(p.Comm+"\n"), 0o600))
	}
}

// try starts a program, and returns after the program's first reading of the machine. The end of
// the test ends the program.
func (l *simulator) try(program judged, sc simScenario) *trial {
	tr := &trial{simulator: *l, program: program, scenario: sc, dir: l.tb.TempDir()}
	tr.series = map[simSeries]float64{}
	var output bytes.Buffer
	arguments, read := program.start(tr)
	cmd := exec.CommandContext(l.tb.Context(), *program.binary, arguments...)
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(l.tb, cmd.Start())
	l.tb.Cleanup(func() {
		_ = cmd.Wait() // the end of the test killed it
		if l.tb.Failed() {
			l.tb.Logf("%s: %s", program.name, &output)
		}
	})
	read()
	tr.read, tr.before = read, tr.totals()
	return tr
}

// version returns the version of the program's main module. It contains the commit of the checkout.
func (p *judged) version(tb testing.TB) string {
	if p.name == collectorProgram.name {
		return "this commit"
	}
	info, err := buildinfo.ReadFile(*p.binary)
	require.NoError(tb, err)
	require.NotEqual(tb, "(devel)", info.Main.Version, "%s has no version: build it in a Git checkout with -buildvcs=true", *p.binary)
	return info.Main.Version
}

// writeJudge writes the misattributed shares of whole programs, and of their rules in the
// simulator. It writes the means if all scenarios ran.
func writeJudge(t *testing.T) {
	if *keplerProgram.binary == "" {
		t.Skip("run make judge, which passes the programs")
	}
	type shares struct{ program, rules float64 }
	measured := make([][]shares, len(simScenarios)) // by scenario and program
	t.Run("programs", func(t *testing.T) {
		for i, sc := range simScenarios {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				for k, share := range judgePrograms(t, sc) {
					simulated := allJudged[k].simulated(t, sc)
					assert.InDelta(t, simulated, share, judgeTolerance, allJudged[k].name)
					measured[i] = append(measured[i], shares{share, simulated})
				}
			})
		}
	})
	rows, page := table.New("scenario", "program", "misattributed", "its rules alone"), table.New("program", "version", "misattributed, mean", "worst")
	complete := true
	for k, p := range allJudged {
		var s summary
		for i, sc := range simScenarios {
			if complete = complete && measured[i] != nil; measured[i] != nil {
				s.add(sc.name, measured[i][k].program)
			}
		}
		page.Add(p.title, p.version(t), percent(s.mean()), s.largest(percent))
	}
	for i, sc := range simScenarios {
		for k, share := range measured[i] {
			rows.Add(sc.name, allJudged[k].name, number(share.program), number(share.rules))
		}
	}
	writeRows(t, "programs.csv", rows, complete)
	if complete {
		put(t, userPage, "make judge", page.Markdown())
	}
}
