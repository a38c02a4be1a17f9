// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

// Command accuracy measures the errors of the receiver's energy attribution on simulated machines.
// It writes the files of dev/results and tables of docs/accuracy.md, and must be started in its own
// directory, as `make accuracy` does.
//
// The measurements are cases of a test run, because testing/synctest provides a simulated clock
// only to tests. The flags are therefore the flags of a test: `-test.run accuracy/gpus -test.v`. A
// filtered run writes only the rows that it measured.
package main

import (
	"regexp"
	"testing"
)

func main() {
	testing.Main(regexp.MatchString, []testing.InternalTest{
		{Name: "accuracy", F: writeAccuracy}, {Name: "uncertainty", F: writeUncertainty}, {Name: "judge", F: writeJudge},
	}, nil, nil)
}

func writeAccuracy(t *testing.T) {
	all := map[string]*measurement{}
	complete := true
	for _, m := range measurements(t) {
		m.run(t, everything).write(t)
		all[m.file] = m
		complete = complete && m.isComplete()
	}
	idle := idleTable(t)
	if !complete {
		return
	}
	writeRows(t, "idle.csv", idle, true)
	writeRows(t, "scenarios.csv", descriptions(), true)
	writeRows(t, "means.csv", means(all["accuracy.csv"], all["rules.csv"]), true)
	put(t, userPage, "make accuracy", headline(all["accuracy.csv"], all["curves.csv"], all["nights.csv"], all["effects.csv"], all["hardware-events.csv"]))
}
