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

// xgboostJSON is a model of XGBoost, as save_model writes it to JSON (doc/model.schema of XGBoost). Members that do not
// change the prediction of a regression are left out.
type xgboostJSON struct {
	Learner struct {
		Booster struct {
			Name  string `json:"name"`
			Model struct {
				Trees []treeJSON `json:"trees"`
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

// treeJSON is a regression tree whose nodes are in columns. A node without a left child is a leaf,
// whose condition is its value.
type treeJSON struct {
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
			watts += float64(trees[i].value(x))
		}
		return watts
	})
	if z != nil {
		z.steps = len(z.uses) > 0
	}
	return z, err
}

// parseXGBoost returns the trees and the base score of a regression over features, and marks the features that it uses.
func parseXGBoost(data []byte, used []bool) ([]treeJSON, float64, error) {
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
		return nil, 0, fmt.Errorf("it is of %.40q features, Numerical_Variables has %d", p.Features, len(used))
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

// check returns an error unless each node that the root leads to is reached once, and splits a feature, which it marks.
func (t *treeJSON) check(used []bool) error {
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

// value returns the value of the leaf that x leads to. Like XGBoost it compares with single precision.
func (t *treeJSON) value(x []float64) float32 {
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
