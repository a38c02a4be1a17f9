// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"
)

// The settings of XGBRegressor in Kepler Model Server (xgboost_interface.py), with smaller trees: a
// file with five zones has to fit into maxSize.
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

// boosting grows regression trees to what previous trees left of the power. Like the method "hist"
// of XGBoost it splits between quantiles of a feature. Bin b of a feature has the values from
// edges[b-1] up to edges[b].
type boosting struct {
	edges    [][]float32 // of each feature, ascending
	bins     [][]uint8   // of each feature, by sample
	residual []float64   // by sample
	tree     *treeJSON
}

// boost returns trees whose sum, added to base, is the power y over the features x of each sample.
func boost(x [][]float64, y []float64) (trees []treeJSON, base float64) {
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
		b.tree = &treeJSON{}
		b.grow(b.tree.add(), rows, boostDepth)
		for i := range x {
			b.residual[i] -= float64(b.tree.value(x[i]))
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

// add adds a leaf and returns its index.
func (t *treeJSON) add() int {
	t.Left, t.Right, t.Features = append(t.Left, -1), append(t.Right, -1), append(t.Features, 0)
	t.Conditions = append(t.Conditions, 0)
	return len(t.Left) - 1
}

// grow sets the value of a leaf to that of its samples, or splits it while splits help. It reorders
// rows. XGBoost expects the right child next to the left one.
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
	left, right := t.add(), t.add()
	t.Left[node], t.Right[node], t.Features[node], t.Conditions[node] = left, right, f, b.edges[f][edge]
	b.grow(left, rows[:below], depth-1)
	b.grow(right, rows[below:], depth-1)
}

// split returns the feature and the edge whose split reduces the squared error most. feature is -1
// if no split does. sum is the sum of the residuals of rows.
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

// numbers are encoded with a decimal point or an exponent: XGBoost rejects integers in their place.
type numbers []float32

// MarshalJSON implements json.Marshaler.
func (n numbers) MarshalJSON() ([]byte, error) {
	texts := make([]string, len(n))
	for i, v := range n {
		if texts[i] = strconv.FormatFloat(float64(v), 'g', -1, 32); !strings.ContainsAny(texts[i], ".e") {
			texts[i] += "E0"
		}
	}
	return []byte("[" + strings.Join(texts, ",") + "]"), nil
}

// encodeXGBoost returns the JSON that XGBoost loads. The statistics of the training are 0.
func encodeXGBoost(trees []treeJSON, base float64, features int) ([]byte, error) {
	type object = map[string]any
	written := make([]object, len(trees))
	for i, t := range trees {
		n, none := len(t.Left), []int{}
		zeros, statistics, parents := make([]int, n), make(numbers, n), make([]int, n)
		parents[0] = 1<<31 - 1
		for node, left := range t.Left {
			if left >= 0 {
				parents[left], parents[t.Right[node]] = node, node
			}
		}
		written[i] = object{
			"id": i, "left_children": t.Left, "right_children": t.Right, "parents": parents, "split_indices": t.Features,
			"split_conditions": numbers(t.Conditions), "split_type": zeros, "default_left": zeros,
			"base_weights": statistics, "loss_changes": statistics, "sum_hessian": statistics,
			"categories": none, "categories_nodes": none, "categories_segments": none, "categories_sizes": none,
			"tree_param": object{
				"num_deleted": "0", "num_feature": strconv.Itoa(features), "num_nodes": strconv.Itoa(n), "size_leaf_vector": "0",
			},
		}
	}
	return json.Marshal(object{"version": []int{1, 7, 4}, "learner": object{
		"attributes": object{}, "feature_names": []string{}, "feature_types": []string{},
		"gradient_booster": object{"name": "gbtree", "model": object{
			"gbtree_model_param": object{"num_parallel_tree": "1", "num_trees": strconv.Itoa(len(trees)), "size_leaf_vector": "0"},
			"tree_info":          make([]int, len(trees)), "trees": written,
		}},
		"learner_model_param": object{
			"base_score": strconv.FormatFloat(base, 'E', -1, 32), "boost_from_average": "1", "num_class": "0",
			"num_feature": strconv.Itoa(features), "num_target": "1",
		},
		"objective": object{"name": "reg:squarederror", "reg_loss_param": object{"scale_pos_weight": "1"}},
	}})
}
