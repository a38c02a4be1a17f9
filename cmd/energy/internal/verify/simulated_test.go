// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

const (
	simulatedStep   = 0.05  // seconds
	simulatedLength = 270.0 // seconds
)

// simulated is a machine whose power is known, with its meters. Powers are in watts.
type simulated struct {
	name                    string
	sockets, cores, threads int     // cores of a socket, threads of a core
	idle, first, core, smt  float64 // of a socket: at rest, by its first busy core, by each, by a second thread
	turbo                   float64 // share by which a core draws less when all are busy
	dramIdle, dram          float64 // of a socket, at rest and when it is accessed; 0: no DRAM
	rest, loss              float64 // power of the machine without its sockets; power loss of the supply
	leakage                 float64 // power that follows the temperature, relative to the dynamic power
	background              float64 // CPUs kept busy by other programs
	gpu, virtual            bool
	meters                  []simulatedMeter
	plant                   func(*Observation) // changes the readings
}

// simulatedMeter is a meter of zones of a kind. The zero unit is a sensor of power.
type simulatedMeter struct {
	meter                string
	kind                 power.Kind
	whole                bool    // one zone for all sockets
	unit                 float64 // J
	wraps                bool
	every, late, average float64 // s
	quantum              float64 // W
	noise                float64
	unchosen             bool
}

func rapl(meter string, kind power.Kind) simulatedMeter {
	return simulatedMeter{meter: meter, kind: kind, unit: 61.035e-6, wraps: meter == "powercap", unchosen: meter != "powercap"}
}

var (
	registers = []simulatedMeter{rapl("powercap", power.Package), rapl("powercap", power.Core)}
	withDRAM  = append(slices.Clip(registers), rapl("powercap", power.DRAM))
	events    = []simulatedMeter{rapl("perf", power.Package), rapl("perf", power.DRAM)}
	onlyPerf  = []simulatedMeter{{meter: "perf", kind: power.Package, unit: 15.258e-6}}
	psys      = simulatedMeter{meter: "powercap", kind: power.PSys, whole: true, unit: 61.035e-6, wraps: true}
	bmc       = simulatedMeter{meter: "ipmi", kind: power.Platform, whole: true, every: 5, average: 1, quantum: 1}
	slowBMC   = simulatedMeter{meter: "redfish", kind: power.Platform, whole: true, every: 5, average: 20, quantum: 1}
	plug      = simulatedMeter{meter: "http", kind: power.Platform, whole: true, every: 1, average: 1, quantum: 0.1}
	acpi      = simulatedMeter{meter: "hwmon", kind: power.Platform, whole: true, every: 1, average: 1, quantum: 0.5}
	ina       = simulatedMeter{meter: "hwmon", kind: power.Platform, whole: true, every: 1, quantum: 0.025}
	node      = simulatedMeter{meter: "cray", kind: power.Platform, whole: true, every: 0.1, unit: 1}
)

func meters(all ...[]simulatedMeter) []simulatedMeter { return slices.Concat(all...) }

func one(m ...simulatedMeter) []simulatedMeter { return m }

// healthy are machines without a fault, with powers of the size that such machines have.
var healthy = []simulated{
	{name: "server, Intel, 2 sockets, BMC", sockets: 2, cores: 16, threads: 2, idle: 45, first: 12, core: 5, smt: 0.2, turbo: 0.3, dramIdle: 8, dram: 18, rest: 60, loss: 0.1, meters: meters(withDRAM, events, one(bmc))},
	{name: "server, Intel, 2 sockets, plug", sockets: 2, cores: 8, threads: 2, idle: 25, first: 8, core: 6, smt: 0.2, turbo: 0.2, dramIdle: 6, dram: 12, rest: 50, loss: 0.12, meters: meters(withDRAM, one(plug))},
	{name: "server, Intel, 1 socket, no SMT", sockets: 1, cores: 8, threads: 1, idle: 20, first: 5, core: 8, dramIdle: 4, dram: 6, rest: 30, loss: 0.1, meters: meters(withDRAM, events)},
	{name: "server, Intel, 4 sockets", sockets: 4, cores: 12, threads: 2, idle: 40, first: 10, core: 6, smt: 0.25, turbo: 0.3, dramIdle: 10, dram: 20, rest: 150, loss: 0.08, meters: withDRAM},
	{name: "server, AMD, 2 sockets", sockets: 2, cores: 32, threads: 2, idle: 95, first: 8, core: 3, smt: 0.15, turbo: 0.3, rest: 90, loss: 0.08, meters: meters(registers, one(bmc))},
	{name: "server, AMD, perf only", sockets: 1, cores: 24, threads: 2, idle: 60, first: 6, core: 4, smt: 0.2, rest: 70, loss: 0.1, meters: onlyPerf},
	{name: "server, BMC and plug", sockets: 1, cores: 16, threads: 2, idle: 30, first: 9, core: 4, smt: 0.2, dramIdle: 5, dram: 12, rest: 40, loss: 0.1, meters: meters(withDRAM, one(plug, bmc))},
	{name: "server, averaging BMC", sockets: 2, cores: 10, threads: 2, idle: 35, first: 10, core: 6, smt: 0.2, turbo: 0.2, dramIdle: 7, dram: 14, rest: 70, loss: 0.1, meters: meters(withDRAM, one(slowBMC))},
	{name: "server, ACPI power meter alone", sockets: 2, cores: 8, threads: 1, idle: 30, first: 8, core: 9, rest: 60, loss: 0.1, meters: one(acpi)},
	{name: "server, much leakage", sockets: 2, cores: 20, threads: 2, idle: 50, first: 10, core: 5, smt: 0.2, leakage: 0.06, dramIdle: 8, dram: 16, rest: 80, loss: 0.1, meters: meters(withDRAM, one(plug))},
	{name: "server with a GPU", sockets: 1, cores: 16, threads: 2, idle: 40, first: 8, core: 5, smt: 0.2, dramIdle: 6, dram: 10, rest: 110, loss: 0.08, gpu: true, meters: meters(withDRAM, one(bmc))},
	{name: "server, a little busy", sockets: 2, cores: 16, threads: 2, idle: 40, first: 10, core: 5, smt: 0.2, dramIdle: 8, dram: 16, rest: 60, loss: 0.1, background: 1, meters: meters(withDRAM, events)},
	{name: "HPC node, Cray", sockets: 2, cores: 64, threads: 2, idle: 90, first: 10, core: 2.4, smt: 0.1, turbo: 0.2, rest: 80, loss: 0.05, meters: meters(registers, one(node))},
	{name: "desktop, Intel", sockets: 1, cores: 6, threads: 2, idle: 4, first: 9, core: 9, smt: 0.15, turbo: 0.4, dramIdle: 0.8, dram: 2, rest: 25, loss: 0.15, meters: withDRAM},
	{name: "desktop, AMD, plug", sockets: 1, cores: 8, threads: 2, idle: 22, first: 15, core: 9, smt: 0.1, turbo: 0.4, rest: 30, loss: 0.15, meters: meters(registers, one(plug))},
	{name: "laptop, psys", sockets: 1, cores: 4, threads: 2, idle: 1.5, first: 6, core: 4, smt: 0.15, turbo: 0.5, dramIdle: 0.4, dram: 1.2, rest: 3, loss: 0.02, meters: meters(withDRAM, one(psys))},
	{name: "small server, Atom", sockets: 1, cores: 4, threads: 1, idle: 1.5, first: 0.6, core: 1.2, rest: 8, loss: 0.2, meters: registers},
	{name: "board, ARM, INA", sockets: 1, cores: 6, threads: 1, idle: 1.2, first: 0.5, core: 1.4, rest: 4, loss: 0.1, meters: one(ina)},
	{name: "server, ARM, hwmon", sockets: 2, cores: 40, threads: 1, idle: 30, first: 3, core: 2, rest: 60, loss: 0.1, meters: one(acpi)},
	{name: "virtual machine", sockets: 1, cores: 2, threads: 2, idle: 5, core: 5, virtual: true},
}

// sim is a simulation of a machine.
type sim struct {
	*simulated
	load  map[*Step][][2]float64 // see busyCores
	rng   *rand.Rand
	o     *Observation
	truth map[power.Kind][][]float64 // cumulative energy by kind and socket, at each simulatedStep
}

// observe returns an observation of a run.
func (m *simulated) observe(seed uint64) *Observation {
	s := &sim{simulated: m, rng: rand.New(rand.NewPCG(seed, 7)), load: map[*Step][][2]float64{}, truth: map[power.Kind][][]float64{}}
	s.o = &Observation{Machine: Machine{
		CPU: "Simulated CPU", Arch: "amd64", Kernel: "6.18", Virtual: m.virtual, Sockets: m.sockets, Cores: m.sockets * m.cores,
		Threads: m.sockets * m.cores * m.threads, MemoryGiB: 32 * float64(m.sockets),
	}}
	for thread := range m.threads {
		for socket := range m.sockets {
			for core := range m.cores {
				s.o.Machine.CPUs = append(s.o.Machine.CPUs, CPU{Number: thread*m.sockets*m.cores + socket*m.cores + core, Socket: socket, Core: core, Capacity: 1024})
			}
		}
	}
	s.o.Steps = plan(&s.o.Machine, simulatedLength)
	s.draw()
	s.warm()
	s.count()
	for i := range m.meters {
		s.read(&m.meters[i])
	}
	if m.plant != nil {
		m.plant(s.o)
	}
	s.report()
	return s.o
}

// at returns the step that runs at a time.
func (s *sim) at(at float64) *Step {
	i := slices.IndexFunc(s.o.Steps, func(step *Step) bool { return at < step.To })
	return s.o.Steps[max(i, 0)]
}

// draw computes the true energies.
func (s *sim) draw() {
	heat := make([]float64, s.sockets)
	sums := map[power.Kind][]float64{}
	for _, kind := range []power.Kind{power.Package, power.Core, power.DRAM, power.Platform} {
		n := s.sockets
		if kind == power.Platform {
			n = 1
		}
		s.truth[kind], sums[kind] = make([][]float64, n), make([]float64, n)
	}
	wander := 0.
	for at := 0.; at < simulatedLength+5; at += simulatedStep {
		step := s.at(at)
		wander = 0.99*wander + 0.01*s.rng.NormFloat64()
		total := s.rest * (1 + 0.02*wander)
		for socket := range s.sockets {
			busy, second := s.busyCores(step, socket)
			dynamic := s.core * busy * (1 + s.smt*second) * (1 - s.turbo*busy/float64(s.cores))
			if busy > 0 {
				dynamic += s.first
			}
			memory := s.dramIdle
			switch step.Load {
			case Memory:
				dynamic, memory = dynamic*0.8, s.dram
			case Spin:
				memory += 0.05 * (s.dram - s.dramIdle) * busy / float64(s.cores)
			}
			if s.leakage > 0 {
				heat[socket] += (s.leakage*dynamic - heat[socket]) * simulatedStep / 30
			}
			pkg := s.idle + (dynamic+heat[socket])*(1+0.05*wander) + 0.02*s.idle*s.rng.Float64()
			for kind, w := range map[power.Kind]float64{power.Package: pkg, power.Core: 0.7 * (pkg - 0.6*s.idle), power.DRAM: memory} {
				sums[kind][socket] += w * simulatedStep
				s.truth[kind][socket] = append(s.truth[kind][socket], sums[kind][socket])
			}
			total += (pkg + memory) * (1 + s.loss)
		}
		sums[power.Platform][0] += total * simulatedStep
		s.truth[power.Platform][0] = append(s.truth[power.Platform][0], sums[power.Platform][0])
	}
	s.truth[power.PSys] = s.truth[power.Platform]
}

// busyCores returns how many cores of a socket a step keeps busy, and the share of them with two busy threads.
func (s *sim) busyCores(step *Step, socket int) (busy, second float64) {
	if s.load[step] == nil {
		threads := map[[2]int]int{}
		for _, number := range step.CPUs {
			c := s.o.Machine.cpu(number)
			threads[[2]int{c.Socket, c.Core}]++
		}
		s.load[step] = make([][2]float64, s.sockets)
		for at, n := range threads {
			s.load[step][at[0]][0]++
			s.load[step][at[0]][1] += float64(n - 1)
		}
	}
	l := s.load[step][socket]
	return l[0] + s.background/float64(s.sockets)*(1-l[0]/float64(s.cores)), l[1] / max(l[0], 1)
}

// energy returns the true energy of a socket's kind, or of all sockets if socket is negative, until a time.
func (s *sim) energy(kind power.Kind, socket int, at float64) (sum float64) {
	for i, series := range s.truth[kind] {
		if socket < 0 || socket == i {
			x := max(at, 0) / simulatedStep
			n := min(int(x), len(series)-2)
			sum += series[n] + (series[n+1]-series[n])*(min(x, float64(n+1))-float64(n))
		}
	}
	return sum
}

// read reads the zones of a meter.
func (s *sim) read(m *simulatedMeter) {
	sockets := []int{-1}
	if !m.whole {
		sockets = sockets[:0]
		for i := range s.sockets {
			sockets = append(sockets, i)
		}
	}
	for _, socket := range sockets {
		id := string(m.kind)
		if socket >= 0 {
			id += "-" + string(rune('0'+socket))
		}
		z := &Zone{Meter: m.meter, ID: id, Kind: m.kind, Socket: socket, Method: power.Measured, Prompt: m.unit > 0 && m.every == 0 && m.kind != power.PSys, Chosen: !m.unchosen}
		if m.unit > 0 {
			s.readCounter(m, z)
		} else {
			s.readPower(m, z)
		}
		s.o.Zones = append(s.o.Zones, z)
	}
}

func (s *sim) readCounter(m *simulatedMeter, z *Zone) {
	full := m.unit * registerCounts
	start := s.rng.Float64() * full * 0.99
	if m.wraps {
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
		if m.wraps {
			counts = math.Mod(counts, registerCounts)
		}
		if z.Reads++; z.Range > 0 || m.every > 0 {
			z.Raw = append(z.Raw, Point{at, math.Floor(counts*m.unit*1e6) / 1e6})
		}
	}
}

func (s *sim) readPower(m *simulatedMeter, z *Zone) {
	sum := 0.
	for at := 0.; at < simulatedLength; at += m.every {
		average := max(m.average, simulatedStep)
		w := (s.energy(m.kind, z.Socket, at-m.late) - s.energy(m.kind, z.Socket, at-m.late-average)) / average
		if at-m.late < average {
			w = (s.energy(m.kind, z.Socket, average)) / average
		}
		w *= 1 + (0.003+m.noise)*s.rng.NormFloat64()
		if at > 0 {
			sum += math.Round(w/m.quantum) * m.quantum * m.every
		}
		z.Points = append(z.Points, Point{at, sum})
		z.Reads++
	}
}

// warm reads a temperature sensor.
func (s *sim) warm() {
	celsius := 35.
	var points []Point
	for at := 0.; at < simulatedLength; at++ {
		busy := 0.
		for socket := range s.sockets {
			b, _ := s.busyCores(s.at(at), socket)
			busy += b / float64(s.cores*s.sockets)
		}
		celsius += (35 + 40*busy - celsius) / 12
		points = append(points, Point{at, math.Round(celsius)})
	}
	s.o.Temperatures = [][]Point{points}
}

// count counts CPU times.
func (s *sim) count() {
	s.o.Busy = make([][]Point, len(s.o.Machine.CPUs))
	for i := range s.o.Busy {
		sum := 0.
		for at := 0.; at <= simulatedLength+1; at += 0.2 {
			s.o.Busy[i] = append(s.o.Busy[i], Point{at, math.Round(sum*100) / 100})
			share := 0.01 + s.background/float64(len(s.o.Busy))
			if slices.Contains(s.at(at).CPUs, i) {
				share = 1
			}
			sum += 0.2 * share
		}
	}
	for _, step := range s.o.Steps {
		for _, cpu := range step.CPUs {
			run := (step.To - step.From) * (0.995 + 0.002*s.rng.Float64())
			step.Programs = append(step.Programs, Program{CPU: cpu, PID: 1000 + cpu, Waited: run, BPF: run - 0.004*s.rng.Float64(), Procfs: math.Floor(run*100) / 100, Joules: map[string]float64{}})
		}
	}
}

// report makes the receiver's totals: its static power is known from the start.
func (s *sim) report() {
	l := &s.o.Ledger
	l.Source, l.Trained = "bpf", map[string]bool{}
	classes := map[string]*group{}
	a := &analysis{Observation: s.o, blamed: map[*Zone]bool{}}
	for _, kind := range []power.Kind{power.Package, power.DRAM, power.Platform} {
		if g := a.first(kind); g != nil && (kind != power.Platform || len(classes) == 0) {
			classes[classID(kind, power.Measured)] = g
			l.Trained[classID(kind, power.Measured)] = true
		}
	}
	if len(classes) == 0 {
		classes[classID(power.Package, power.Modeled)] = nil
	}
	for at := 5.; at < simulatedLength; at++ {
		e := Entry{At: at, Kinds: map[string]Sums{}, GPUs: map[string]GPU{}}
		for class, g := range classes {
			var k Sums
			if g == nil {
				k.Zones = s.energy(power.Package, -1, at)
				k.Idle = s.idle * at
			} else {
				rested := 0.
				for _, z := range g.zones {
					k.Zones += valueAt(z.Points, at)
					rested += rate(z.Points, 10, 35) // of the first step
				}
				k.Idle, k.Uncertainty = min(rested*0.99*at, k.Zones), 0.02*rested
			}
			k.Active = k.Zones - k.Idle
			k.Processes = 0.97 * k.Active
			k.Unattributed = k.Active - k.Processes
			e.Kinds[class] = k
		}
		if s.gpu {
			e.GPUs["gpu"] = GPU{Watts: 60 + s.rng.Float64()}
			if at > 60 && at < 120 {
				e.GPUs["gpu"] = GPU{Watts: 290 + 5*s.rng.Float64(), Utilization: 0.95}
			}
		}
		l.Entries = append(l.Entries, e)
	}
	for _, step := range s.o.Steps {
		for class := range classes {
			for i := range step.Programs {
				step.Programs[i].Joules[class] = 3 * step.Programs[i].Waited * (0.995 + 0.01*s.rng.Float64())
			}
		}
	}
}
