// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// BenchmarkEmission measures the emission of processes in one zone. new has all series begin, with their zero points.
// parts is the division of the result into requests of bounded size.
func BenchmarkEmission(b *testing.B) {
	cfg := simpleConfig()
	for _, n := range []int{500, 10_000} {
		engine, observe := manySeries(n)
		zones := onePackage()
		withZeros := emit.New(emit.Config{
			MetricsBuilderConfig: cfg.MetricsBuilderConfig, Kinds: []emit.Column{{Class: power.Class{Zone: power.Package, Method: power.Measured}}}, ZeroPoints: true,
		})
		b.Run(fmt.Sprint(n, "/new"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				withZeros.Emit(&engine.Totals, zones, nil, time.Unix(11, 0))
			}
		})
		engine.Emitted()
		engine.Outcome(ledger.Acknowledged)
		observe() // so that there is power
		b.Run(fmt.Sprint(n, "/settled"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				withZeros.Emit(&engine.Totals, zones, nil, time.Unix(11, 0))
			}
		})
		b.Run(fmt.Sprint(n, "/parts"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				md := withZeros.Emit(&engine.Totals, zones, nil, time.Unix(11, 0))
				b.StartTimer()
				for range parts(md) {
				}
			}
		})
	}
}

// manySeries returns an engine with the energy of n processes in one zone. observe observes an
// interval in which all use the same.
func manySeries(n int) (engine *ledger.Ledger, observe func()) {
	engine = ledger.New(ledger.Config{}, time.Unix(1, 0))
	iv := attribution.Interval{
		At: time.Unix(11, 0), Elapsed: 10 * time.Second,
		Domains: []attribution.Usage{{Busy: 1, Total: 2}}, Zones: []attribution.ZoneReading{{OK: true}},
	}
	observe = func() {
		engine.Add(engine.Sharer().Share(&iv))
		iv.Zones[0].Total += 100 * units.Joule
	}
	observe()
	for i := range n {
		owner := identity.Owner{Process: identity.Process{
			PID: int32(i + 1), Created: "2026-01-02T03:04:05.00Z", Executable: "app", Path: "/usr/bin/app",
		}}
		iv.Domains[0].Claims = append(iv.Domains[0].Claims, attribution.Claim{Claimant: engine.Open(owner, time.Unix(1, 0)), CPU: 1})
	}
	observe()
	return engine, observe
}

func onePackage() []power.Zone {
	return []power.Zone{{ID: "intel-rapl:0", Name: "package-0", Kind: power.Package, Method: power.Measured}}
}
