// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// xgboostJSON is a model of XGBoost, as save_model writes it to JSON (doc/model.schema of XGBoost).
// Members that do not change the prediction of a regression are left out.
type xgboostJSON struct {
	Learner struct {
		Booster struct {
			Name  string `json:"name"`
			Model struct {
				Trees []Tree `json:"trees"`
			} `json:"model"`
		} `json:"gradient_booster"`
		Param struct {
			BaseScore string `json:"base_score"` // a number, from version 3.1 in brackets
			Classes   string `json:"num_class"`
			Features  string `json:"num_feature"`
			Targets   string `json:"num_target"`
		} `json:"learner_model_param"`
		Objective struct {
			Name string `json:"name"`
		} `json:"objective"`
	} `json:"learner"`
}

// Tree is a regression tree in the format of XGBoost. Each slice has a value per node, and the root
// is first. A node with Left -1 is a leaf, and its condition is its value in watts. Any other node
// leads to Left if the scaled feature is less than the condition, otherwise to Right.
type Tree struct {
	Left       []int     `json:"left_children"`
	Right      []int     `json:"right_children"`
	Features   []int     `json:"split_indices"`
	Conditions []float32 `json:"split_conditions"`
	Types      []int     `json:"split_type"` // 1 is categorical; older versions lack it
}

// identities are the objectives of XGBoost whose prediction is the sum of the leaves.
var identities = []string{"reg:squarederror", "reg:linear", "reg:absoluteerror", "reg:pseudohubererror"}

// boosted returns the sum of the trees of XgboostFitTrainer.
func (w *weightsJSON) boosted() (*keplerZone, error) {
	of := sortedNames(w.Numerical)
	used := make([]bool, len(of))
	trees, base, err := parseXGBoost(w.XGBoost, used)
	if err != nil {
		return nil, fmt.Errorf("XGboost_Weights: %w", err)
	}
	uses := func(name string) bool {
		i, _ := slices.BinarySearch(of, name)
		return used[i]
	}
	z, err := w.newZone(uses, func(x []float64) float64 {
		watts := base
		for i := range trees {
			watts += float64(trees[i].Value(x))
		}
		return watts
	})
	if z != nil {
		z.steps = len(z.uses) > 0
	}
	return z, err
}

// parseXGBoost returns the trees and the base score of a regression over features, and marks the
// features that it uses.
func parseXGBoost(data []byte, used []bool) ([]Tree, float64, error) {
	var f xgboostJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, 0, err
	}
	l, p := &f.Learner, &f.Learner.Param
	base, err := strconv.ParseFloat(strings.Trim(p.BaseScore, "[]"), 64)
	switch {
	case l.Booster.Name != "gbtree":
		return nil, 0, fmt.Errorf("the booster %.40q is not gbtree: train with the default booster", l.Booster.Name)
	case !slices.Contains(identities, l.Objective.Name):
		return nil, 0, fmt.Errorf("the objective %.40q is none of %s: train with one of them", l.Objective.Name, strings.Join(identities, ", "))
	case p.Classes != "" && p.Classes != "0" || p.Targets != "" && p.Targets != "1":
		return nil, 0, fmt.Errorf("it has %.40q classes and %.40q targets, not one power", p.Classes, p.Targets)
	case p.Features != strconv.Itoa(len(used)):
		return nil, 0, fmt.Errorf("it has %.40q features, Numerical_Variables has %d", p.Features, len(used))
	case err != nil || math.IsNaN(base) || math.IsInf(base, 0):
		return nil, 0, fmt.Errorf("the base_score %.40q is not a number", p.BaseScore)
	}
	for i := range l.Booster.Model.Trees {
		if err := l.Booster.Model.Trees[i].check(used); err != nil {
			return nil, 0, fmt.Errorf("tree %d: %w", i, err)
		}
	}
	return l.Booster.Model.Trees, base, nil
}

// check returns an error unless the nodes form a tree whose inner nodes split features. It marks
// these features as used.
func (t *Tree) check(used []bool) error {
	n := len(t.Left)
	if n == 0 || len(t.Right) != n || len(t.Features) != n || len(t.Conditions) != n || len(t.Types) != n && len(t.Types) != 0 {
		return errors.New("its columns are empty, or of different lengths")
	}
	reached := make([]bool, n)
	for open := []int{0}; len(open) > 0; {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		switch {
		case i < 0 || i >= n:
			return fmt.Errorf("node %d is not one of its %d nodes", i, n)
		case reached[i]:
			return fmt.Errorf("node %d is reached twice", i)
		}
		reached[i] = true
		if t.Left[i] == -1 {
			continue
		}
		f := t.Features[i]
		if f < 0 || f >= len(used) {
			return fmt.Errorf("node %d splits feature %d of %d", i, f, len(used))
		}
		if len(t.Types) > 0 && t.Types[i] != 0 {
			return fmt.Errorf("node %d splits categories", i)
		}
		used[f] = true
		open = append(open, t.Left[i], t.Right[i])
	}
	return nil
}

// Value returns the value of the leaf that the scaled features x lead to. Like XGBoost, it compares
// in single precision.
func (t *Tree) Value(x []float64) float32 {
	i := 0
	for t.Left[i] != -1 {
		if float32(x[t.Features[i]]) < t.Conditions[i] {
			i = t.Left[i]
		} else {
			i = t.Right[i]
		}
	}
	return t.Conditions[i]
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
func encodeXGBoost(trees []Tree, base float64, features int) ([]byte, error) {
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
