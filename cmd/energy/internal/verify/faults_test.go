// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// on returns a healthy machine.
func on(name string) simulated {
	return healthy[slices.IndexFunc(healthy, func(m simulated) bool { return m.name == name })]
}

// with returns the verdicts with a status.
func with(status Status, o *Observation) []Verdict { return NewReport(o, "").with(status) }

func TestHealthyMachinesHaveNoFault(t *testing.T) {
	for i := range healthy {
		for seed := range uint64(2) {
			assert.Empty(t, with(Fault, healthy[i].observe(seed)), "%s, seed %d", healthy[i].name, seed)
		}
	}
}

func TestChecksWithoutAMeterRunOnAVirtualMachine(t *testing.T) {
	m := on("virtual machine")
	var checked []string
	for _, v := range with(OK, m.observe(0)) {
		checked = append(checked, v.Check)
	}
	assert.Equal(t, []string{"permissions", "load", "sums", "symmetry", "cpu time"}, checked)
}

func TestAReportHasFaultsFirstAndTheMetersOfTheMachineInWords(t *testing.T) {
	m := on("virtual machine")
	sums(func(s *Sums) { s.Idle++ })(&m)
	o := m.observe(0)
	o.Meters = []Meter{
		{Name: "perf", Why: "no power PMU", Absent: true}, {Name: "ipmi", Why: "no BMC device", Absent: true},
		{Name: "model", Why: "it estimates package", Chosen: []power.Kind{power.Package}},
	}
	text := NewReport(o, "").Text()
	assert.Regexp(t, `^.+\n(  .+\n)*\nFAULT sums: `, text)
	assert.Contains(t, text, "\nNOT CHECKED meters (18 checks): This machine has no meter")
	assert.Contains(t, text, "\nmodel (used for package): it estimates package\nNot found on this machine: perf, ipmi\n")
}

func TestAZoneThatMayReadNothingIsANote(t *testing.T) {
	for name, zone := range map[string]func(*simulated){
		"laptop, psys":       changed("powercap", power.PSys, scaled(0)),
		"desktop, AMD, plug": changed("http", power.Platform, scaled(0)),
	} {
		m := on(name)
		zone(&m)
		assert.Empty(t, with(Fault, m.observe(0)), name)
		assert.Contains(t, with(Note, m.observe(0))[0].Text, "did not change", name)
	}
}

func TestOtherProgramsAreOneNote(t *testing.T) {
	m := on("virtual machine")
	m.background = 1
	notes := with(Note, m.observe(0))
	assert.Regexp(t, `busy, 26 % in step "rest", 26 % in step "rest after all CPUs"`, notes[0].Text)
	assert.Contains(t, notes[1].Text, "No step shows the machine at rest")
	assert.Len(t, notes, 2)
}

func TestDeferredEnergyIsNoFault(t *testing.T) {
	m := on("virtual machine")
	sums(func(s *Sums) { s.Idle, s.Deferred = s.Idle-2, 2 })(&m)
	assert.Empty(t, with(Fault, m.observe(0)))
}

func TestSeriesWithoutValuesAreNoFault(t *testing.T) {
	o := observe("desktop, Intel")
	clear(o.Busy)
	o.Zones = append(o.Zones, &Zone{Meter: "powercap", Kind: power.Package, Method: power.Measured, Socket: -1, Reads: 1, Chosen: true})
	assert.Empty(t, with(Fault, o))
}

// planted is a fault of a machine or of its meters.
type planted struct {
	name   string
	check  string // that finds it
	says   string // in the verdict
	on     string // name of the machine
	change func(*simulated)
}

// meter changes a meter of the machine. The meters of a healthy machine stay as they are.
func meter(name string, kind power.Kind, change func(*simulatedMeter)) func(*simulated) {
	return func(m *simulated) {
		m.meters = slices.Clone(m.meters)
		for i := range m.meters {
			if m.meters[i].meter == name && m.meters[i].kind == kind {
				change(&m.meters[i])
			}
		}
	}
}

// changed changes the zones of a meter.
func changed(name string, kind power.Kind, change func(*Zone)) func(*simulated) {
	return readings(func(o *Observation) {
		for _, z := range o.Zones {
			if z.Meter == name && z.Kind == kind {
				change(z)
			}
		}
	})
}

// readings changes the readings, before the receiver sees them.
func readings(plant func(*Observation)) func(*simulated) {
	return func(m *simulated) { m.plant = plant }
}

// after changes the observation.
func after(change func(*Observation)) func(*simulated) {
	return func(m *simulated) { m.after = change }
}

// without removes zones.
func without(is func(*Zone) bool) func(*simulated) {
	return readings(func(o *Observation) { o.Zones = slices.DeleteFunc(o.Zones, is) })
}

// scaled multiplies what a zone counts.
func scaled(factor float64) func(*Zone) {
	return func(z *Zone) {
		z.Raw = nil
		for i := range z.Points {
			z.Points[i].Value *= factor
		}
	}
}

// becomes replaces the powers of a zone.
func becomes(watts func(at float64) float64) func(*Zone) {
	return func(z *Zone) {
		z.Raw = nil
		for i := 1; i < len(z.Points); i++ {
			at := z.Points[i].At
			z.Points[i].Value = z.Points[i-1].Value + watts(at)*(at-z.Points[i-1].At)
		}
	}
}

// sums changes the receiver's totals.
func sums(change func(s *Sums)) func(*simulated) {
	return after(func(o *Observation) {
		for _, sums := range o.Sums {
			for i := range sums {
				change(&sums[i])
			}
		}
	})
}

// programs changes the programs of all steps.
func programs(change func(p *Program)) func(*simulated) {
	return after(func(o *Observation) {
		for _, s := range o.Steps {
			for i := range s.Programs {
				change(&s.Programs[i])
			}
		}
	})
}

const (
	dual    = "server, Intel, 2 sockets, BMC"
	plugged = "server, Intel, 2 sockets, plug"
)

var plantedFaults = []planted{
	{"mW read as W", "unit", "0.001 times as much", "board, ARM, INA", changed("hwmon", power.Platform, scaled(1000))},
	{"mJ read as µJ", "unit", "1000 times as much", "small server, Atom", changed("powercap", power.Package, scaled(0.001))},
	{"wrong scale of the PMU", "agreement", "reads 4 times", dual, changed("perf", power.Package, scaled(4))},
	{"DRAM inside the package", "dram", "inside the package", plugged, readings(func(o *Observation) {
		for i, z := range o.Zones[:2] {
			z.Raw = nil
			for at := range z.Points {
				z.Points[at].Value += valueAt(o.Zones[4+i].Points, z.Points[at].At)
			}
		}
	})},
	{"energy unit of DRAM", "dram", "energy unit is wrong", plugged, changed("powercap", power.DRAM, scaled(4))},
	{"DRAM counts something else", "dram", "does not follow memory", plugged, changed("powercap", power.DRAM, becomes(func(at float64) float64 { return 5 + 0.05*math.Sin(at) }))},
	{"a socket missing from the cpumask", "sockets", "[1] of 2: its CPU is not in the cpumask", dual, without(func(z *Zone) bool { return z.Meter == "perf" && z.Kind == power.Package && z.Socket == 1 })},
	{"a socket without a zone", "sockets", "lacks socket [3]", "server, Intel, 4 sockets", without(func(z *Zone) bool { return z.Kind == power.Package && z.Socket == 3 })},
	{"sockets swapped", "sockets", "are swapped", plugged, changed("powercap", power.Package, func(z *Zone) { z.Socket = 1 - z.Socket })},
	{"one counter for two sockets", "sockets", "the same counter", dual, readings(func(o *Observation) {
		o.Zones[1].Points, o.Zones[1].Raw = o.Zones[0].Points, o.Zones[0].Raw
		o.Zones = slices.DeleteFunc(o.Zones, func(z *Zone) bool { return z.Meter == "perf" })
	})},
	{"a socket counts double", "sockets", "counters of the sockets disagree", "server, Intel, 4 sockets", changed("powercap", power.Package, func(z *Zone) {
		if z.Socket == 2 {
			scaled(2)(z)
		}
	})},
	{"constant 0 as before Linux 7.0", "zero", "Before Linux 7.0", "server, AMD, perf only", changed("perf", power.Package, scaled(0))},
	{"a range that does not fit the unit", "wrap", "wraps at the wrong range", "desktop, Intel", changed("powercap", power.Package, func(z *Zone) { z.Range *= 4 })},
	{"a value above the range", "wrap", "above its stated range", "desktop, Intel", changed("powercap", power.Package, func(z *Zone) { z.Range /= 64 })},
	{"a wrap at the wrong range", "wrap", "it wrapped at about 65536 J", "server, AMD, 2 sockets", changed("powercap", power.Package, func(z *Zone) {
		for i := range z.Raw {
			z.Raw[i].Value = math.Mod(z.Points[i].Value+60_000, 65_536)
		}
	})},
	{"a reset", "wrap", "was reset", "HPC node, Cray", changed("cray", power.Platform, func(z *Zone) {
		for i := range z.Raw {
			z.Raw[i].Value = z.Points[i].Value
			if i > len(z.Raw)/2 {
				z.Raw[i].Value -= z.Points[len(z.Raw)/2].Value
			}
		}
	})},
	{"a lag of 5 s", "lag", "lags by", plugged, meter("http", power.Platform, func(m *simulatedMeter) { m.late = 5 })},
	{"a lag of 2 s of RAPL", "lag", "lags by", "small server, Atom", meter("powercap", power.Package, func(m *simulatedMeter) { m.late = 2 })},
	{"a lag of 12 s of a BMC", "lag", "meters::ipmi::lag: 1", dual, meter("ipmi", power.Platform, func(m *simulatedMeter) { m.late = 12 })},
	{"a sensor in °C", "temperature", "°C", "board, ARM, INA", readings(func(o *Observation) {
		becomes(func(at float64) float64 { return valueAt(o.Temperatures[0], at-0.5) })(o.Zones[0])
	})},
	{"noise of 10 %", "noise", "noise of", plugged, meter("http", power.Platform, func(m *simulatedMeter) { m.noise = 0.1 })},
	{"noise of 10 % of RAPL", "noise", "noise of ", "small server, Atom", meter("powercap", power.Package, func(m *simulatedMeter) { m.noise = 0.1 })},
	{"a counter that stops", "standstill", "stood still", "desktop, AMD, plug", changed("powercap", power.Package, func(z *Zone) {
		for i, p := range z.Points {
			if p.At > 150 && p.At < 200 {
				z.Points[i].Value = z.Points[i-1].Value
			}
		}
	})},
	{"a constant power", "load following", "does not follow the load", "server, ACPI power meter alone", changed("hwmon", power.Platform, becomes(func(float64) float64 { return 150 }))},
	{"another machine's meter", "load following", "does not follow the load", "server, ARM, hwmon", changed("hwmon", power.Platform, becomes(func(at float64) float64 { return 150 + 10*math.Sin(at/4) }))},
	{"reads that fail", "reads", "reads of", "laptop, psys", changed("powercap", power.PSys, func(z *Zone) { z.Failed = z.Reads / 20 })},
	{"the BMC of half the machine", "parts and whole", "parts exceed the whole", dual, changed("ipmi", power.Platform, scaled(0.4))},
	{"core above package", "parts and whole", "parts exceed the whole", "desktop, Intel", changed("powercap", power.Core, scaled(2))},
	{"psys below package", "parts and whole", "parts exceed the whole", "laptop, psys", changed("powercap", power.PSys, scaled(0.6))},
	{"BMC and plug disagree", "agreement", "disagree", "server, BMC and plug", changed("ipmi", power.Platform, scaled(1.35))},
	{"the whole rises by half", "closure", "does not close", "desktop, AMD, plug", changed("http", power.Platform, func(z *Zone) {
		scaled(0.5)(z)
		for i := range z.Points {
			z.Points[i].Value += 60 * z.Points[i].At
		}
	})},
	{"processes lack a microjoule", "sums", "-0.000001 J off the active energy", dual, sums(func(s *Sums) {
		if s.At > 100 {
			s.Processes--
		}
	})},
	{"idle energy counted twice", "sums", "off the energy of the zones", "virtual machine", sums(func(s *Sums) { s.Idle += s.Idle / 100 })},
	{"less attributed than read", "sums", "off the energy of the zones", "virtual machine", sums(func(s *Sums) {
		s.Idle, s.Deferred = s.Idle-2, 1
	})},
	{"the receiver misses energy", "totals", "the meter itself", "desktop, Intel", sums(func(s *Sums) {
		s.Idle, s.Processes, s.Unattributed = s.Idle/10*9, s.Processes/10*9, s.Unattributed/10*9
		s.Active = s.Processes + s.Unattributed
		s.Zones = s.Active + s.Idle
	})},
	{"unequal energy of equal programs", "symmetry", "CPU 2 gets +", "virtual machine", programs(func(p *Program) {
		if p.CPU == 2 {
			p.Energy[modeled] += p.Energy[modeled] / 10
		}
	})},
	{"static power 30 % too low", "static power", "draws", dual, sums(func(s *Sums) {
		moved := s.Idle / 10 * 3
		s.Idle, s.Active, s.Unattributed = s.Idle-moved, s.Active+moved, s.Unattributed+moved
	})},
	{"a standard error that is too small", "standard error", "too small", dual, sums(func(s *Sums) {
		moved := s.Idle / 50 * 3
		s.Idle, s.Active, s.Unattributed, s.Uncertainty = s.Idle-moved, s.Active+moved, s.Unattributed+moved, s.Uncertainty/20
	})},
	{"BPF misses CPU time", "cpu time", "BPF counts", "virtual machine", programs(func(p *Program) { p.Counted["BPF"] *= 0.9 })},
	{"the power of another GPU", "gpu", "GPU 1 draws 60.0 W", "server with a GPU", after(func(o *Observation) {
		for i := range o.GPUs["GPU-1b9f"] {
			o.GPUs["GPU-1b9f"][i].Watts = 60
		}
	})},
	{"a CPU limit", "load", "got only 50 %", "virtual machine", after(func(o *Observation) {
		for _, cpu := range o.Busy {
			for i := range cpu {
				cpu[i].Value /= 2
			}
		}
		for _, s := range o.Steps {
			for i := range s.Programs {
				s.Programs[i].Waited, s.Programs[i].Counted = s.Programs[i].Waited/2, nil
			}
		}
	})},
	{"a missing permission", "permissions", "sudo setcap", dual, after(func(o *Observation) {
		o.Lacks = []Lack{{What: "The counters of perf are not permitted", Grant: "sudo setcap cap_perfmon+ep energy"}}
	})},
	{"an old backend", "backend", "too old", dual, after(func(o *Observation) { o.Backend = &Backend{Name: "Prometheus", Version: "2.42.0"} })},
}

func TestEachPlantedFaultIsFoundByItsCheckAlone(t *testing.T) {
	for _, p := range plantedFaults {
		t.Run(p.name, func(t *testing.T) {
			m := on(p.on)
			p.change(&m)
			faults := with(Fault, m.observe(0))
			for _, v := range faults {
				assert.Equal(t, p.check, v.Check, v.Text)
				assert.NotContains(t, v.Text, "%!")
			}
			assert.True(t, slices.ContainsFunc(faults, func(v Verdict) bool { return strings.Contains(v.Text, p.says) }), "%v", faults)
		})
	}
}

func TestProgramsOnCPUsOfDifferentKindsAreNotCompared(t *testing.T) {
	o := observe("virtual machine")
	for i := range o.Machine.CPUs {
		o.Machine.CPUs[i].Capacity = i
	}
	assert.Contains(t, with(Unchecked, o), Verdict{"symmetry", Unchecked, "No step that can be evaluated has two equal programs with energy"})
}

// observe returns an observation of a healthy machine.
func observe(name string) *Observation {
	m := on(name)
	return m.observe(0)
}

// byEvents changes the energy that the weights with hardware events attribute to the memory-bound
// programs, in a class.
func byEvents(kind power.Kind, factor float64) func(*simulated) {
	return programs(func(p *Program) {
		class := power.Class{Zone: kind, Method: power.Measured}
		if p.Load == Memory {
			p.ByEvents[class] = microjoules(factor * p.ByEvents[class].Joules())
		}
	})
}

func TestTheWeightThatPredictsTheSoloEnergiesIsNamed(t *testing.T) {
	for _, tt := range []struct {
		kind         power.Kind
		factor       float64 // of the energy that hardware events attribute to memory-bound programs
		status       Status
		says, advice string
	}{
		{power.Package, 0.8, Note, `is 44\.\d % by their energies alone, [\d.]+ % by frequency_squared, 44\.\d % by power_model\. power_model is better`,
			"To select it: attribution::weight::package: power_model"},
		{power.Package, 1.2, OK, `is 44\.\d % by .*, 54\.\d % by power_model`, ""},
		{power.DRAM, 20, OK, `is 95\.\d % by .*, 95\.\d % by cache_misses`, ""},
		{power.DRAM, 0.8, Note, `44\.\d % by cache_misses`, "To select it: attribution::weight::dram: memory_cpu_time"},
	} {
		m := on("server, Intel, 1 socket, no SMT")
		byEvents(tt.kind, tt.factor)(&m)
		var found []string
		for _, v := range with(tt.status, m.observe(0)) {
			if v.Check == "weights" {
				found = append(found, v.Text)
			}
		}
		assert.Len(t, found, 1, "%s, factor %g", tt.kind, tt.factor)
		text := strings.Join(found, "\n")
		assert.Regexp(t, tt.says, text)
		assert.Contains(t, text, tt.advice)
	}
}

func TestCPUTimeIsComparedWithoutClockRates(t *testing.T) {
	m := on("server, Intel, 1 socket, no SMT")
	byEvents(power.Package, 0.8)(&m)
	o := m.observe(0)
	o.NoClocks = true
	var notes []string
	for _, v := range with(Note, o) {
		notes = append(notes, v.Text)
	}
	assert.Contains(t, strings.Join(notes, "\n"), "% by cpu_time, 44")
}

func TestWeightsAreNotComparedWithoutHardwareEvents(t *testing.T) {
	o := observe("desktop, Intel")
	o.NoEvents = "the PMU has no events"
	assert.Contains(t, with(Unchecked, o), Verdict{"weights", Unchecked, "Attribution weights were not compared: the PMU has no events"})
}

func TestBothHalvesOfTheCoresUseEachSocketEqually(t *testing.T) {
	m := Machine{CPUs: []CPU{{Number: 0}, {1, 1, 0, 0}, {2, 0, 1, 0}, {3, 1, 1, 0}, {4, 0, 2, 0}, {5, 0, 0, 0}}}
	assert.Equal(t, []int{0, 1, 2, 3}, m.spread())
	assert.Empty(t, (&Machine{CPUs: []CPU{{Number: 0}, {Number: 1}}}).spread(), "threads of one core")
}
