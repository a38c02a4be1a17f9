// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// A node with four CPUs used 100 J in ten seconds, in which its CPUs were busy half of the time: by
// the default rule 50 J are active. One process used three quarters of the CPU time.
func ExampleLedger() {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	engine := ledger.New(ledger.Config{}, start)
	web := engine.Open(identity.Owner{Process: identity.Process{PID: 10, Executable: "web"}}, start)
	job := engine.Open(identity.Owner{Process: identity.Process{PID: 11, Executable: "job"}}, start)

	counter := attribution.ZoneReading{Total: 700 * units.Joule, OK: true}
	engine.Add(engine.Sharer().Share(&attribution.Interval{ // the baseline
		At: start, Domains: make([]attribution.Usage, 1), Zones: []attribution.ZoneReading{counter},
	}))
	counter.Total += 100 * units.Joule
	engine.Add(engine.Sharer().Share(&attribution.Interval{
		At: start.Add(10 * time.Second), Elapsed: 10 * time.Second,
		Domains: []attribution.Usage{{
			Busy: 20 * units.Second, Total: 40 * units.Second,
			Claims: []attribution.Claim{{Claimant: web, CPU: 15 * units.Second}, {Claimant: job, CPU: 5 * units.Second}},
		}},
		Zones: []attribution.ZoneReading{counter},
	}))

	kind := engine.Ledger().Kinds[0]
	fmt.Println("active", kind.Active.Joules(), "idle", kind.Idle.Joules())
	for account := range engine.Ledger().Accounts {
		if !account.Other {
			fmt.Println(account.Owner.Process.Executable, account.Amounts(0).Energy.Joules())
		}
	}
	// Output:
	// active 50 idle 50
	// web 37.5
	// job 12.5
}
