// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

// Command accuracy measures how far the energy that the receiver attributes is from the truth, on
// simulated machines. It writes the tables of dev/accuracy-tables.md, dev/other-rules.md and
// docs/accuracy.md, and must be started in its own directory, as `make accuracy` does.
//
// The measurements are the cases of a test run, because testing/synctest provides a simulated clock
// to tests only. So the flags are those of a test: `-test.run others -test.v`.
package main

import (
	"regexp"
	"testing"
)

func main() {
	testing.Main(regexp.MatchString, []testing.InternalTest{
		{Name: "accuracy", F: writeAccuracy}, {Name: "others", F: writeOthers}, {Name: "uncertainty", F: writeUncertainty},
		{Name: "judge", F: writeJudge},
	}, nil, nil)
}

func measuresAll(*simSetting) bool { return true }

func writeAccuracy(t *testing.T) {
	r := simMeasure(t, simAll(), measuresAll)
	effects, events := measureEffects(t), measureEvents(t)
	write(t, accuracyPage, 0, r.tables()+effects.table()+events.table()+simIdleTables(t)+gpuTables(t, gpuSettings))
	write(t, "../../../docs/accuracy.md", 0, "\n"+r.headline()+effects.headline()+events.headline())
}

func writeOthers(t *testing.T) {
	means, each := othersTables(t, simAll(), measuresAll)
	write(t, othersPage, 0, means)
	write(t, othersPage, 1, each)
}

func writeUncertainty(t *testing.T) { write(t, accuracyPage, 1, uncertaintyTables(t)) }
