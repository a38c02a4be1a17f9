// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
)

// keplerJSON is a file of Kepler Model Server, or of its published database
// (sustainable-computing-io/kepler-model-db), or of Kepler's own data/model_weight. It has one
// member for each of its components.
type keplerJSON struct {
	Name     string         `json:"model_name"`
	Spec     *specJSON      `json:"machine_spec"`
	Platform *componentJSON `json:"platform"`
	Package  *componentJSON `json:"package"`
	Core     *componentJSON `json:"core"`
	Uncore   *componentJSON `json:"uncore"`
	DRAM     *componentJSON `json:"dram"`
}

// specJSON describes the machine that the model was trained on (NodeTypeSpec in
// node_type_index.py). Cores are threads: psutil.cpu_count(logical=True).
type specJSON struct {
	Processor string  `json:"processor"`
	Cores     float64 `json:"cores"`
	Chips     float64 `json:"chips"`
	Memory    float64 `json:"memory"` // GiB
}

type componentJSON struct {
	Weights weightsJSON `json:"All_Weights"`
}

type weightsJSON struct {
	Bias        float64                    `json:"Bias_Weight"`
	Categorical map[string]json.RawMessage `json:"Categorical_Variables"`
	Numerical   map[string]featureJSON     `json:"Numerical_Variables"`
	CurveFit    []float64                  `json:"CurveFit_Weights"`
}

type featureJSON struct {
	Scale  float64 `json:"scale"`
	Weight float64 `json:"weight"`
}

// cpuTime is the feature that utilization provides: milliseconds of CPU time per second.
const cpuTime = "bpf_cpu_time_ms"

// function is how a trainer's weights make a power of x, which is the feature over its scale.
type function struct {
	weights int // how many CurveFit_Weights it has
	watts   func(w []float64, x float64) float64
}

// curveFits are the functions by the name of their trainer, as in the files main.py of kepler-model-server's trainer/.
var curveFits = map[string]function{
	"LogarithmicRegressionTrainer": {3, func(w []float64, x float64) float64 { return w[0]*math.Log(w[1]*x+1) + w[2] }},
	"LogisticRegressionTrainer": {4, func(w []float64, x float64) float64 {
		return w[0]/(1+math.Exp(-w[2]*(x-w[1]))) + w[3]
	}},
	"ExponentialRegressionTrainer": {3, func(w []float64, x float64) float64 { return w[0]*math.Exp(w[1]*x) + w[2] }},
}

// keplerZone is a component of a model.
type keplerZone struct {
	weights []float64
	scale   float64
	watts   func(w []float64, x float64) float64
}

// parseKepler reads a file of Kepler Model Server. Where it does not have the model's name, that of the file is taken.
func parseKepler(data []byte, name string) (*trainedModel, error) {
	var f keplerJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	t := &trainedModel{name: name, by: "Kepler Model Server", zones: map[power.Kind]zone{}}
	if f.Spec != nil {
		spec, err := f.Spec.machine()
		if err != nil {
			return nil, fmt.Errorf("machine_spec: %w", err)
		}
		t.machine = spec
	}
	components := map[power.Kind]*componentJSON{
		power.Platform: f.Platform, power.Package: f.Package, power.Core: f.Core, power.Uncore: f.Uncore, power.DRAM: f.DRAM,
	}
	var errs []error
	trainer := trainerOf(cmp.Or(f.Name, name))
	for _, k := range Kinds {
		c := components[k]
		if c == nil || c.Weights.isEmpty() {
			continue
		}
		z, err := c.Weights.zone(k, trainer)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", name, k, err))
			continue
		}
		t.zones[k] = z
	}
	switch t.refused = errors.Join(errs...); {
	case len(t.zones) > 0:
		return t, nil
	case t.refused != nil:
		return nil, t.refused
	}
	return nil, errNoModel
}

// machine returns what the model was trained on.
func (s *specJSON) machine() (machine.Machine, error) {
	m := machineJSON{CPU: s.Processor, Threads: int(s.Cores), Sockets: int(s.Chips)}
	if !(s.Memory >= 0 && s.Memory <= 1<<20) {
		return machine.Machine{}, fmt.Errorf("memory of %v GiB is impossible", s.Memory)
	}
	m.Memory = uint64(s.Memory * (1 << 30))
	return m.machine(), m.check()
}

var errNoModel = errors.New("it is neither a model of energy train, which has a version, nor one of Kepler Model Server, which has All_Weights")

// trainerOf returns the trainer that a model's name begins with: "SGDRegressorTrainer_0.json".
func trainerOf(name string) string {
	trainer, _, _ := strings.Cut(name, "_")
	return strings.TrimSuffix(trainer, ".json")
}

// isEmpty reports whether the component measured nothing: the machine that the model was trained on did not have it.
func (w *weightsJSON) isEmpty() bool {
	if n := len(w.CurveFit); n > 0 {
		return w.CurveFit[0] == 0 && w.CurveFit[n-1] == 0 // the factor and the offset
	}
	for _, f := range w.Numerical {
		if f.Weight != 0 {
			return false
		}
	}
	return w.Bias == 0
}

func (w *weightsJSON) zone(k power.Kind, trainer string) (*keplerZone, error) {
	if len(w.Categorical) > 0 {
		return nil, fmt.Errorf("it depends on %s, which is not known here", names(w.Categorical))
	}
	if len(w.CurveFit) == 0 {
		return w.linear()
	}
	return w.curveFit(k, trainer)
}

// linear returns the line of the feature CPU time. The others must have no weight.
func (w *weightsJSON) linear() (*keplerZone, error) {
	for _, name := range slices.Sorted(maps.Keys(w.Numerical)) {
		if f := w.Numerical[name]; name != cpuTime && f.Weight != 0 {
			return nil, fmt.Errorf("it depends on the feature %s: only %s is known here", name, cpuTime)
		}
	}
	f := w.Numerical[cpuTime]
	z := &keplerZone{weights: []float64{w.Bias, f.Weight}, scale: f.Scale, watts: func(w []float64, x float64) float64 { return w[0] + w[1]*x }}
	if f.Weight == 0 {
		z.scale = 1
	}
	return z, z.check()
}

// Features that a curve is over, where a model has them, in place of CPU time (main_feature in train_types.py).
const (
	instructions = "cpu_instructions"
	cacheMisses  = "cache_miss"         // of dram
	pageCacheHit = "bpf_page_cache_hit" // of dram
)

// curveFit returns the curve of the one feature that the trainer used.
func (w *weightsJSON) curveFit(k power.Kind, trainer string) (*keplerZone, error) {
	others := []string{instructions}
	if k == power.DRAM {
		others = []string{cacheMisses, pageCacheHit}
	}
	for _, name := range others {
		if _, ok := w.Numerical[name]; ok {
			return nil, fmt.Errorf("it is a curve of the feature %s: only %s is known here", name, cpuTime)
		}
	}
	f, ok := w.Numerical[cpuTime]
	if !ok {
		return nil, fmt.Errorf("it is a curve of the features %s: only %s is known here", names(w.Numerical), cpuTime)
	}
	how, err := functionOf(trainer, len(w.CurveFit))
	if err != nil {
		return nil, err
	}
	z := &keplerZone{weights: w.CurveFit, scale: f.Scale, watts: how.watts}
	return z, z.check()
}

func functionOf(trainer string, weights int) (function, error) {
	how, ok := curveFits[trainer]
	if !ok && weights == 4 {
		how, ok = curveFits["LogisticRegressionTrainer"], true // only this one has four
	}
	switch {
	case !ok:
		return how, fmt.Errorf("the trainer of its curve is not told by model_name: %s", strings.Join(slices.Sorted(maps.Keys(curveFits)), ", "))
	case how.weights != weights:
		return how, fmt.Errorf("%d CurveFit_Weights, %s has %d", weights, trainer, how.weights)
	}
	return how, nil
}

func names[T any](m map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// check returns an error where the component cannot be a power.
func (z *keplerZone) check() error {
	if !(z.scale > 0) {
		return fmt.Errorf("the scale of %s is %v", cpuTime, z.scale)
	}
	if !isPower(z.at(0)) {
		return fmt.Errorf("its power with no CPU busy is %v W", z.at(0))
	}
	return nil
}

func isPower(watts float64) bool { return watts >= 0 && watts <= maxWatts }

// at returns the power with a CPU time in ms per second, 0 where it would be negative.
func (z *keplerZone) at(ms float64) float64 {
	watts := z.watts(z.weights, ms/z.scale)
	if watts < 0 { // keep NaN
		return 0
	}
	return watts
}

func (*keplerZone) relativeError() float64 { return 0 }

// curve returns the power as Kepler has it: that of the CPU time here, of which the power without
// CPU time is in proportion to the threads, where they are fewer.
func (z *keplerZone) curve(_ power.Kind, s *scale) (model.Curve, error) {
	if s.threads < 1 {
		return nil, errors.New("the number of threads here is not known")
	}
	idle := z.at(0)
	elsewhere := idle * (1 - min(1, s.share))
	return sample(func(u float64) float64 {
		watts := z.at(u*1000*float64(s.threads)) - elsewhere
		if watts < 0 {
			return 0
		}
		return watts
	})
}

const (
	// segments is into how many a curve is divided at least, and maxHalvings how often one of them is halved.
	segments    = 16
	maxHalvings = 16
	// sampleError is how far the samples' straight lines are from the curve, in watts and as a share of the power.
	sampleError, relativeSampleError = 0.01, 0.001
)

// sample returns the curve that follows the function of utilization: it is off by no more than the
// larger of 10 mW and 0.1 % at the quarters between its points. Closer than 1e-6 a function that
// jumps is not followed.
func sample(watts func(u float64) float64) (model.Curve, error) {
	points := []model.Point{{Utilization: 0, Watts: watts(0)}}
	var err error
	var add func(to model.Point, halvings int)
	add = func(to model.Point, halvings int) {
		from := points[len(points)-1]
		if !isPower(to.Watts) {
			err = fmt.Errorf("its power with %.3g of the CPUs busy is %v W", to.Utilization, to.Watts)
		}
		if err != nil || len(points) > maxPoints {
			return
		}
		if halvings < maxHalvings && !straight(watts, from, to) {
			middle := (from.Utilization + to.Utilization) / 2
			add(model.Point{Utilization: middle, Watts: watts(middle)}, halvings+1)
			add(to, halvings+1)
			return
		}
		points = append(points, to)
	}
	for i := 1; i <= segments; i++ {
		u := float64(i) / segments
		add(model.Point{Utilization: u, Watts: watts(u)}, 0)
	}
	switch {
	case err != nil:
		return nil, err
	case len(points) > maxPoints:
		return nil, fmt.Errorf("its power changes too often to be followed by %d points", maxPoints)
	}
	return model.NewCurve(points)
}

// straight reports whether the function follows the line between two of its points.
func straight(watts func(u float64) float64, from, to model.Point) bool {
	for _, share := range []float64{0.25, 0.5, 0.75} {
		w := watts(from.Utilization + share*(to.Utilization-from.Utilization))
		line := from.Watts + share*(to.Watts-from.Watts)
		if !(math.Abs(w-line) <= max(sampleError, relativeSampleError*math.Abs(w))) {
			return false
		}
	}
	return true
}
