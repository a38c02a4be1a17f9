// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var seriesTable = flag.Bool("series.table", false, "count series for several limits, for dev/series.md")

// churn is an hour of a node on which 30 processes start each second and live up to a minute,
// beside 300 daemons. They are of 600 programs in 40 containers.
func churn(t testing.TB, cfg Config) (pids, programs int, named float64) {
	r := rand.New(rand.NewPCG(1, 2))
	b := newBench(t, cfg)
	type life struct {
		id       attribution.Claimant
		millis   float64 // of CPU time per collection
		collects int
	}
	pid := int32(0)
	start := func(collects int, millis float64) life {
		pid++
		program := int(r.ExpFloat64() * 100) // few are run often
		in := inContainer(fmt.Sprint("c", program%40))
		return life{b.open(pid, in, running(fmt.Sprint("p", min(program, 600)))), millis, collects}
	}
	var lives []life
	for range 300 {
		lives = append(lives, start(1<<30, r.ExpFloat64()*20))
	}
	seen := map[string]bool{}
	for range 360 {
		for range 300 {
			lives = append(lives, start(1+r.IntN(6), r.ExpFloat64()*100))
		}
		var claims []attribution.Claim
		sum := 0.0
		for _, l := range lives {
			claims = append(claims, attribution.Claim{Claimant: l.id, CPU: units.CPUTime(l.millis * float64(ms))})
			sum += l.millis
		}
		b.at = b.at.Add(9 * time.Second)
		b.iv.EndsCollection = true
		b.observe(units.Energy(sum*0.05*float64(units.Joule)), 1, 1, claims...) // 50 W per CPU
		b.iv.EndsCollection = false
		for a := range b.e.Ledger().Accounts {
			if !a.Other && a.Entity.OfProcesses() {
				key := fmt.Sprint(a.Entity, a.Owner.Process.PID, a.Owner.Process.Executable, a.Owner.Container.ID)
				if !seen[key] && a.Entity == identity.ProcessEntity {
					pids++
				} else if !seen[key] {
					programs++
				}
				seen[key] = true
			}
		}
		b.deliver()
		kept := lives[:0]
		for _, l := range lives {
			if l.collects--; l.collects > 0 {
				kept = append(kept, l)
			} else {
				b.e.Close(l.id)
			}
		}
		lives = kept
	}
	k := &b.e.Ledger().Kinds[pkg]
	return pids, programs, 1 - float64(b.energy(identity.ProcessEntity, "other"))/float64(k.Active)
}

// dev/series.md has the table.
func TestAChurningNodeHasFewSeriesByDefault(t *testing.T) {
	maxima := []struct{ processes, programs int }{{50, 500}}
	if *seriesTable {
		maxima = append(maxima, []struct{ processes, programs int }{{500, 0}, {10, 500}, {20, 500}, {100, 500}, {500, 500}, {50, 100}, {50, 200}, {50, 1000}}...)
	}
	for i, m := range maxima {
		cfg := Config{Processes: ByPIDAndProgram, Limits: Limits{
			identity.ProcessEntity: {MinEnergy: units.Joule, MinAge: time.Minute, Max: m.processes, Births: 500},
			identity.ProgramEntity: {Max: m.programs, Births: 500},
		}}
		if m.programs == 0 {
			cfg.Processes, cfg.Limits[identity.ProcessEntity].MinAge, cfg.Limits[identity.ProcessEntity].Births = ByPID, 0, 0
		}
		pids, programs, named := churn(t, cfg)
		t.Logf("| %d | %d | %d | %d | %.1f %% |", m.processes, m.programs, pids, programs, 100*named)
		if i == 0 {
			assert.Less(t, pids+programs, 10_000)
			assert.Greater(t, named, 0.97)
		}
	}
}
