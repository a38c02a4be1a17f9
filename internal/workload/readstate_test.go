// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const second = time.Second

// examined is a process of a source that counts executions and moves, and the state of its reads
// after its files were read at a time.
func examined(at time.Duration) (*proc.Process, *readState) {
	p := &proc.Process{Sight: proc.Sight{Comm: proc.Comm{'a'}}}
	p.Cgroups, p.Execs, p.Cgroup = 77, 3, 5
	r := &readState{settled: true}
	r.record(p, at)
	return p, r
}

func TestAProcessThatOnlyRanIsFresh(t *testing.T) {
	for name, c := range map[string]struct {
		now  time.Duration
		edit func(*proc.Process, *readState)
		want bool
	}{
		"it only ran":                     {11 * second, func(*proc.Process, *readState) {}, true},
		"an hour ago":                     {10*second + lookAgain, func(*proc.Process, *readState) {}, false},
		"the clock went back":             {9 * second, func(*proc.Process, *readState) {}, false},
		"it executed a program":           {10 * second, func(p *proc.Process, _ *readState) { p.Execs++ }, false},
		"it moved":                        {10 * second, func(p *proc.Process, _ *readState) { p.Cgroups++ }, false},
		"its cgroup is another cgroup":    {10 * second, func(p *proc.Process, _ *readState) { p.Cgroup++ }, false},
		"it has another name":             {11 * second, func(p *proc.Process, _ *readState) { p.Comm[0]++ }, true},
		"it has another name for long":    {10*second + lookSoon, func(p *proc.Process, _ *readState) { p.Comm[0]++ }, false},
		"the source no longer reports it": {10 * second, func(p *proc.Process, _ *readState) { p.Cgroups, p.Execs = 0, 0 }, false},
		"a file could not be read":        {11 * second, func(_ *proc.Process, r *readState) { r.settled, r.attempts = false, 1 }, false},
		"a file often could not be read":  {11 * second, func(_ *proc.Process, r *readState) { r.settled, r.attempts = false, maxAttempts }, true},
	} {
		p, r := examined(10 * second)
		c.edit(p, r)
		assert.Equal(t, c.want, r.isFresh(p, c.now), name)
	}
}

func TestOnlySettledProcessesAreSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		seen, now time.Duration
		edit      func(*proc.Process, *readState)
		want      bool
	}{
		"old":                                {settledAge, settledAge + second, func(*proc.Process, *readState) {}, true},
		"young when it was examined":         {settledAge - 1, settledAge + second, func(*proc.Process, *readState) {}, false},
		"with another name":                  {settledAge, settledAge + second, func(p *proc.Process, _ *readState) { p.Comm[0]++ }, false},
		"after the clock went back":          {settledAge + second, settledAge, func(*proc.Process, *readState) {}, false},
		"of a source that counts executions": {settledAge, settledAge + second, func(p *proc.Process, _ *readState) { p.Cgroups = 77 }, false},
		"whose files could not be read":      {settledAge, settledAge + second, func(_ *proc.Process, r *readState) { r.settled = false }, false},
	} {
		p, r := examined(c.seen)
		p.Cgroups = 0
		c.edit(p, r)
		assert.Equal(t, c.want, r.canWait(p, c.now), name)
	}
}

func TestProcessesAreNotAllLookedAtAgainTogether(t *testing.T) {
	const processes = 1000
	due := map[time.Duration]int{}
	for slot := range int32(processes) {
		const seen = time.Hour + 3*second
		next := nextLook(slot, seen)
		assert.True(t, next > seen && next <= seen+lookAgain, "slot %d: %v", slot, next)
		assert.Equal(t, next+lookAgain, nextLook(slot, next), "slot %d", slot)
		due[next/(lookAgain/30)]++
	}
	for at, n := range due {
		assert.LessOrEqual(t, n, 2*processes/30, "in thirtieth %d of the time", at)
	}
}
