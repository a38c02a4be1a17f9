// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	simulatedStep   = 0.05  // seconds
	simulatedLength = 400.0 // seconds
	registerCounts  = 1 << 32
)

// simulated is a machine whose power is known, with its meters. Powers are in watts.
type simulated struct {
	name                    string
	sockets, cores, threads int     // cores of a socket, threads of a core
	idle, first, core, smt  float64 // of a socket: at rest, by its first busy core, by each, by a second thread
	turbo                   float64 // share by which a core draws less when all are busy
	dramIdle, dram          float64 // of a socket, at rest and when it is accessed; 0: no DRAM
	rest, loss              float64 // power of the machine without its sockets; power loss of the supply
	background              float64 // CPUs kept busy by other programs
	leakage                 float64 // power that follows the temperature, relative to the power of the load
	virtual                 bool
	meters                  []simulatedMeter
	plant                   func(*Observation) // changes the readings
	after                   func(*Observation) // changes the observation
}

// simulatedMeter is a meter of zones of a kind. The zero unit is a sensor of power.
type simulatedMeter struct {
	meter                string
	kind                 power.Kind
	unit                 float64 // J
	every, late, average float64 // s
	quantum              float64 // W
	noise                float64
}

// whole reports whether one zone is that of all sockets.
func (m *simulatedMeter) whole() bool { return m.kind == power.Platform || m.kind == power.PSys }

const raplUnit = 61.035e-6

var (
	packages = simulatedMeter{meter: "powercap", kind: power.Package, unit: raplUnit}
	cores    = simulatedMeter{meter: "powercap", kind: power.Core, unit: raplUnit}
	dimms    = simulatedMeter{meter: "powercap", kind: power.DRAM, unit: raplUnit}
	psys     = simulatedMeter{meter: "powercap", kind: power.PSys, unit: raplUnit}
	event    = simulatedMeter{meter: "perf", kind: power.Package, unit: raplUnit}
	dimmsToo = simulatedMeter{meter: "perf", kind: power.DRAM, unit: raplUnit}
	onlyPerf = simulatedMeter{meter: "perf", kind: power.Package, unit: raplUnit / 4}
	node     = simulatedMeter{meter: "cray", kind: power.Platform, every: 0.1, unit: 1}
	bmc      = simulatedMeter{meter: "ipmi", kind: power.Platform, every: 5, average: 1, quantum: 1}
	slowBMC  = simulatedMeter{meter: "redfish", kind: power.Platform, every: 5, average: 20, quantum: 1}
	plug     = simulatedMeter{meter: "http", kind: power.Platform, every: 1, average: 1, quantum: 0.1}
	acpi     = simulatedMeter{meter: "hwmon", kind: power.Platform, every: 1, average: 1, quantum: 0.5}
	ina      = simulatedMeter{meter: "hwmon", kind: power.Platform, every: 1, quantum: 0.025}
)

func meters(all ...simulatedMeter) []simulatedMeter { return all }

// healthy are machines without a fault, with powers of the size that such machines have.
var healthy = []simulated{
	{"server, Intel, 2 sockets, BMC", 2, 16, 2, 45, 12, 5, 0.2, 0.3, 8, 18, 60, 0.1, 0, 0, false, meters(packages, cores, dimms, event, dimmsToo, bmc), nil, nil},
	{"server, Intel, 2 sockets, plug", 2, 8, 2, 25, 8, 6, 0.2, 0.2, 6, 12, 50, 0.12, 0, 0, false, meters(packages, cores, dimms, plug), nil, nil},
	{"server, Intel, 1 socket, no SMT", 1, 8, 1, 20, 5, 8, 0, 0, 4, 6, 30, 0.1, 0, 0, false, meters(packages, cores, dimms, event, dimmsToo), nil, nil},
	{"server, Intel, 4 sockets", 4, 12, 2, 40, 10, 6, 0.25, 0.3, 10, 20, 150, 0.08, 0, 0, false, meters(packages, cores, dimms), nil, nil},
	{"server, AMD, 2 sockets", 2, 32, 2, 95, 8, 3, 0.15, 0.3, 0, 0, 90, 0.08, 0, 0, false, meters(packages, cores, bmc), nil, nil},
	{"server, AMD, perf only", 1, 24, 2, 60, 6, 4, 0.2, 0, 0, 0, 70, 0.1, 0, 0, false, meters(onlyPerf), nil, nil},
	{"server, BMC and plug", 1, 16, 2, 30, 9, 4, 0.2, 0, 5, 12, 40, 0.1, 0, 0, false, meters(packages, cores, dimms, plug, bmc), nil, nil},
	{"server, averaging BMC", 2, 10, 2, 35, 10, 6, 0.2, 0.2, 7, 14, 70, 0.1, 0, 0, false, meters(packages, cores, dimms, slowBMC), nil, nil},
	{"server, ACPI power meter alone", 2, 8, 1, 30, 8, 9, 0, 0, 0, 0, 60, 0.1, 0, 0, false, meters(acpi), nil, nil},
	{"server, much leakage", 2, 20, 2, 50, 10, 5, 0.2, 0, 8, 16, 80, 0.1, 0, 0.06, false, meters(packages, cores, dimms, plug), nil, nil},
	{"server with a GPU", 1, 16, 2, 40, 8, 5, 0.2, 0, 6, 10, 110, 0.08, 0, 0, false, meters(packages, cores, dimms, bmc), nil, nil},
	{"server, a little busy", 2, 16, 2, 40, 10, 5, 0.2, 0, 8, 16, 60, 0.1, 1, 0, false, meters(packages, cores, dimms, event, dimmsToo), nil, nil},
	{"HPC node, Cray", 2, 64, 2, 90, 10, 2.4, 0.1, 0.2, 0, 0, 80, 0.05, 0, 0, false, meters(packages, cores, node), nil, nil},
	{"desktop, Intel", 1, 6, 2, 4, 9, 9, 0.15, 0.4, 0.8, 2, 25, 0.15, 0, 0, false, meters(packages, cores, dimms), nil, nil},
	{"desktop, AMD, plug", 1, 8, 2, 22, 15, 9, 0.1, 0.4, 0, 0, 30, 0.15, 0, 0, false, meters(packages, cores, plug), nil, nil},
	{"laptop, psys", 1, 4, 2, 1.5, 6, 4, 0.15, 0.5, 0.4, 1.2, 3, 0.02, 0, 0, false, meters(packages, cores, dimms, psys), nil, nil},
	{"small server, Atom", 1, 4, 1, 1.5, 0.6, 1.2, 0, 0, 0, 0, 8, 0.2, 0, 0, false, meters(packages, cores), nil, nil},
	{"board, ARM, INA", 1, 6, 1, 1.2, 0.5, 1.4, 0, 0, 0, 0, 4, 0.1, 0, 0, false, meters(ina), nil, nil},
	{"server, ARM, hwmon", 2, 40, 1, 30, 3, 2, 0, 0, 0, 0, 60, 0.1, 0, 0, false, meters(acpi), nil, nil},
	{"virtual machine", 1, 2, 2, 5, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, true, nil, nil, nil},
}

// modeled is the class of a machine without meters.
var modeled = power.Class{Zone: power.Package, Method: power.Modeled}

// sim is a simulation of a machine.
type sim struct {
	*simulated
	rng   *rand.Rand
	o     *Observation
	truth map[power.Kind][][]Point // cumulative energy by kind and socket
}

// observe returns an observation of a run.
func (m *simulated) observe(seed uint64) *Observation {
	threads := m.sockets * m.cores * m.threads
	s := &sim{simulated: m, rng: rand.New(rand.NewPCG(seed, 7)), truth: map[power.Kind][][]Point{}}
	s.o = &Observation{
		Machine: Machine{
			CPU: "Simulated CPU", Arch: "amd64", Kernel: "6.18", Virtual: m.virtual, Sockets: m.sockets,
			Cores: m.sockets * m.cores, Threads: threads, MemoryGiB: 32 * float64(m.sockets),
		},
		Busy: map[int][]Point{}, Sums: map[power.Class][]Sums{}, GPUs: map[string][]GPU{}, Trained: map[power.Class]bool{},
	}
	for n := range threads {
		core := n % s.o.Machine.Cores
		s.o.Machine.CPUs = append(s.o.Machine.CPUs, CPU{Number: n, Socket: core / m.cores, Core: core % m.cores, Capacity: 1024})
	}
	s.o.Steps = plan(&s.o.Machine, simulatedLength, !m.virtual)
	if m.virtual {
		s.o.NoEvents = "it is a virtual machine"
	}
	s.draw()
	s.count()
	for i := range m.meters {
		s.read(&m.meters[i])
	}
	if m.plant != nil {
		m.plant(s.o)
	}
	s.report()
	if m.after != nil {
		m.after(s.o)
	}
	return s.o
}

// draw computes the true energies and a temperature, step by step.
func (s *sim) draw() {
	heat, wander, celsius := make([]float64, s.sockets), 0., 35.
	for _, kind := range []power.Kind{power.Package, power.Core, power.DRAM, power.Platform} {
		s.truth[kind] = slices.Repeat([][]Point{{{}}}, s.sockets)
	}
	s.o.Temperatures = make([][]Point, 2) // the second sensor cannot be read
	for at := simulatedStep; at < simulatedLength+5; at += simulatedStep {
		step := s.at(at)
		wander = 0.99*wander + 0.01*s.rng.NormFloat64()
		for socket := range s.sockets {
			busy, second := s.busyCores(step, socket)
			share, bound := busy/float64(s.cores), 0.
			if cpus := step.parts()[Memory]; len(cpus) > 0 {
				bound, _ = s.busyCores(&Step{CPUs: cpus}, socket)
			}
			dynamic := s.core * busy * (1 + s.smt*second) * (1 - s.turbo*share)
			if busy > 0 {
				dynamic += s.first
			}
			dynamic *= 1 - 0.2*bound/max(busy, 1)
			memory := s.dramIdle + (s.dram-s.dramIdle)*(bound+0.05*(busy-bound))/float64(s.cores)
			heat[socket] += (s.leakage*dynamic - heat[socket]) * simulatedStep / 30
			pkg := s.idle + (dynamic+heat[socket])*(1+0.05*wander) + 0.02*s.idle*s.rng.Float64()
			whole := s.rest/float64(s.sockets)*(1+0.02*wander) + (pkg+memory)*(1+s.loss)
			for kind, watts := range map[power.Kind]float64{
				power.Package: pkg, power.Core: 0.7 * (pkg - 0.6*s.idle), power.DRAM: memory, power.Platform: whole,
			} {
				points := s.truth[kind][socket]
				s.truth[kind][socket] = append(points, Point{at, points[len(points)-1].Value + watts*simulatedStep})
			}
			celsius += (35 + 40*share - celsius) * simulatedStep / 12 / float64(s.sockets)
		}
		s.o.Temperatures[0] = append(s.o.Temperatures[0], Point{at, math.Round(celsius)})
	}
	s.truth[power.PSys] = s.truth[power.Platform]
}

// at returns the step that runs at a time.
func (s *sim) at(at float64) *Step {
	return s.o.Steps[max(slices.IndexFunc(s.o.Steps, func(step *Step) bool { return at < step.To }), 0)]
}

// busyCores returns how many cores of a socket a step keeps busy, and the share of them with two
// busy threads.
func (s *sim) busyCores(step *Step, socket int) (busy, second float64) {
	all := s.sockets * s.cores
	for _, cpu := range step.CPUs {
		if cpu%all/s.cores == socket {
			if cpu >= all {
				second++
			} else {
				busy++
			}
		}
	}
	return busy + s.background/float64(s.sockets)*(1-busy/float64(s.cores)), second / max(busy, 1)
}

// energy returns the true energy of a socket's kind, or of all sockets if socket is negative, until
// a time.
func (s *sim) energy(kind power.Kind, socket int, at float64) (sum float64) {
	for i, series := range s.truth[kind] {
		if socket < 0 || socket == i {
			sum += valueAt(series, at)
		}
	}
	return sum
}

// read reads the zones of a meter.
func (s *sim) read(m *simulatedMeter) {
	for socket := range s.sockets {
		z := &Zone{
			Meter: m.meter, ID: fmt.Sprintf("%s-%d", m.kind, socket), Kind: m.kind, Socket: socket, Method: power.Measured,
			Prompt: m.unit > 0 && m.every == 0 && m.kind != power.PSys, Chosen: m.meter != "perf" || len(s.meters) == 1,
		}
		if m.whole() {
			z.ID, z.Socket = string(m.kind), -1
		}
		if m.unit > 0 {
			s.readCounter(m, z)
		} else {
			s.readPower(m, z)
		}
		s.o.Zones = append(s.o.Zones, z)
		if m.whole() {
			return
		}
	}
}

func (s *sim) readCounter(m *simulatedMeter, z *Zone) {
	full := m.unit * registerCounts
	start := s.rng.Float64() * full * 0.99
	if m.meter == "powercap" {
		z.Range = full - m.unit
		if s.rng.IntN(2) == 0 {
			start = full - 200*s.rng.Float64() // it wraps during the run
		}
	}
	noisy, last := 0., 0.
	for at := 0.; at < simulatedLength; at += 0.2 + 0.01*s.rng.Float64() {
		read := at
		if m.every > 0 {
			read = math.Floor(at/m.every) * m.every
		}
		e := s.energy(m.kind, z.Socket, read-m.late)
		noisy += (e - last) * (1 + m.noise*s.rng.NormFloat64()*math.Sqrt(5))
		last = e
		counts := math.Floor((start + noisy) / m.unit)
		z.Points = append(z.Points, Point{at, math.Round((counts*m.unit-start)*1e6) / 1e6})
		if z.Range > 0 {
			counts = math.Mod(counts, registerCounts)
		}
		if z.Reads++; z.Range > 0 || m.every > 0 {
			z.Raw = append(z.Raw, Point{at, math.Floor(counts*m.unit*1e6) / 1e6})
		}
	}
}

func (s *sim) readPower(m *simulatedMeter, z *Zone) {
	sum, average := 0., max(m.average, simulatedStep)
	for at := 0.; at < simulatedLength; at += m.every {
		end := max(at-m.late, average)
		w := (s.energy(m.kind, z.Socket, end) - s.energy(m.kind, z.Socket, end-average)) / average
		w *= 1 + (0.003+m.noise)*s.rng.NormFloat64()
		if at > 0 {
			sum += math.Round(w/m.quantum) * m.quantum * m.every
		}
		z.Points = append(z.Points, Point{at, sum})
		z.Reads++
	}
}

// count counts CPU times.
func (s *sim) count() {
	for i := range s.o.Machine.CPUs {
		sum := 0.
		for at := 0.; at <= simulatedLength+1; at += 0.2 {
			s.o.Busy[i] = append(s.o.Busy[i], Point{at, math.Round(sum*100) / 100})
			share := 0.01 + s.background/float64(len(s.o.Machine.CPUs))
			if slices.Contains(s.at(at).CPUs, i) {
				share = 1
			}
			sum += 0.2 * share
		}
	}
	for _, step := range s.o.Steps {
		for i, cpu := range step.CPUs {
			load := step.Load
			if load == Mixed {
				load = []Load{Memory, Spin}[2*i/len(step.CPUs)]
			}
			run := (step.To - step.From) * (0.995 + 0.002*s.rng.Float64())
			step.Programs = append(step.Programs, Program{CPU: cpu, Load: load, Waited: run, Counted: map[string]float64{
				"BPF": run - 0.004*s.rng.Float64(), "procfs": math.Floor(run*100) / 100,
			}})
		}
	}
}

// report makes the receiver's totals: its static power is known from the start.
func (s *sim) report() {
	zones := map[power.Class][]*Zone{}
	a := &analysis{Observation: s.o}
	for _, kind := range []power.Kind{power.Package, power.DRAM, power.Platform} {
		class := power.Class{Zone: kind, Method: power.Measured}
		for _, g := range a.preferred(kind) {
			if kind != power.Platform || len(zones) == 0 {
				zones[class], s.o.Trained[class] = g.zones, true
			}
		}
	}
	if len(zones) == 0 {
		zones[modeled] = nil
	}
	for at := 5.; at < simulatedLength; at++ {
		for class, zones := range zones {
			rested, used := 0., 0.
			if zones == nil {
				rested, used = s.idle, s.energy(power.Package, -1, at)
			}
			for _, z := range zones {
				used += valueAt(z.Points, at)
				rested += 0.99 * rate(z.Points, 10, 35) // of the first step
			}
			k := Sums{At: at, Zones: microjoules(used), Uncertainty: 0.02 * rested}
			k.Idle = min(microjoules(rested*at), k.Zones)
			k.Active = k.Zones - k.Idle
			k.Processes = k.Active / 100 * 97
			k.Unattributed = k.Active - k.Processes
			s.o.Sums[class] = append(s.o.Sums[class], k)
		}
		if s.name == "server with a GPU" {
			g := GPU{Watts: 60 + s.rng.Float64()}
			if at > 60 && at < 120 {
				g = GPU{Watts: 290 + 5*s.rng.Float64(), Utilization: 0.95}
			}
			s.o.GPUs["GPU-1b9f"] = append(s.o.GPUs["GPU-1b9f"], g)
		}
	}
	for _, step := range s.o.Steps {
		for i := range step.Programs {
			p := &step.Programs[i]
			p.Energy = map[power.Class]units.Energy{}
			for class := range zones {
				p.Energy[class] = microjoules(3 * p.Waited * (0.995 + 0.01*s.rng.Float64()))
			}
			p.ByEvents = maps.Clone(p.Energy)
		}
	}
}

func microjoules(joules float64) units.Energy { return units.Energy(math.Round(joules * 1e6)) }
