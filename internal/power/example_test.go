// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// A counter of a socket wraps at 262 kJ. A step back that the socket can have used is a wraparound;
// any other is a reset.
func ExampleCounter() {
	const wrapAt = 262_143_328_850
	counter := power.NewCounter(1500, wrapAt) // a socket stays below 1.5 kW
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, raw := range []units.Energy{262_100_000_000, 262_140_000_000, 10_000_000, 5_000_000} {
		added, event := counter.Add(raw, at)
		fmt.Println(added.Joules(), event == power.Wrapped, event == power.Rebased)
		at = at.Add(time.Second)
	}
	fmt.Println("total", counter.Total().Joules())
	// Output:
	// 0 false false
	// 40 false false
	// 13.32885 true false
	// 0 false true
	// total 53.32885
}
