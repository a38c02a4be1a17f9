// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// programs returns an engine that reports at most two processes by PID and three programs.
func programs(t testing.TB, processes ProcessSeries) *bench {
	return newBench(t, Config{Processes: processes, Limits: Limits{
		units.ProcessEntity: {MinEnergy: 5 * units.Joule, Max: 2}, units.ProgramEntity: {Max: 3},
	}})
}

func running(executable string) func(*units.Owner) {
	return func(o *units.Owner) { o.Process.Executable = executable }
}

func of(user string) func(*units.Owner) { return func(o *units.Owner) { o.Process.Owner = user } }

// exited opens a claimant for exited processes of a program.
func (b *bench) exited(executable string, edit ...func(*units.Owner)) Claimant {
	return b.open(0, append(edit, running(executable))...)
}

// program returns the account of a program in no container, or nil.
func (b *bench) program(executable, user string) *Account {
	for a := range b.e.Ledger().Accounts {
		if p := &a.Owner.Process; a.Entity == units.ProgramEntity && a.Owner.Container.ID == "" && p.Executable == executable && p.Owner == user {
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
	b.collect(map[Claimant]int{small: 1, twin: 2, large: 10})
	assert.Equal(t, 3*units.Joule, b.programEnergy("cc", ""))
	assert.Equal(t, 10*units.Joule, b.energy(units.ProcessEntity, "3"))
	assert.Nil(t, b.program("ld", ""), "its only process has a series")
	assert.Zero(t, b.energy(units.ProcessEntity, "other"))
	requireConserved(t, b.e, byKind{})
}

func TestAYoungProcessIsInItsProgram(t *testing.T) {
	b := newBench(t, Config{Processes: ByPIDAndProgram, Limits: Limits{units.ProcessEntity: {MinAge: 3 * time.Second, Max: 5}}})
	cc := b.open(2, running("cc"))
	for range 3 {
		b.collect(map[Claimant]int{cc: 10})
		assert.Nil(t, b.find(units.ProcessEntity, "2"))
	}
	b.collect(map[Claimant]int{cc: 10})
	assert.Equal(t, 30*units.Joule, b.programEnergy("cc", ""))
	assert.Equal(t, 10*units.Joule, b.energy(units.ProcessEntity, "2"))
	requireConserved(t, b.e, byKind{})
}

func TestAProcessThatRanWhenTheEngineBeganIsNotYoung(t *testing.T) {
	b := &bench{t: t, at: baseline, iv: Interval{At: baseline, Domains: []Usage{{}}, Zones: []ZoneReading{{Zone: 0, Kind: pkg, OK: true}}}}
	b.node = &b.iv.Domains[0]
	b.e = New(Config{Processes: ByPIDAndProgram, Limits: Limits{units.ProcessEntity: {MinAge: time.Hour}}}, baseline)
	daemon := b.open(1, running("sshd"))
	b.e.Observe(&b.iv)
	b.collect(map[Claimant]int{daemon: 1})
	assert.Equal(t, 1*units.Joule, b.energy(units.ProcessEntity, "1"))

	restored := New(b.e.cfg, baseline)
	var state State
	b.e.State(&state)
	restored.Restore(&state)
	later := restored.Open(units.Owner{Process: units.Process{PID: 2, Executable: "cron"}}, b.at)
	b.e = restored
	b.collect(map[Claimant]int{later: 2})
	assert.NotNil(t, b.find(units.ProcessEntity, "2"), "it ran when the receiver started again")
}

func TestExitedProcessesAreInTheirProgram(t *testing.T) {
	for _, processes := range []ProcessSeries{ByPIDAndProgram, ByProgram} {
		b := programs(t, processes)
		cc := b.exited("cc", of("alice"))
		b.observe(7*units.Joule, 1, 1, Claim{Claimant: cc, ShortLived: true, CPU: 1})
		b.e.Close(cc)
		assert.Equal(t, 7*units.Joule, b.programEnergy("cc", "alice"))
		assert.EqualValues(t, 1, b.program("cc", "alice").CPU)
		again := b.exited("cc", of("alice"))
		b.collect(map[Claimant]int{again: 2})
		assert.Equal(t, 9*units.Joule, b.programEnergy("cc", "alice"), "its series continues")
		assert.False(t, b.program("cc", "alice").Ended)
	}
}

func TestAProcessWithItsOwnSeriesHasShortLivedProcessesBesideItInItsProgram(t *testing.T) {
	b := programs(t, ByPIDAndProgram)
	shell := b.open(1, running("sh"))
	b.collect(map[Claimant]int{shell: 10})
	b.observe(4*units.Joule, 1, 1, Claim{Claimant: shell, ShortLived: true, CPU: 1})
	assert.Equal(t, 10*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 4*units.Joule, b.programEnergy("sh", ""))
}

func TestProgramsDifferByUserContainerAndUnit(t *testing.T) {
	b := newBench(t, Config{Processes: ByProgram})
	edits := [][]func(*units.Owner){
		{}, {of("alice")}, {inContainer("A")}, {inContainer("B")}, {inUnit("a.service")}, {inContainer("A"), of("alice")},
		{func(o *units.Owner) { o.Process.Descendants = true }},
	}
	joules := map[Claimant]int{}
	for i, edit := range edits {
		joules[b.open(int32(i+1), append(edit, running("sh"))...)] = 1
	}
	joules[b.open(100, running("sh"))] = 1
	b.collect(joules)
	assert.Equal(t, len(edits), b.e.live[units.ProgramEntity])
	assert.Zero(t, b.energy(units.ProcessEntity, "other"))
}

func TestProgramsWithoutASeriesAreInTheOverflowSeriesOfProcesses(t *testing.T) {
	b := programs(t, ByProgram)
	joules := map[Claimant]int{}
	for i := range 5 {
		joules[b.open(int32(i+1), running(fmt.Sprint("program ", i)))] = 10 + i
	}
	b.collect(joules)
	assert.Equal(t, 14*units.Joule, b.programEnergy("program 4", ""))
	assert.Equal(t, 3, b.e.live[units.ProgramEntity])
	assert.Equal(t, (10+11)*units.Joule, b.energy(units.ProcessEntity, "other"))
	requireConserved(t, b.e, byKind{})
}

func TestAProcessThatLosesItsSeriesBeforeAnEmissionMergesIntoItsProgram(t *testing.T) {
	b := programs(t, ByPIDAndProgram)
	first, second, third := b.open(1, running("a")), b.open(2, running("b")), b.open(3, running("b"))
	b.observe(12*units.Joule, 1, 1, Claim{Claimant: first, CPU: 1}, Claim{Claimant: second, CPU: 1}) // both have a series at once
	require.NotNil(t, b.find(units.ProcessEntity, "2"))
	start := b.find(units.ProcessEntity, "2").Start
	b.collect(map[Claimant]int{first: 100, second: 1, third: 50})
	assert.Nil(t, b.find(units.ProcessEntity, "2"))
	assert.Equal(t, 7*units.Joule, b.programEnergy("b", ""))
	assert.Equal(t, start, b.program("b", "").Start, "its total was 0 when that of the process was")
	assert.Zero(t, b.energy(units.ProcessEntity, "other"))
	requireConserved(t, b.e, byKind{})
}

func TestAProgramOutlivesItsProcessesUntilItsUsageHasFaded(t *testing.T) {
	b := programs(t, ByPIDAndProgram)
	parent, cc := b.open(1, running("make")), b.exited("cc")
	b.collect(map[Claimant]int{cc: 4})
	b.e.Close(cc)
	collections := 0
	for b.program("cc", "") != nil && collections < 100 {
		b.collect(map[Claimant]int{parent: 1})
		b.deliver()
		collections++
	}
	assert.InDelta(t, 34, collections, 8, "4 J decay to 1 mJ")
	assert.NotNil(t, b.program("make", ""), "it has a process")
}

func TestALargerProgramTakesThePlaceOfAFadingOne(t *testing.T) {
	b := programs(t, ByProgram)
	old := []Claimant{b.exited("a"), b.exited("b"), b.exited("c")}
	b.collect(map[Claimant]int{old[0]: 30, old[1]: 20, old[2]: 10})
	b.deliver()
	for _, id := range old {
		b.e.Close(id)
	}
	b.collect(map[Claimant]int{b.open(1, running("d")): 40})
	require.NotNil(t, b.program("d", ""))
	assert.True(t, b.program("c", "").Ended)
	b.deliver()
	assert.Nil(t, b.program("c", ""))
}

// A user gives each of its processes another name.
func TestAStormOfNamesKeepsABoundedNumberOfPrograms(t *testing.T) {
	b := programs(t, ByProgram)
	for i := range 30 {
		joules := map[Claimant]int{}
		var ids []Claimant
		for k := range 500 {
			id := b.exited(fmt.Sprint(i, "-", k))
			joules[id], ids = 1, append(ids, id)
		}
		b.collect(joules)
		for _, id := range ids {
			b.e.Close(id)
		}
		b.deliver()
		assert.LessOrEqual(t, len(b.e.candidates[units.ProgramEntity]), maxCandidatePrograms+500)
		assert.LessOrEqual(t, b.e.live[units.ProgramEntity], 3)
	}
	b.e.Compact()
	assert.LessOrEqual(t, len(b.e.ledger.accounts), maxCandidatePrograms+500+20)
}

func TestARestoredProgramContinuesWithoutItsProcesses(t *testing.T) {
	b := programs(t, ByPIDAndProgram)
	cc := b.exited("cc", of("alice"))
	b.collect(map[Claimant]int{cc: 3})
	start := b.program("cc", "alice").Start
	var s State
	b.e.State(&s)
	b.e.Emitted()
	restored := New(b.e.cfg, b.at)
	restored.Restore(&s)
	b.e = restored
	b.observe(0, 1, 1)
	assert.False(t, b.program("cc", "alice").Ended)
	b.observe(2*units.Joule, 1, 1, Claim{Claimant: b.exited("cc", of("alice")), CPU: 1, ShortLived: true})
	assert.Equal(t, 5*units.Joule, b.programEnergy("cc", "alice"))
	assert.Equal(t, start, b.program("cc", "alice").Start)
}

func TestIdleEnergyOfProcessesWithoutASeriesIsTheirProgram(t *testing.T) {
	for _, idle := range []IdleAllocation{IdleEqual, IdleUsed} {
		b := newBench(t, Config{Processes: ByProgram, Rules: Rules{Idle: idle}})
		cc, twin, ld := b.open(1, running("cc")), b.open(2, running("cc")), b.open(3, running("ld"))
		for range 2 {
			b.observe(12*units.Joule, 1, 2, Claim{Claimant: cc, CPU: 1}, Claim{Claimant: twin, CPU: 1}, Claim{Claimant: ld, CPU: 1})
		}
		assert.Equal(t, 8*units.Joule, b.program("cc", "").Amounts(pkg).Idle, "rule %d", idle)
		assert.Equal(t, 4*units.Joule, b.program("ld", "").Amounts(pkg).Idle, "rule %d", idle)
	}
}
