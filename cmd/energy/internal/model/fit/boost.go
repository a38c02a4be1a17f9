// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// The settings of XGBRegressor in Kepler Model Server (xgboost_interface.py), with smaller trees: a
// file with five zones has to be small enough for the receiver.
const (
	boostRounds = 100
	boostRate   = 0.1
	boostDepth  = 4
	boostLambda = 1
	// leastInLeaf is the minimum number of samples of a leaf.
	leastInLeaf = 5
	// leastGain is the minimum improvement of the squared error by a split, in W².
	leastGain = 1e-6
	maxBins   = 256
)

// boosting grows each regression tree to the residuals of the previous trees. Like the method "hist"
// of XGBoost it splits between quantiles of a feature. Bin b of a feature has the values from
// edges[b-1] up to edges[b].
type boosting struct {
	edges    [][]float32 // of each feature, ascending
	bins     [][]uint8   // of each feature, by sample
	residual []float64   // by sample
	tree     *trained.Tree
}

// boost returns trees whose sum plus base estimates the power y of each sample from its features x.
func boost(x [][]float64, y []float64) (trees []trained.Tree, base float64) {
	base = stat.Mean(y, nil)
	b := boosting{residual: make([]float64, len(y))}
	rows := make([]int, len(y))
	for i := range y {
		b.residual[i], rows[i] = y[i]-base, i
	}
	for f := range x[0] {
		b.addBins(x, f)
	}
	for range boostRounds {
		b.tree = &trained.Tree{}
		b.grow(addLeaf(b.tree), rows, boostDepth)
		for i := range x {
			b.residual[i] -= float64(b.tree.Value(x[i]))
		}
		trees = append(trees, *b.tree)
	}
	return trees, base
}

// addBins adds the bins of a feature.
func (b *boosting) addBins(x [][]float64, f int) {
	values := make([]float32, len(x))
	for i := range x {
		values[i] = float32(x[i][f])
	}
	sorted := slices.Sorted(slices.Values(values))
	var edges []float32
	last := sorted[0]
	for q := 1; q < maxBins; q++ {
		if v := sorted[q*len(sorted)/maxBins]; v > last {
			edges, last = append(edges, v), v
		}
	}
	bins := make([]uint8, len(x))
	for i, v := range values {
		at, isEdge := slices.BinarySearch(edges, v)
		if isEdge {
			at++
		}
		bins[i] = uint8(at)
	}
	b.edges, b.bins = append(b.edges, edges), append(b.bins, bins)
}

// addLeaf adds a leaf and returns its index.
func addLeaf(t *trained.Tree) int {
	t.Left, t.Right, t.Features = append(t.Left, -1), append(t.Right, -1), append(t.Features, 0)
	t.Conditions = append(t.Conditions, 0)
	return len(t.Left) - 1
}

// grow splits a leaf while splits help, and sets the values of its leaves. It reorders rows.
// XGBoost expects the right child next to the left one.
func (b *boosting) grow(node int, rows []int, depth int) {
	sum := 0.0
	for _, i := range rows {
		sum += b.residual[i]
	}
	t, f, edge := b.tree, -1, 0
	if depth > 0 {
		f, edge = b.split(rows, sum)
	}
	if f < 0 {
		t.Conditions[node] = float32(boostRate * sum / float64(len(rows)+boostLambda))
		return
	}
	below := 0
	for i, row := range rows {
		if int(b.bins[f][row]) <= edge {
			rows[i], rows[below] = rows[below], row
			below++
		}
	}
	left, right := addLeaf(t), addLeaf(t)
	t.Left[node], t.Right[node], t.Features[node], t.Conditions[node] = left, right, f, b.edges[f][edge]
	b.grow(left, rows[:below], depth-1)
	b.grow(right, rows[below:], depth-1)
}

// split returns the feature and the edge of the split that reduces the squared error most. feature is
// -1 if no split reduces the error. sum is the sum of the residuals of rows.
func (b *boosting) split(rows []int, sum float64) (feature, edge int) {
	score := func(sum float64, n int) float64 { return sum * sum / float64(n+boostLambda) }
	most := score(sum, len(rows)) + leastGain
	feature = -1
	for f, edges := range b.edges {
		var sums [maxBins]float64
		var counts [maxBins]int
		for _, i := range rows {
			bin := b.bins[f][i]
			sums[bin] += b.residual[i]
			counts[bin]++
		}
		below, n := 0.0, 0
		for e := range edges {
			below, n = below+sums[e], n+counts[e]
			if n < leastInLeaf || len(rows)-n < leastInLeaf {
				continue
			}
			if s := score(below, n) + score(sum-below, len(rows)-n); s > most {
				feature, edge, most = f, e, s
			}
		}
	}
	return feature, edge
}
