// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"hash/crc32"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh/calibrated"
)

// Duet is a simulation of two programs side by side: the sum of the series that each had alone.
type Duet struct {
	Machine, Name string
	Parts         [2][]Program // samples of each program, zero while it is idle
	// Others are samples of the machine's other programs.
	Others []Program
}

// The length of a duet in samples, and the length of a sample of power-modelling.
const (
	duetLength    = 800
	sampleSeconds = 10
)

// Duets returns a draw of all pairs of programs of the same machine. Each program repeats random
// pieces of its series. In two of three pairs, both programs are idle in between.
func Duets(all []Program, draw uint64) (duets []Duet) {
	byMachine := map[string][]Program{}
	for _, p := range all {
		byMachine[p.Machine] = append(byMachine[p.Machine], p)
	}
	for _, machine := range slices.Sorted(maps.Keys(byMachine)) {
		series := map[string][]Program{}
		for _, p := range byMachine[machine] {
			series[p.Name] = append(series[p.Name], p)
		}
		names := slices.Sorted(maps.Keys(series))
		for i, a := range names {
			for _, b := range names[:i] {
				duets = append(duets, newDuet(machine, a, b, series, draw))
			}
		}
	}
	return duets
}

func newDuet(machine, a, b string, series map[string][]Program, draw uint64) Duet {
	d := Duet{Machine: machine, Name: a + " and " + b}
	r := rand.New(rand.NewPCG(uint64(crc32.ChecksumIEEE([]byte(machine+d.Name))), draw)) //nolint:gosec // reproducible
	rests := r.Float64() < 0.67
	d.Parts = [2][]Program{piecesOf(series[a], rests, r), piecesOf(series[b], rests, r)}
	for _, other := range slices.Sorted(maps.Keys(series)) {
		if other != a && other != b {
			d.Others = append(d.Others, piecesOf(series[other], false, r)...)
		}
	}
	r.Shuffle(len(d.Others), func(i, j int) { d.Others[i], d.Others[j] = d.Others[j], d.Others[i] })
	return d
}

func piecesOf(series []Program, rests bool, r *rand.Rand) (samples []Program) {
	for len(samples) < duetLength {
		length := 20 + r.IntN(100)
		from := r.IntN(max(1, len(series)-length))
		for i := range length {
			samples = append(samples, series[from+i%(len(series)-from)])
		}
		if rests {
			samples = append(samples, make([]Program, 10+r.IntN(50))...)
		}
	}
	return samples[:duetLength]
}

// Miscounts reports whether the duet has a program with cache misses counted by another event. That
// event occurs 100 times as often as the event of the machine's other programs.
func (d *Duet) Miscounts() bool {
	return d.Machine == "INTEL Xeon E5-2650" && strings.Contains(d.Name, "web_search")
}

// Rule is a way to divide the energy of a duet.
type Rule struct {
	// Exponent is the clock rate's exponent in the basic weight: 2 in the receiver, 1 for cycles, 0
	// for CPU time.
	Exponent float64
	// Strength is the strength of the ridge. If SmartWatts is set, its model replaces the ridge.
	Strength   float64
	SmartWatts bool
	// Static is the static power in the readings of the machine's meter, in watts.
	Static float64
	// Change multiplies the cache misses of the second half. 1 means that the event does not
	// change.
	Change float64
	// Unseen is set if the model is fitted only to the machine's other programs.
	Unseen bool
	// Every is the number of samples per counted sample; 1 counts all samples. In between, programs
	// have the events per CPU time of their last counted sample.
	Every int
}

// Shares are the parts of a duet's energy that are attributed to the wrong program.
type Shares struct{ CPUTime, Basic, Model float64 }

// Share divides the energy of the second half of a duet. The model observes the power of both
// programs together. Each estimate is made before the model observes the sample.
func (r Rule) Share(d *Duet) Shares {
	var m model = &ridged{*ridge.New(r.Strength)}
	if r.SmartWatts {
		m = &smartWatts{}
	}
	if r.Unseen {
		for i := range d.Others {
			m.Observe(r.sample(&d.Others[i], &Program{}))
		}
	}
	var cpuTime, basic, modeled Misattributed
	var held [2]Program
	for i := range duetLength {
		a, b := d.Parts[0][i], d.Parts[1][i]
		counted := i%r.Every == 0
		for k, p := range []*Program{&a, &b} {
			if counted && p.CPU > 0 {
				held[k] = *p
			}
			p.hold(&held[k])
		}
		half := i >= duetLength/2
		if half {
			a.Misses, b.Misses = r.Change*a.Misses, r.Change*b.Misses
		}
		if all := a.Watts + b.Watts; half && all > 0 {
			share := func(x, y float64) float64 { return math.Abs(x/(x+y)*all - a.Watts) }
			cpuTime.add(share(a.CPU, b.CPU), all)
			basic.add(share(r.basic(&a), r.basic(&b)), all)
			modeled.add(share(r.weights(m, &a, &b)), all)
		}
		if counted && !r.Unseen {
			m.Observe(r.sample(&a, &b))
		}
	}
	return Shares{cpuTime.Part(), basic.Part(), modeled.Part()}
}

// hold sets the program's events per CPU time to the events of its last counted sample.
func (p *Program) hold(counted *Program) {
	if counted.CPU > 0 {
		times := p.CPU / counted.CPU
		p.Cycles, p.Instructions, p.Misses = times*counted.Cycles, times*counted.Instructions, times*counted.Misses
	}
}

func (r Rule) sample(a, b *Program) ridge.Sample {
	return ridge.Sample{
		Seconds: sampleSeconds, Base: r.basic(a) + r.basic(b), Instructions: a.Instructions + b.Instructions, Misses: a.Misses + b.Misses,
		Watts: a.Watts + b.Watts + r.Static,
	}
}

// basic returns the basic weight, per second.
func (r Rule) basic(p *Program) float64 {
	if p.CPU == 0 {
		return 0
	}
	return p.CPU * math.Pow(p.Cycles/p.CPU, r.Exponent)
}

// weights returns the estimated power of two programs. Before the model is fitted, it returns their
// basic weights.
func (r Rule) weights(m model, a, b *Program) (float64, float64) {
	x, y := r.sample(a, &Program{}), r.sample(b, &Program{})
	estimate := m.estimate()
	if estimate == nil {
		return x.Base, y.Base
	}
	if wa, wb := estimate(&x), estimate(&y); wa+wb > 0 {
		return wa, wb
	}
	return x.Base, y.Base
}

// model is a power model. Its estimate is nil until the model is fitted.
type model interface {
	Observe(s ridge.Sample)
	estimate() func(*ridge.Sample) float64
}

type ridged struct{ ridge.Model }

func (m *ridged) estimate() func(*ridge.Sample) float64 {
	c, ok := m.Coefficients()
	if !ok {
		return nil
	}
	return func(s *ridge.Sample) float64 { return c.Watts(s.Base, s.Instructions, s.Misses) }
}

// smartWatts is the model of SmartWatts with one layer. The base must be cycles.
type smartWatts struct{ calibrated.Model }

func (m *smartWatts) Observe(s ridge.Sample) {
	m.Model.Observe(calibrated.Sample{Rates: calibrated.Rates{s.Base, s.Instructions, s.Misses}, Watts: s.Watts})
}

func (m *smartWatts) estimate() func(*ridge.Sample) float64 {
	fit := m.At(0)
	if fit == nil {
		return nil
	}
	return func(s *ridge.Sample) float64 { return fit.Active(&calibrated.Rates{s.Base, s.Instructions, s.Misses}) }
}
