// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"encoding/json"
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// Group is a feature group of Kepler Model Server.
type Group struct {
	// Name is the name in train_types.py.
	Name string
	// Features are sorted by their names.
	Features []model.Feature
}

// Counters are the features of hardware counters, sorted by their names.
var Counters = []model.Feature{model.CacheMisses, model.Cycles, model.Instructions}

// Groups are the feature groups that Fit can train: CPU time, hardware counters, and both. In Kepler
// Model Server, BPFOnly and Basic contain page cache hits too.
var Groups = []Group{
	{"BPFOnly", []model.Feature{model.CPUTime}},
	{"CounterOnly", Counters},
	{"Basic", append([]model.Feature{model.CPUTime}, Counters...)},
}

// The trainers of Fit, by their names in Kepler Model Server.
const (
	LinearTrainer     = "SGDRegressorTrainer"
	PolynomialTrainer = "PolynomialRegressionTrainer"
	BoostedTrainer    = "XgboostFitTrainer"
)

// Sample is the mean power of a zone kind over an interval, and the rates of the node.
type Sample struct {
	Rates model.Rates
	Watts float64
}

// Fitted is the power of a zone kind that was fitted to samples.
type Fitted struct {
	// Error is the mean absolute error of the power, relative to the mean power, for Encode. Fit
	// leaves it 0, for unknown.
	Error   float64
	zone    *keplerZone
	weights *weightsJSON // nil for a polynomial, which the format cannot hold
}

// Watts returns the power at rates.
func (f *Fitted) Watts(r *model.Rates) float64 { return f.zone.at(r) }

// Fit trains a model of the group's features with samples. The error is not nil if a feature was
// always 0, or if the power does not depend on the features.
func (g *Group) Fit(trainer string, samples []Sample) (*Fitted, error) {
	w := weightsJSON{Categorical: map[string]json.RawMessage{}, Numerical: map[string]featureJSON{}}
	x, y := make([][]float64, len(samples)), make([]float64, len(samples))
	for i := range samples {
		x[i], y[i] = make([]float64, len(g.Features)), samples[i].Watts
	}
	for j, f := range g.Features {
		scale := 0.0
		for i := range samples {
			scale = max(scale, samples[i].Rates[f])
		}
		if scale < smallestScale {
			return nil, fmt.Errorf("%s was always 0", FeatureName(f))
		}
		for i := range samples {
			x[i][j] = samples[i].Rates[f] / scale
		}
		w.Numerical[FeatureName(f)] = featureJSON{Scale: scale}
	}
	return w.fit(trainer, x, y)
}

// fit sets the weights, and returns the model that the file would have.
func (w *weightsJSON) fit(trainer string, x [][]float64, y []float64) (f *Fitted, err error) {
	switch trainer {
	case PolynomialTrainer:
		return w.polynomial(x, y)
	case BoostedTrainer:
		trees, base := boost(x, y)
		w.XGBoost, err = encodeXGBoost(trees, base, len(x[0]))
	default:
		var weights []float64
		weights, w.Bias, err = ridge(x, y)
		for i, name := range sortedNames(w.Numerical) {
			feature := w.Numerical[name]
			feature.Weight = weights[i]
			w.Numerical[name] = feature
		}
	}
	if err != nil {
		return nil, err
	}
	z, err := w.zone("", trainer)
	return &Fitted{zone: z, weights: w}, err
}

// polynomial fits a polynomial of the second degree, as Kepler Model Server does.
func (w *weightsJSON) polynomial(x [][]float64, y []float64) (*Fitted, error) {
	products := make([][]float64, len(x))
	for i := range x {
		products[i] = withProducts(x[i])
	}
	weights, bias, err := ridge(products, y)
	if err != nil {
		return nil, err
	}
	z, err := w.newZone(func(string) bool { return true }, func(x []float64) float64 {
		return bias + floats.Dot(weights, withProducts(x))
	})
	return &Fitted{zone: z}, err
}

// withProducts returns the features and the products of any two of them.
func withProducts(x []float64) []float64 {
	all := append([]float64(nil), x...)
	for i := range x {
		for j := range i + 1 {
			all = append(all, x[i]*x[j])
		}
	}
	return all
}

// ridgeAlpha is the penalty for squared weights, relative to the number of samples. It is the
// default of scikit-learn's SGDRegressor, which descends to the same weights.
const ridgeAlpha = 1e-4

// ridge returns the weights and the constant with the smallest squared error plus the penalty.
func ridge(x [][]float64, y []float64) (weights []float64, bias float64, err error) {
	n := len(x[0])
	gram, cross := mat.NewSymDense(n+1, nil), mat.NewVecDense(n+1, nil)
	row := mat.NewVecDense(n+1, nil)
	for i := range x {
		copy(row.RawVector().Data, x[i])
		row.SetVec(n, 1)
		gram.SymRankOne(gram, 1, row)
		cross.AddScaledVec(cross, y[i], row)
	}
	for i := range n {
		gram.SetSym(i, i, gram.At(i, i)+ridgeAlpha*float64(len(x)))
	}
	var factors mat.Cholesky
	var solved mat.VecDense
	if !factors.Factorize(gram) {
		return nil, 0, errConstant
	}
	if err := factors.SolveVecTo(&solved, cross); err != nil {
		return nil, 0, err
	}
	all := solved.RawVector().Data
	return all[:n], all[n], nil
}

// KeplerModel is a model that is written in the format of Kepler Model Server.
type KeplerModel struct {
	// Trainer is the trainer of all zones, which is not PolynomialTrainer.
	Trainer string
	// Dynamic reports whether the power is the dynamic power only.
	Dynamic bool
	Machine machine.Machine
	Zones   map[power.Kind]*Fitted
}

// Encode returns the model's JSON. The error reports what a reader would reject.
func (m *KeplerModel) Encode() ([]byte, error) {
	f := keplerJSON{Name: m.Trainer + "_0", Output: absPower, Spec: &specJSON{
		Processor: m.Machine.CPU, Cores: float64(m.Machine.Threads), Chips: float64(m.Machine.Sockets),
		Memory: float64(m.Machine.Memory) / (1 << 30),
	}}
	if m.Dynamic {
		f.Output = dynPower
	}
	for k, z := range m.Zones {
		if c, percent := f.component(k); c != nil {
			*c, *percent = &componentJSON{z.weights}, 100*z.Error
		}
	}
	data, err := json.Marshal(f)
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("%d bytes, at most %d are read", len(data), maxSize)
	}
	if err == nil {
		_, err = parse(data, m.Trainer)
	}
	return data, err
}
