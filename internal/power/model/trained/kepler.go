// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// keplerJSON is a file of Kepler Model Server, or of its published database
// (sustainable-computing-io/kepler-model-db), or of Kepler's own data/model_weight. It has one
// member for each of its components. The other members come from its metadata.json.
type keplerJSON struct {
	Name     string         `json:"model_name"`
	Output   string         `json:"output_type"` // AbsPower or DynPower
	Spec     *specJSON      `json:"machine_spec"`
	Platform *componentJSON `json:"platform,omitempty"`
	Package  *componentJSON `json:"package,omitempty"`
	Core     *componentJSON `json:"core,omitempty"`
	Uncore   *componentJSON `json:"uncore,omitempty"`
	DRAM     *componentJSON `json:"dram,omitempty"`
	// The mean absolute errors in percent, over the tenth of the record that was excluded from the
	// training; -1 if not available.
	PlatformError float64 `json:"platform_mape,omitempty"`
	PackageError  float64 `json:"package_mape,omitempty"`
	CoreError     float64 `json:"core_mape,omitempty"`
	UncoreError   float64 `json:"uncore_mape,omitempty"`
	DRAMError     float64 `json:"dram_mape,omitempty"`
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
	Weights *weightsJSON `json:"All_Weights"`
}

// weightsJSON are the weights of a component, as get_weight_dict of Kepler Model Server's trainers
// returns them. The mean of a feature is written by dev/kepler/export.py.
type weightsJSON struct {
	Bias        float64                    `json:"Bias_Weight"`
	Categorical map[string]json.RawMessage `json:"Categorical_Variables"`
	Numerical   map[string]featureJSON     `json:"Numerical_Variables"`
	CurveFit    []float64                  `json:"CurveFit_Weights,omitempty"`
	Polynomial  *json.RawMessage           `json:"Polynomial_Weights,omitempty"` // written by earlier versions of export.py; an error
	XGBoost     []byte                     `json:"XGboost_Weights,omitempty"`    // the JSON of XGBoost, in base64
}

// featureJSON scales a feature to x = (feature - mean) / scale.
type featureJSON struct {
	Scale  float64 `json:"scale"`
	Mean   float64 `json:"mean"`
	Weight float64 `json:"weight"`
}

// cpuTime is the feature that utilization provides: milliseconds of CPU time per second.
const cpuTime = "bpf_cpu_time_ms"

// Features that replace CPU time as the variable of a curve, if the model has them (main_feature in
// train_types.py).
const (
	instructions = "cpu_instructions"
	cacheMisses  = "cache_miss"         // of dram
	pageCacheHit = "bpf_page_cache_hit" // of dram
)

// known maps names of train_types.py to features that can be read. The other features are page
// cache hits, which require BPF in the page cache, and counters of kubelet and cgroups in older
// versions of Kepler.
var known = map[string]model.Feature{
	cpuTime: model.CPUTime, "cpu_cycles": model.Cycles, instructions: model.Instructions, cacheMisses: model.CacheMisses,
	"bpf_net_rx_irq": model.NetworkReceive, "bpf_net_tx_irq": model.NetworkTransmit, "bpf_block_irq": model.Block,
}

// function computes power from a trainer's weights and x, the scaled feature.
type function struct {
	weights int // number of CurveFit_Weights
	watts   func(w []float64, x float64) float64
}

// curveFits maps the name of a trainer to its function (the files main.py in kepler-model-server's
// trainer/).
var curveFits = map[string]function{
	"LogarithmicRegressionTrainer": {3, func(w []float64, x float64) float64 { return w[0]*math.Log(w[1]*x+1) + w[2] }},
	"LogisticRegressionTrainer": {4, func(w []float64, x float64) float64 {
		return w[0]/(1+math.Exp(-w[2]*(x-w[1]))) + w[3]
	}},
	"ExponentialRegressionTrainer": {3, func(w []float64, x float64) float64 { return w[0]*math.Exp(w[1]*x) + w[2] }},
}

// parseKepler reads a file of Kepler Model Server. If the file lacks the model's name or output
// type, parseKepler uses the path, which contains both in kepler-model-db.
func parseKepler(data []byte, path string) (*trainedModel, error) {
	name := filepath.Base(path)
	var f keplerJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	t := &trainedModel{name: name, by: keplerTrainer, zones: map[power.Kind]zone{}}
	switch f.Output {
	case "":
		t.dynamic = strings.Contains(path, dynPower)
	case absPower:
	case dynPower:
		t.dynamic = true
	default:
		return nil, fmt.Errorf("output_type %.40q is neither %s nor %s", f.Output, absPower, dynPower)
	}
	if f.Spec != nil {
		spec, err := f.Spec.machine()
		if err != nil {
			return nil, fmt.Errorf("machine_spec: %w", err)
		}
		t.machine = spec
	}
	var errs []error
	trainer := trainerOf(cmp.Or(f.Name, name))
	for _, k := range Kinds {
		member, percent := f.component(k)
		if member == nil || *member == nil {
			continue
		}
		c := *member
		if c.Weights == nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", name, k, errArchive))
			continue
		}
		if c.Weights.isEmpty() {
			continue
		}
		z, err := c.Weights.zone(k, trainer)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", name, k, err))
			continue
		}
		if z.isNothing() {
			continue
		}
		z.error = max(*percent/100, 0)
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

// component returns the members that hold the component of a zone kind and its error in percent.
// Both are nil if the format has no such component.
func (f *keplerJSON) component(k power.Kind) (c **componentJSON, percent *float64) {
	switch k {
	case power.Platform:
		return &f.Platform, &f.PlatformError
	case power.Package:
		return &f.Package, &f.PackageError
	case power.Core:
		return &f.Core, &f.CoreError
	case power.Uncore:
		return &f.Uncore, &f.UncoreError
	case power.DRAM:
		return &f.DRAM, &f.DRAMError
	}
	return nil, nil
}

const (
	keplerTrainer = "Kepler Model Server"
	absPower      = "AbsPower"
	dynPower      = "DynPower"
)

// machine returns the machine that the model was trained on.
func (s *specJSON) machine() (machine.Machine, error) {
	m := machine.Machine{CPU: s.Processor, Threads: int(s.Cores), Sockets: int(s.Chips)}
	if !(s.Memory >= 0 && s.Memory <= 1<<20) {
		return m, fmt.Errorf("memory of %v GiB is impossible", s.Memory)
	}
	m.Memory = uint64(s.Memory * (1 << 30))
	return m, checkMachine(&m)
}

// exporter is the address of the script that converts archives.
const exporter = "https://github.com/energyreceiver/energyreceiver/blob/main/dev/kepler/export.py"

var (
	errNoModel    = errors.New("it is neither a model of energy model, which has a version, nor one of Kepler Model Server, which has All_Weights")
	errPolynomial = errors.New("Polynomial_Weights are no longer read: convert the archive of the model again with " + exporter)
	errConstant   = errors.New("no feature has a weight, so the power would be constant: use a model of another trainer")
	errArchive    = errors.New("it has no All_Weights, as in the archives of the trainers without JSON weights, which are read by Python only: " +
		"convert the archive with " + exporter + " (KNeighbors and SVR cannot be converted), or use a model of another trainer")
)

// trainerOf returns the trainer at the start of a model's name, such as
// "SGDRegressorTrainer_0.json".
func trainerOf(name string) string {
	trainer, _, _ := strings.Cut(name, "_")
	return strings.TrimSuffix(trainer, ".json")
}

// isEmpty reports whether the power of the component is always 0, because the machine of the
// training did not have the component.
func (w *weightsJSON) isEmpty() bool {
	if n := len(w.CurveFit); n > 0 {
		return w.CurveFit[0] == 0 && w.CurveFit[n-1] == 0 // the factor and the offset
	}
	if len(w.XGBoost) > 0 || w.Polynomial != nil {
		return false // see isNothing
	}
	for _, f := range w.Numerical {
		if f.Weight != 0 {
			return false
		}
	}
	return w.Bias == 0
}

func (w *weightsJSON) zone(k power.Kind, trainer string) (*keplerZone, error) {
	switch {
	case len(w.Categorical) > 0:
		return nil, fmt.Errorf("it depends on %.200q, which is not available here", names(w.Categorical))
	case w.Polynomial != nil:
		return nil, errPolynomial
	case len(w.XGBoost) > 0:
		return w.boosted()
	case len(w.CurveFit) > 0:
		return w.curveFit(k, trainer)
	}
	return w.linear()
}

// linear returns the sum of the features times their weights (linear.go of Kepler).
func (w *weightsJSON) linear() (*keplerZone, error) {
	uses := func(name string) bool { return w.Numerical[name].Weight != 0 }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(w.Numerical)), uses) {
		return nil, errConstant
	}
	var weights []float64
	for _, name := range sortedNames(w.Numerical) {
		weights = append(weights, w.Numerical[name].Weight)
	}
	return w.newZone(uses, func(x []float64) float64 {
		watts := w.Bias
		for i, weight := range weights {
			watts += weight * x[i]
		}
		return watts
	})
}

// curveFit returns the curve over the feature that the trainer used.
func (w *weightsJSON) curveFit(k power.Kind, trainer string) (*keplerZone, error) {
	choice := []string{instructions, cpuTime}
	if k == power.DRAM {
		choice = []string{cacheMisses, pageCacheHit, cpuTime}
	}
	of := sortedNames(w.Numerical)
	i := slices.IndexFunc(choice, func(name string) bool { return slices.Contains(of, name) })
	if i < 0 {
		return nil, fmt.Errorf("it is a curve of one of the features %.200q, not of %s", strings.Join(of, ", "), strings.Join(choice, " or "))
	}
	how, err := functionOf(trainer, len(w.CurveFit))
	if err != nil {
		return nil, err
	}
	at := slices.Index(of, choice[i])
	return w.newZone(func(name string) bool { return name == choice[i] }, func(x []float64) float64 { return how.watts(w.CurveFit, x[at]) })
}

func functionOf(trainer string, weights int) (function, error) {
	how, ok := curveFits[trainer]
	if !ok && weights == 4 {
		how, ok = curveFits["LogisticRegressionTrainer"], true // the only function with four weights
	}
	switch {
	case !ok:
		return how, fmt.Errorf("model_name does not name the trainer of its curve: %s", strings.Join(sortedNames(curveFits), ", "))
	case how.weights != weights:
		return how, fmt.Errorf("%d CurveFit_Weights, %s has %d", weights, trainer, how.weights)
	}
	return how, nil
}

func names[T any](m map[string]T) string {
	return strings.Join(sortedNames(m), ", ")
}

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

const (
	// A curve is divided into at least segments parts. Each part is halved at most maxHalvings
	// times.
	segments    = 16
	maxHalvings = 16
	// The maximum errors of the straight lines between samples, in watts and relative to the power.
	// The larger of both applies.
	sampleError, relativeSampleError = 0.01, 0.001
)

// sample returns a curve that approximates the function of utilization. At the quarters between its
// points, its error is at most the larger of 10 mW and 0.1 %. A jump of the function is located to
// within 1e-6 of utilization.
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

// straight reports whether the function is close enough to the line between two of its points.
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
