// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// programs returns an engine that reports at most two processes by PID and three programs.
func programs(t testing.TB, processes ProcessSeries) *bench {
	return newBench(t, Config{Processes: processes, Limits: Limits{
		identity.ProcessEntity: {MinEnergy: 5 * units.Joule, Max: 2}, identity.ProgramEntity: {Max: 3},
	}})
}

func running(executable string) func(*identity.Owner) {
	return func(o *identity.Owner) { o.Process.Executable = executable }
}

func of(user string) func(*identity.Owner) { return func(o *identity.Owner) { o.Process.Owner = user } }

// exited opens a claimant for exited processes of a program.
func (b *bench) exited(executable string, edit ...func(*identity.Owner)) attribution.Claimant {
	return b.open(0, append(edit, running(executable))...)
}

// program returns the account of a program in no container, or nil.
func (b *bench) program(executable, user string) *Account {
	for a := range b.e.Ledger().Accounts {
		if p := &a.Owner.Process; a.Entity == identity.ProgramEntity && a.Owner.Container.ID == "" && p.Executable == executable && p.Owner == user {
			return a
		}
	}
	return nil
}

func (b *bench) programEnergy(executable, user string) units.Energy {
	a := b.program(executable, user)
	require.NotNil(b.t, a, "program %s of %q", executable, user)
	return a.Amounts(pkg).Energy
}

func TestProcessesWithoutASeriesAreReportedByProgram(t *testing.T) {
	b := programs(t, ByPIDAndProgram)
	small, twin, large := b.open(1, running("cc")), b.open(2, running("cc")), b.open(3, running("ld"))
	b.collect(map[attribution.Claimant]int{small: 1, twin: 2, large: 10})
	assert.Equal(t, 3*units.Joule, b.programEnergy("cc", ""))
	assert.Equal(t, 10*units.Joule, b.energy(identity.ProcessEntity, "3"))
	assert.Nil(t, b.program("ld", ""), "its only process has a series")
	assert.Zero(t, b.energy(identity.ProcessEntity, "other"))
	requireConserved(t, b.e, byKind{})
}

func TestAProcessThatRanWhenTheEngineBeganIsNotYoung(t *testing.T) {
	b := newUnobserved(t, Config{Processes: ByPIDAndProgram, Limits: limited(identity.ProcessEntity, Limit{MinAge: time.Hour})})
	daemon := b.open(1, running("sshd"))
	b.e.Observe(&b.iv)
	b.collect(map[attribution.Claimant]int{daemon: 1})
	assert.Equal(t, 1*units.Joule, b.energy(identity.ProcessEntity, "1"))

	b.restart()
	b.collect(map[attribution.Claimant]int{b.open(2, running("cron")): 2})
	assert.NotNil(t, b.find(identity.ProcessEntity, "2"), "it ran when the receiver started again")
}

// A user gives each of its processes another name.
func TestAStormOfNamesKeepsABoundedNumberOfPrograms(t *testing.T) {
	b := programs(t, ByProgram)
	for i := range 30 {
		joules := map[attribution.Claimant]int{}
		var ids []attribution.Claimant
		for k := range 500 {
			id := b.exited(fmt.Sprint(i, "-", k))
			joules[id], ids = 1, append(ids, id)
		}
		b.collect(joules)
		for _, id := range ids {
			b.e.Close(id)
		}
		b.deliver()
		assert.LessOrEqual(t, len(b.e.candidates[identity.ProgramEntity]), maxCandidatePrograms+500)
		assert.LessOrEqual(t, b.e.live[identity.ProgramEntity], 3)
	}
	b.e.Shrink()
	assert.Empty(t, b.e.claimants)
	assert.LessOrEqual(t, len(b.e.accounts), maxCandidatePrograms+500+20)
}

func TestARestoredProgramContinuesWithoutItsProcesses(t *testing.T) {
	b := programs(t, ByPIDAndProgram)
	cc := b.exited("cc", of("alice"))
	b.collect(map[attribution.Claimant]int{cc: 3})
	start := b.program("cc", "alice").Start
	b.restart()
	b.observe(0, 1, 1)
	assert.False(t, b.program("cc", "alice").Ended())
	b.observe(2*units.Joule, 1, 1, attribution.Claim{Claimant: b.exited("cc", of("alice")), CPU: 1, ShortLived: true})
	assert.Equal(t, 5*units.Joule, b.programEnergy("cc", "alice"))
	assert.Equal(t, start, b.program("cc", "alice").Start)
}
