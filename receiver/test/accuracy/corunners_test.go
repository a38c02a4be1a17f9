// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/receiver/test/judge"
)

var corunners = flag.Int("corunners", 0, "machines of the table of two programs that run at once, see dev/other-rules.md")

func TestTableOfTwoProgramsAtOnce(t *testing.T) {
	if *corunners == 0 {
		t.Skip("-corunners 16 writes the table")
	}
	t.Log("\n" + judge.Table(corunnerRows(t, *corunners)).Markdown())
}

func TestAProgramAloneCausesTheEnergyOfTheMachine(t *testing.T) {
	sc := machineOf(0, 1)
	for alone := range 2 {
		c := runPrograms(t, sc, alone)
		assert.Positive(t, c.used.pkg)
		assert.InDelta(t, c.used.sum(), c.caused[alone].sum(), 1e-6)
		assert.Zero(t, c.caused[1-alone])
	}
	c := runPrograms(t, sc, both)
	assert.InDelta(t, c.used.sum(), c.caused[0].plus(c.caused[1]).sum(), 1e-6)
}
