// SPDX-License-Identifier: Apache-2.0

// Package fit trains the power of zone kinds over feature groups, as Kepler Model Server does.
package fit

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// Group is a feature group of Kepler Model Server: the features that a model depends on.
type Group struct {
	// Name is the name in train_types.py.
	Name string
	// Features are sorted by their names.
	Features []model.Feature
}

// Counters are the features of hardware counters, sorted by their names.
var Counters = []model.Feature{model.CacheMisses, model.Cycles, model.Instructions}

// Groups are the feature groups that Fit can train: CPU time, hardware counters, and both. In Kepler
// Model Server, BPFOnly and Basic also contain page cache hits.
var Groups = []Group{
	{"BPFOnly", []model.Feature{model.CPUTime}},
	{"CounterOnly", Counters},
	{"Basic", append([]model.Feature{model.CPUTime}, Counters...)},
}

// The trainers of Fit, by their names in Kepler Model Server.
const (
	Linear     = "SGDRegressorTrainer"
	Polynomial = "PolynomialRegressionTrainer"
	Boosted    = "XgboostFitTrainer"
)

// Sample holds the mean power of a zone kind and the rates of the node in an interval.
type Sample struct {
	Rates model.Rates
	Watts float64
}

// Fitted is a power model of a zone kind that was fitted to samples.
type Fitted struct {
	// Watts returns the estimated power in watts at rates. It is not safe for concurrent use.
	Watts func(*model.Rates) float64
	// Component is nil for a polynomial, which the format of Kepler Model Server cannot hold.
	Component *trained.Component
}

// Fit trains a model with samples of the group's features. It returns an error if a feature was always
// 0, or if the power does not depend on the features.
func (g *Group) Fit(trainer string, samples []Sample) (f Fitted, err error) {
	scales, err := g.scales(samples)
	if err != nil {
		return f, err
	}
	x, y := make([][]float64, len(samples)), make([]float64, len(samples))
	for i := range samples {
		x[i], y[i] = g.scaled(&samples[i].Rates, scales), samples[i].Watts
	}
	switch trainer {
	case Polynomial:
		f.Watts, err = g.polynomial(x, y, scales)
		return f, err
	case Boosted:
		trees, base := boost(x, y)
		f.Component, err = trained.NewTrees(g.Features, scales, trees, base)
	default:
		f.Component, err = g.linear(x, y, scales)
	}
	f.Watts = f.Component.Watts
	return f, err
}

// scales returns the largest rate of each feature.
func (g *Group) scales(samples []Sample) ([]float64, error) {
	scales := make([]float64, len(g.Features))
	for j, f := range g.Features {
		for i := range samples {
			scales[j] = max(scales[j], samples[i].Rates[f])
		}
		if scales[j] == 0 {
			return nil, fmt.Errorf("%s was always 0", trained.FeatureName(f))
		}
	}
	return scales, nil
}

// scaled returns the features over their scales.
func (g *Group) scaled(r *model.Rates, scales []float64) []float64 {
	x := make([]float64, len(scales))
	for j, f := range g.Features {
		x[j] = r[f] / scales[j]
	}
	return x
}

func (g *Group) linear(x [][]float64, y, scales []float64) (*trained.Component, error) {
	weights, bias, err := ridge(x, y)
	if err != nil {
		return nil, err
	}
	return trained.NewLinear(g.Features, scales, weights, bias)
}

// polynomial fits a polynomial of the second degree, as Kepler Model Server does.
func (g *Group) polynomial(x [][]float64, y, scales []float64) (func(*model.Rates) float64, error) {
	products := make([][]float64, len(x))
	for i := range x {
		products[i] = withProducts(x[i])
	}
	weights, bias, err := ridge(products, y)
	return func(r *model.Rates) float64 {
		return max(bias+floats.Dot(weights, withProducts(g.scaled(r, scales))), 0)
	}, err
}

// withProducts returns the features and the products of each two features.
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
// default of scikit-learn's SGDRegressor, which converges to the same weights.
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
	var solved mat.VecDense
	if err := solved.SolveVec(gram, cross); err != nil {
		return nil, 0, err
	}
	all := solved.RawVector().Data
	return all[:n], all[n], err
}
