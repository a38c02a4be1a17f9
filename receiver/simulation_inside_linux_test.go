// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// inside checks what no metric of a run shows: the energy of each zone, deferred energy, and who
// claims CPU time.
type inside struct {
	w        *world
	counters map[string]*counter          // by zone id
	bases    map[int]units.Energy         // by the number of the zone
	unshared map[power.Class]units.Energy // of zones, from before the totals began at 0
	ran      time.Duration                // CPU time of all tasks until the baseline
	claimed  units.CPUTime                // since then
	untraced units.CPUTime                // the most that an exact source reports as not found since then
}

func newInside(w *world) *inside {
	return &inside{w: w, counters: map[string]*counter{}, bases: map[int]units.Energy{}, unshared: map[power.Class]units.Energy{}}
}

// counter is the specification's rule for one energy counter, implemented a second time as plainly
// as possible.
type counter struct {
	total, last uint64
	at          time.Time
	seen        bool
	of          *power.Zone // of a zone that is not read from a file
}

// add adds a raw value of a file.
func (c *counter) add(raw uint64, at time.Time) {
	const wrapsAt = 262_143_328_850
	var delta uint64
	switch {
	case !c.seen:
	case raw >= c.last:
		delta = raw - c.last
	case c.last <= wrapsAt && c.last-raw > wrapsAt/16384:
		delta = wrapsAt - c.last + raw
	}
	if c.seen && float64(delta)/1e6 > 1500*(at.Sub(c.at).Seconds()+0.01) {
		delta = 0
	}
	c.total += delta
	c.last, c.at, c.seen = raw, at, true
}

// addReading adds a reading of a meter. The first good reading of a zone in the place of another is
// the baseline.
func (c *counter) addReading(r *power.Reading) {
	if r.Zone != c.of {
		if r.Err != nil {
			return
		}
		c.of, c.last = r.Zone, uint64(r.Total)
	}
	c.total += uint64(r.Total) - c.last
	c.last, c.seen = uint64(r.Total), true
}

func (in *inside) counter(id string) *counter {
	c := in.counters[id]
	if c == nil {
		c = &counter{}
		in.counters[id] = c
	}
	return c
}

// observeRead notes the value of a counter that the receiver has read.
func (in *inside) observeRead(path string, got []byte, err error) {
	id, ok := strings.CutSuffix(path, "/energy_uj")
	if !ok || err != nil || !strings.HasSuffix(string(got), "\n") {
		return
	}
	if raw, err := strconv.ParseUint(strings.TrimSpace(string(got)), 10, 64); err == nil {
		in.counter(filepath.Base(id)).add(raw, in.w.life.Host.Now())
	}
}

// begun reports whether the receiver has a baseline.
func (in *inside) begun() bool {
	return in != nil && in.w.run.s.attributor != nil && in.w.run.s.attributor.Begun()
}

// present returns the zone kinds that are measured, with their energy.
func (in *inside) present() map[power.Class]units.Energy {
	l, kinds := in.w.run.s.attributor, map[power.Class]units.Energy{}
	ledger := &l.Ledger.Totals
	for i, class := range l.Kinds {
		if k := &ledger.Kinds[i]; k.Present {
			kinds[class] = k.Active + k.Idle + ledger.Kinds[i].Deferred
		}
	}
	return kinds
}

// deferred returns the deferred energy of each zone kind, in µJ. It takes no lock: the store calls it
// while the scraper holds its lock.
func (in *inside) deferred() map[power.Kind]int64 {
	l, kinds := in.w.run.s.attributor, map[power.Kind]int64{}
	for i, class := range l.Kinds {
		kinds[class.Zone] += int64(l.Ledger.Kinds[i].Deferred)
	}
	return kinds
}

// failed returns the readings that failed last.
func (in *inside) failed() []power.Reading { return in.w.run.s.meters.Set.Failed() }

// begin notes the baseline.
func (in *inside) begin() {
	if in.begun() {
		in.ran = in.w.life.Ran()
	}
}

// stamp returns the time stamp of the last reading.
func (in *inside) stamp() pcommon.Timestamp {
	return pcommon.NewTimestampFromTime(in.w.run.s.windows.Timeline.Stamp)
}

// shrink frees memory after every third scan, as after a burst of processes. No result may change.
func (in *inside) shrink() {
	if table := in.w.run.s.node.CPU.Table(); in.begun() && table.Scans()%3 == 0 && !in.w.plan.restarts {
		in.w.run.s.attributor.Collector.Shrink(table)
	}
}

// byBPF reports whether procfs has not replaced BPF.
func (in *inside) byBPF() bool { return in.w.run.s.node.CPU.Exact() }

// rounding returns the most by which a process's CPU time may exceed what it used: user and system
// time are in ticks.
func (in *inside) rounding() time.Duration {
	if in.byBPF() {
		return 0
	}
	return 2 * hostsim.Tick
}

// check checks the last interval.
func (in *inside) check() {
	l := in.w.run.s.attributor
	if !in.begun() || !l.Collector.Last().ReadAt.Equal(in.w.life.Host.Now()) {
		return // nothing was observed
	}
	in.checkZones()
	iv := l.Collector.Interval()
	node := &iv.Domains[0]
	if node.Busy > node.Total || iv.Elapsed < 0 {
		in.w.fail("busy %v of %v, elapsed %v", time.Duration(node.Busy), time.Duration(node.Total), iv.Elapsed)
	}
	for _, c := range node.Claims {
		in.claimed += c.CPU
	}
	if in.byBPF() {
		in.untraced += in.w.run.s.node.CPU.Table().Unseen.Untraced
	}
	if topology := in.w.run.s.node.CPU.Topology(); topology != nil {
		in.checkDomains(node, iv.Domains[1:1+len(topology.Domains())])
	}
	if *simSeed != 0 && testing.Verbose() {
		fmt.Printf("%v: busy %v of %v, unattributed %v, claims %+v, ran %v\n", in.w.life.Now(), time.Duration(node.Busy), time.Duration(node.Total),
			time.Duration(node.Unattributed), node.Claims, in.w.life.Ran()-in.ran)
	}
}

// checkZones checks that zones have what their meters counted, and that kinds have what their zones
// have.
func (in *inside) checkZones() {
	l := in.w.run.s.attributor
	readings, zones, ledger := l.Collector.Last().Readings, l.Collector.Zones(), &l.Ledger.Totals
	for i := range readings {
		if r := &readings[i]; isSlow(r.Zone.Kind) {
			in.counter(r.Zone.ID).addReading(r)
		}
	}
	sums := map[power.Class]units.Energy{}
	for i := range ledger.Zones {
		z, of := &ledger.Zones[i], &zones[i]
		sums[power.Class{Zone: of.Kind, Method: of.Method}] += z.Energy
		c := in.counters[of.ID]
		if !z.Present || c == nil || !c.seen || in.w.run.number > 1 && in.w.faults.Fired[hostsim.ZoneVanishes.String()] > 0 {
			continue // where a package vanishes, the simulated machine keeps its other zones, and a start takes them for zones of the node
		}
		base, ok := in.bases[i]
		if !ok {
			base = units.Energy(c.total) - z.Energy
			in.bases[i] = base
			if z.Energy != 0 && in.w.backend.resume.how == fresh {
				in.w.fail("zone %s begins with %d µJ", of.ID, z.Energy)
			}
		}
		if z.Energy+base != units.Energy(c.total) {
			in.w.fail("zone %s has %d µJ, its meter counted %d", of.ID, z.Energy, units.Energy(c.total)-base)
		}
	}
	for i, class := range l.Kinds {
		k := &ledger.Kinds[i]
		if !k.Present && in.w.run.number > 1 {
			continue
		}
		got := k.Active + k.Idle + ledger.Kinds[i].Deferred
		if _, begun := in.unshared[class]; !begun && in.w.fired[zeroed] > 0 { // deferred energy from before is in the totals, and not in the zones
			in.unshared[class] = sums[class] - got
		}
		if want := sums[class] - in.unshared[class]; got != want {
			in.w.fail("%s: active, idle and deferred are %d µJ, the zones %d", class, got, want)
		}
	}
}

// checkDomains checks that the packages' claims add up to the node's.
func (in *inside) checkDomains(node *attribution.Usage, packages []attribution.Usage) {
	total := func(usages ...attribution.Usage) map[attribution.Claimant]attribution.Claim {
		claims := map[attribution.Claimant]attribution.Claim{}
		for _, u := range usages {
			for _, c := range u.Claims {
				all := claims[c.Claimant]
				all.CPU += c.CPU
				for i, weight := range c.Weights {
					all.Weights[i] += weight
				}
				claims[c.Claimant] = all
			}
		}
		return claims
	}
	if node, divided := total(*node), total(packages...); !maps.Equal(node, divided) {
		in.w.fail("the node's claims are %v, and those of all packages %v", node, divided)
	}
	var unattributed units.CPUTime
	for i := range packages {
		u := &packages[i]
		if unattributed += u.Unattributed; u.Busy > u.Total {
			in.w.fail("package %d is busy for %v of %v", i, time.Duration(u.Busy), time.Duration(u.Total))
		}
	}
	if unattributed != node.Unattributed {
		in.w.fail("of %v unattributed the packages have %v", time.Duration(node.Unattributed), time.Duration(unattributed))
	}
}

// end checks that the claims are the CPU time of all tasks, and that no account of an ended task is
// left.
func (in *inside) end() {
	if !in.begun() {
		in.w.fail("nothing could be measured without faults")
		return
	}
	if in.w.run.number == 1 && !in.w.plan.restarts {
		in.checkClaims()
	}
	for a := range in.w.run.s.attributor.Ledger.Accounts {
		if a.Entity == identity.ProgramEntity || a.Owner.Unit.Name == "init.scope" { // programs fade, and init continues
			continue
		}
		if pid := a.Owner.Process.PID; !a.Other && pid != 1 {
			in.w.fail("an account is left: %+v", *a)
		}
	}
	if _, n := in.w.run.s.attributor.Collector.Held(); n > 0 {
		in.w.fail("%d containers are left", n)
	}
}

func (in *inside) checkClaims() {
	ran, fired := units.CPUTime(in.w.life.Ran()-in.ran), in.w.faults.Fired
	most := ran + units.CPUTime(len(in.w.life.Programs))*units.CPUTime(in.rounding())
	// If procfs does not show the cgroup of a process, or that the process still runs, its time may
	// also be inferred, and time of unscanned intervals may be counted twice: from its parent's
	// child time, and from its cgroup's counter.
	if blind := !in.byBPF() && fired["reads that fail"]+fired["short read"] > 0; in.claimed > most && !blind {
		in.w.fail("%v were claimed, and %v ran", time.Duration(in.claimed), time.Duration(ran))
	}
	// The time of process exits that were missed, or reported after the wait for them has ended, is
	// unclaimed, and BPF reports it as such.
	if in.byBPF() && in.claimed+in.untraced < ran {
		in.w.fail("of %v that ran, %v were claimed, and at most %v untraced",
			time.Duration(ran), time.Duration(in.claimed), time.Duration(in.untraced))
	}
}
