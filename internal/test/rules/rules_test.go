// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// machine has 4 CPUs on one socket.
var machine = Machine{CPUs: 4, TDP: 120, Rest: []Energy{{40, 2}}}

// interval is 10 s long. Two users have half of the CPUs. Some of the second user's processes
// have ended, and it ran at half the nominal clock rate. The sibling of the first user's CPU is
// busy half of the time.
func interval() *Interval {
	return &Interval{
		Seconds: 10,
		Sockets: []Socket{{Energy: Energy{1000, 100}, Busy: 20, Steal: 4, Total: 40, Memory: 8e9}},
		Users: []User{
			{Ticks: 12, CPU: 12, Processes: 1, On: []Part{{CPU: 12, Last: 12, Cycles: 12, Alone: 6, Memory: 6e9}}},
			{Ticks: 4, CPU: 8, Processes: 3, On: []Part{{CPU: 8, Last: 4, Cycles: 4, Alone: 4, Memory: 2e9}}},
		},
	}
}

func TestRulesOfOneInterval(t *testing.T) {
	for _, test := range []struct {
		name  string
		rule  Rule
		whole float64
		parts []Energy
	}{
		{"24 of 40 s are active, by 12 and 4 s of ticks", Kepler{}, 660, []Energy{{450, 45}, {150, 15}}},
		{"12 and 4 of 40 s", Scaphandre{}, 1100, []Energy{{300, 30}, {100, 10}}},
		{"600 and 80 J above rest, by 12 and 4 s of ticks", Kavanagh{machine}, 680, []Energy{{450, 60}, {150, 20}}},
		{"0.6 and 0.2 to the power 0.3, 0.75 and 0.25 to the power 0.2", EnergAt{machine}, 680, []Energy{{514.750, 75.527}, {370.220, 60.629}}},
		{"6 + 6 · 0.575 and 4 of cycles", METRION{machine}, 680, []Energy{{421.561, 56.208}, {178.439, 23.792}}},
		{"12 and 8 of 20 s, 6 and 2 of 8 GB", CEEMS{}, 1100, []Energy{{600, 75}, {400, 25}}},
		{"120 W at 0.1 + 0.9 · 0.5³ for 10 s; 0.3 and 0.1 of 120 W", CodeCarbon{machine}, 255, []Energy{{360, 0}, {120, 0}}},
		{"30 W a CPU, for 20, 12 and 4 s", Alumet{machine}, 600, []Energy{{360, 0}, {120, 0}}},
	} {
		r := test.rule.Observe(interval())
		assert.InDelta(t, test.whole, r.Whole, 1e-9, "%T: %s", test.rule, test.name)
		requireEnergies(t, test.parts, r.Parts, test.name)
	}
}

// The users have 16 s of ticks and 20 s of CPU time. 24 s were busy.
func TestRulesByBusyTimeLeaveARestUnattributed(t *testing.T) {
	i := interval()
	i.Sockets[0].Busy = 24
	for _, test := range []struct {
		rule         Rule
		unattributed Energy
	}{
		{Scaphandre{}, Energy{200, 20}}, {CEEMS{}, Energy{4000. / 24, 0}}, {CodeCarbon{machine}, Energy{240, 0}}, {Alumet{machine}, Energy{240, 0}},
		{Kepler{}, Energy{}}, {&Kepler09{}, Energy{}}, {EnergAt{machine}, Energy{}}, {METRION{machine}, Energy{}}, {Kavanagh{machine}, Energy{}},
	} {
		requireEnergies(t, []Energy{test.unattributed}, []Energy{test.rule.Observe(i).Unattributed}, fmt.Sprintf("%T", test.rule))
	}
}

func TestRulesOfCountersShareByInstructionsAndMisses(t *testing.T) {
	i := interval()
	i.Users[0].On[0].Instructions, i.Users[1].On[0].Instructions = 1, 3
	i.Users[0].On[0].Misses, i.Users[1].On[0].Misses = 4, 1
	r := METRION{machine}.Observe(i)
	requireEnergies(t, []Energy{{421.561, 64}, {178.439, 16}}, r.Parts, "DRAM by misses")
	r = (&Kepler09{idle: []Energy{{40, 2}}}).Observe(i)
	requireEnergies(t, []Energy{{150, 64}, {450, 16}}, r.Parts, "packages by instructions")
}

func requireEnergies(t *testing.T, want, got []Energy, message string) {
	require.Len(t, got, len(want), message)
	for i := range want {
		assert.InDelta(t, want[i].Package, got[i].Package, 1e-3, "%s, package of user %d", message, i)
		assert.InDelta(t, want[i].DRAM, got[i].DRAM, 1e-3, "%s, DRAM of user %d", message, i)
	}
}

func TestAnIdleIntervalHasNoParts(t *testing.T) {
	for _, rule := range []Rule{
		Kepler{}, &Kepler09{}, Scaphandre{}, &SmartWatts{Machine: machine}, &KubeWatt{Machine: machine},
		Kavanagh{machine}, EnergAt{machine}, METRION{machine}, CEEMS{}, CodeCarbon{machine}, Alumet{machine},
	} {
		i := &Interval{Seconds: 10, Sockets: []Socket{{Energy: Energy{400, 20}, Total: 40}}, Users: []User{{On: make([]Part, 1)}}}
		requireEnergies(t, []Energy{{}}, rule.Observe(i).Parts, "at rest")
	}
}

func TestNoRuleAttributesNegativeEnergy(t *testing.T) {
	for _, rule := range []Rule{Kavanagh{machine}, EnergAt{machine}, METRION{machine}, &KubeWatt{Machine: machine, static: Energy{50, 5}, calibrated: true}} {
		i := interval()
		i.Sockets[0].Energy = Energy{390, 19}
		r := rule.Observe(i)
		assert.Zero(t, r.Whole, "%T: less than at rest", rule)
		requireEnergies(t, make([]Energy, 2), r.Parts, fmt.Sprintf("%T", rule))
	}
}

// Ticks of the previous interval can make an application's CPU time exceed the socket's.
func TestEnergAtAttributesAtMostAllEnergyToAnApplication(t *testing.T) {
	i := interval()
	i.Users[0].On[0].Last, i.Users[0].On[0].Memory = 20.01, 9e9
	requireEnergies(t, []Energy{{600, 80}}, EnergAt{machine}.Observe(i).Parts[:1], "above rest")
}

func TestKepler09DividesByTheNumberOfProcessesWithoutUsage(t *testing.T) {
	k := &Kepler09{}
	i := interval()
	i.Users[0].CPU, i.Users[1].CPU = 0, 0
	i.Sockets[0].Energy = Energy{400, 40}
	k.Observe(i)
	i.Sockets[0].Energy = Energy{800, 40.0001}
	requireEnergies(t, []Energy{{100, 0.001}, {300, 0.001}}, k.Observe(i).Parts, "1 and 3 processes, up to mJ")
	i.Sockets[0].Energy = Energy{900, 30}
	i.Users[0].CPU = 1
	k = &Kepler09{idle: []Energy{{40, 4}}, used: 0.2}
	k.Observe(i)
	assert.Equal(t, Kepler09{idle: []Energy{{40, 3}}, used: 0.1}, *k, "new idle power of DRAM alone")
}

func TestKepler09UsesTheLowestPowerAtTheLeastUsageAsIdle(t *testing.T) {
	k := &Kepler09{}
	low := interval()
	low.Sockets[0].Energy = Energy{500, 50}
	low.Users[0].CPU, low.Users[1].CPU = 3, 2
	assert.Zero(t, k.Observe(low).Whole, "all of the first interval is idle")
	cheap := interval()
	cheap.Sockets[0].Energy = Energy{400, 40}
	assert.Zero(t, k.Observe(cheap).Whole, "never negative")
	dear := interval()
	dear.Users[0].CPU, dear.Users[1].CPU = 1, 1
	assert.InDelta(t, 550, k.Observe(dear).Whole, 1e-9, "less CPU time with more power is not idle")
	cheap.Sockets[0].Energy = Energy{450, 45}
	cheap.Users[0].CPU, cheap.Users[1].CPU = 2, 2
	k.Observe(cheap)
	cheap.Sockets[0].Energy = Energy{500, 50}
	assert.InDelta(t, 55, k.Observe(cheap).Whole, 1e-9, "an interval that does not lower idle power leaves the limit of CPU time unchanged")
	r := k.Observe(interval())
	assert.InDelta(t, 605, r.Whole, 1e-9, "with more CPU time, less power is not idle")
	requireEnergies(t, []Energy{{330, 33}, {220, 22}}, r.Parts, "12 and 8 s, with exited processes")
	rounded := interval()
	rounded.Sockets[0].Energy = Energy{450.0001, 45}
	requireEnergies(t, []Energy{{0.001, 0}, {0.001, 0}}, k.Observe(rounded).Parts, "up to mJ")
}

func TestKubeWattNeedsAllLoadsForItsLine(t *testing.T) {
	k := &KubeWatt{Machine: machine}
	at := func(used float64) *Interval {
		i := interval()
		i.Users[0].CPU, i.Users[1].CPU = 10*used, 0
		i.Sockets[0].Energy = Energy{10 * (30 + 10*used), 10 * (3 + used)}
		return i
	}
	for range round {
		k.Observe(at(1))
	}
	requireEnergies(t, make([]Energy, 2), k.Observe(interval()).Parts, "no samples of other loads")
	k = &KubeWatt{Machine: machine}
	for n := range round {
		k.Observe(at(0.85 + 0.4*float64(n%6)))
	}
	r := k.Observe(interval())
	assert.InDelta(t, 770, r.Whole, 1e-6, "1100 J less 33 W for 10 s")
	requireEnergies(t, []Energy{{420, 42}, {280, 28}}, r.Parts, "12 and 8 s")
}

func TestKubeWattNeedsHalfAsManySamplesOfEachLoad(t *testing.T) {
	for few, enough := range map[int]bool{9: false, 10: true} {
		k := &KubeWatt{Machine: machine}
		for n := range 5*20 + few {
			k.samples = append(k.samples, sample{used: 0.85 + 0.4*float64(min(n/20, 5))})
		}
		assert.Equal(t, enough, k.suffice(), "%d of 20", few)
	}
}

func TestKubeWattFitsItsLineBelowHalfOfTheCPUsWithTwoThreadsPerCore(t *testing.T) {
	for threads, static := range map[int]float64{1: 38.738, 2: 33} {
		m := machine
		m.Threads = threads
		k := &KubeWatt{Machine: m}
		for n := range round {
			used := 0.85 + 0.4*float64(n%6)
			i := interval()
			i.Users[0].CPU, i.Users[1].CPU = 10*used, 0
			i.Sockets[0].Energy = Energy{10 * (30 + 10*min(used, 2)), 10 * (3 + min(used, 2))}
			k.Observe(i)
		}
		assert.InDelta(t, 1100-10*static, k.Observe(interval()).Whole, 0.01, "%d threads", threads)
	}
}

// Power is 20 W per cycle and -5 W per CPU. Without a constant the best coefficient of cycles alone
// is the difference.
func TestSmartWattsHasNoNegativeCoefficients(t *testing.T) {
	h := &history{}
	for n := range 20 {
		cycles, cpus := 2+float64(n%3), 1+float64(n%2)
		h.observe(eventSample{events{cycles, cpus}, 20*cycles - 5*cpus}, nil, 200)
	}
	assert.True(t, h.fitted)
	assert.Positive(t, h.weights[0])
	assert.Zero(t, h.weights[1])
}

func TestSmartWattsHasAModelOfEachSocketAndClockRate(t *testing.T) {
	s := &SmartWatts{Machine: Machine{CPUs: 8, TDP: 100}}
	for n := range 200 {
		clock, perCPU, rest := 1., 10., 40.
		if n%2 == 1 {
			clock, perCPU = 0.5, 4
		}
		cpus := 1 + float64(n/2%5)
		part := Part{CPU: cpus, Cycles: cpus * clock, Alone: cpus * clock}
		socket := Socket{Energy: Energy{Package: rest + perCPU*cpus}}
		other := Socket{Energy: Energy{Package: 60 + perCPU*cpus}} // idle power above half of the TDP
		s.Observe(&Interval{Seconds: 1, Sockets: []Socket{socket, other}, Users: []User{{On: []Part{part, part}}}})
	}
	at := func(socket, clock int) *history { return s.layers[layer{socket: socket, clock: clock}] }
	assert.InDelta(t, 40, at(0, 30).base, 1e-6)
	assert.InDelta(t, 10, at(0, 30).weights.of(events{1, 1}), 1e-6)
	assert.InDelta(t, 4, at(0, 15).weights.of(events{0.5, 1}), 1e-6)
	assert.Zero(t, at(1, 30).base)
}

func TestSmartWattsFitsAgainWhenMostErrorsAreLarge(t *testing.T) {
	h := &history{}
	sample := func(cpus, watts float64) { h.observe(eventSample{events{cpus, cpus}, watts}, nil, 200) }
	for n := range 60 {
		sample(1+float64(n%5), 30+10*(1+float64(n%5)))
	}
	fitted := func() float64 { return h.weights[0] + h.weights[1] }
	assert.InDelta(t, 10, fitted(), 1e-9)
	h.errors = h.errors[:0]
	sample(1, 40)
	sample(2, 50)
	sample(3, 160)
	assert.InDelta(t, 10, fitted(), 1e-9, "one of three")
	sample(3, 160)
	sample(3, 160)
	assert.Greater(t, fitted(), 10.1, "three of five")
	assert.Empty(t, h.errors)
}

func TestSmartWattsFitsPowerToCycles(t *testing.T) {
	s := &SmartWatts{Machine: Machine{CPUs: 8, TDP: 200}}
	at := func(first, second float64) *Interval {
		part := func(cpus float64) []Part { return []Part{{CPU: cpus, Cycles: cpus, Alone: cpus}} }
		return &Interval{
			Seconds: 1, Sockets: []Socket{{Energy: Energy{Package: 30 + 10*(first+second)}}},
			Users: []User{{On: part(first)}, {On: part(second)}},
		}
	}
	requireEnergies(t, make([]Energy, 2), s.Observe(at(1, 1)).Parts, "no energy before ten samples")
	for n := range 100 {
		s.Observe(at(1+float64(n%5), 1))
	}
	r := s.Observe(at(3, 1))
	assert.InDelta(t, 70, r.Whole, 1e-9)
	requireEnergies(t, []Energy{{52.5, 0}, {17.5, 0}}, r.Parts, "10 W a CPU, and 30 W in proportion")
	s.Machine.TDP = 20
	s.layers = nil
	for n := range 100 {
		r = s.Observe(at(1+float64(n%5), 1))
	}
	requireEnergies(t, []Energy{{5 * 17460. / 1044, 0}, {17460. / 1044, 0}}, r.Parts, "no constant above the TDP, so the model is from 59 samples")
}
