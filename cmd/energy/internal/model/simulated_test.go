// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var testMachine = machine.Machine{
	CPU: "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", Vendor: "GenuineIntel", Family: 6, Model: 85, Stepping: 7,
	Threads: 96, Cores: 48, Sockets: 2, Memory: 384 << 30,
}

const began = 1_700_000_000 // seconds of Unix

// simulatedPower is a machine whose true power is known.
type simulatedPower struct {
	packages, dram, board model.Curve // over utilization
	load                  func(second int) float64
	// bmc returns what the BMC shows, given the true power of each second.
	bmc func(history []float64) float64
	// every is the number of seconds between two snapshots.
	every int
	// noise is the standard deviation of the power of the packages in a second, as a share.
	noise    float64
	restarts []int // seconds at which counters start at 0
	length   int   // of the levels of load in seconds
	// clock is the error of the clock of the wall meter in seconds.
	clock  float64
	random *rand.Rand

	history []float64
}

// curve returns a curve through pairs of a utilization and a power.
func curve(pairs ...float64) (c model.Curve) {
	for pair := range slices.Chunk(pairs, 2) {
		c = append(c, model.Point{Utilization: pair[0], Watts: pair[1]})
	}
	return c
}

// fleet returns a machine with a load that wanders, and with the packages of a two-socket server.
func fleet(seed uint64) *simulatedPower {
	s := &simulatedPower{
		packages: curve(0, 54.7, 0.1, 137.9, 0.3, 223.9, 0.6, 343.8, 1, 440.1),
		dram:     curve(0, 40, 0.1, 60, 1, 85),
		board:    curve(0, 90, 1, 120),
		bmc:      func(history []float64) float64 { return history[max(len(history)-13, 0)] },
		every:    10, noise: 0.02, random: rand.New(rand.NewPCG(seed, 1)),
	}
	until, level := 0.0, 0.0
	s.load = func(second int) float64 { // more often low than high
		if float64(second) >= until {
			until, level = float64(second)+40+s.random.Float64()*160, 1.05*math.Pow(s.random.Float64(), 2)
		}
		return min(max(level+0.02*level*s.random.NormFloat64(), 0), 1)
	}
	return s
}

// The meters of the server of Kavanagh and Djemame by its power. The BMC shows the output of the
// power supply, as the mean of a minute and in whole watts. RAPL has the CPUs and the memory.
func cpuPower(wall float64) float64 { return (wall - 41) / 1.18 }
func bmcPower(wall float64) float64 { return (wall - 3.15) / 1.05 }

var (
	kavanaghs = curve(0, 62, 0.3, 118, 0.7, 151, 1, 189)
	stairs    = []float64{0, 0.5, 0.1, 0.7, 0.2, 0.9, 0.3, 1, 0.6, 0.4, 0.8, 0.05}
)

// kavanagh returns a server with a power at the wall and with levels of load of so many seconds.
func kavanagh(wall model.Curve, seconds int, levels ...float64) *simulatedPower {
	s := &simulatedPower{length: seconds * len(levels), every: 5, clock: 7.3, random: rand.New(rand.NewPCG(1, 2))}
	for _, p := range wall {
		cpu := cpuPower(p.Watts)
		s.packages = append(s.packages, curve(p.Utilization, 0.9*cpu)...)
		s.dram = append(s.dram, curve(p.Utilization, 0.1*cpu)...)
		s.board = append(s.board, curve(p.Utilization, p.Watts-cpu)...)
	}
	s.load = func(second int) float64 {
		u := levels[min(second/seconds, len(levels)-1)]
		if u > 0 && u < 1 {
			u = min(max(u+0.004*s.random.NormFloat64(), 0), 1)
		}
		return u
	}
	s.bmc = func(history []float64) float64 {
		mean := 0.0
		minute := history[max(len(history)-60, 0):]
		for _, v := range minute {
			mean += v / float64(len(minute))
		}
		return math.Round(bmcPower(mean))
	}
	return s
}

// whole is the power at the wall.
func (s *simulatedPower) whole(u float64) float64 {
	return s.packages.Watts(u) + s.dram.Watts(u) + s.board.Watts(u)
}

// snapshots returns what a receiver on the machine reports.
func (s *simulatedPower) snapshots(seconds int) (all []*snapshot.Snapshot) {
	var pkg, dram, bmc, busy float64
	for second := range seconds {
		if slices.Contains(s.restarts, second) {
			pkg, dram, bmc = 0, 0, 0
		}
		u := s.load(second)
		p := s.packages.Watts(u) * (1 + s.noise*s.random.NormFloat64())
		s.history = append(s.history, p+s.dram.Watts(u)+s.board.Watts(u))
		pkg, dram, bmc, busy = pkg+p, dram+s.dram.Watts(u), bmc+s.bmc(s.history), busy+u
		if (second+1)%s.every == 0 {
			all = append(all, snapshotAt(second+1, busy/float64(s.every), pkg, dram, bmc))
			busy = 0
		}
	}
	return all
}

// snapshotAt returns a snapshot with the utilization and the energies of the packages, the memory
// and the whole machine in joules.
func snapshotAt(second int, busy, pkg, dram, whole float64) *snapshot.Snapshot {
	s := &snapshot.Snapshot{At: time.Unix(began+int64(second), 0), Busy: busy}
	zone := func(kind power.Kind, method power.Method, joules float64) {
		active := energy(joules / 4)
		z := snapshot.Zone{Active: active, Idle: energy(joules) - active}
		z.Zone, z.Method = kind, method
		s.Zones = append(s.Zones, z)
	}
	meter := func(id, kind string, part bool, joules float64) {
		s.Meters = append(s.Meters, snapshot.Meter{ID: id, Type: kind, Part: part, Energy: energy(joules)})
	}
	zone(power.Package, power.Measured, pkg)
	zone(power.DRAM, power.Measured, dram)
	zone(power.Platform, power.Measured, whole)
	zone(power.Core, power.Modeled, pkg/2)
	meter("intel-rapl:0", "cpu", false, pkg)
	meter("intel-rapl:0:0", "memory", false, dram)
	meter("intel-rapl:0:1", "cpu", true, 0.6*pkg)
	meter("host", "host", false, whole)
	return s
}

// record returns the record of the machine.
func (s *simulatedPower) record(seconds int) *Record {
	r := &Record{Machine: &testMachine}
	for _, one := range s.snapshots(seconds) {
		r.Add(one)
	}
	return r
}

// wall returns the CSV file of the wall meter.
func (s *simulatedPower) wall() string {
	var text strings.Builder
	text.WriteString("Time;Power (W)\n")
	for second, watts := range s.history {
		at := time.UnixMilli(int64((began + float64(second) + 0.5 + s.clock) * 1e3)).UTC().Format(time.RFC3339Nano)
		fmt.Fprintf(&text, "%s;%s\n", at, strings.Replace(fmt.Sprintf("%.2f", watts+0.5*s.random.NormFloat64()), ".", ",", 1))
	}
	return text.String()
}

func energy(joules float64) units.Energy { return units.Energy(joules * float64(units.Joule)) }
