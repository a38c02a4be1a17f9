// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// keplerFile returns a model of testdata/kepler, whose README.md has the sources.
func keplerFile(t testing.TB, name string) *trainedModel {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/kepler", name))
	require.NoError(t, err)
	if strings.HasSuffix(name, ".gz") {
		r, err := gzip.NewReader(bytes.NewReader(data))
		require.NoError(t, err)
		data, err = io.ReadAll(r)
		require.NoError(t, err)
	}
	m, err := parse(data, name)
	require.NoError(t, err)
	return m
}

func TestModelsOfKeplerModelServerPredictAsTheirTrainersDo(t *testing.T) {
	data, err := os.ReadFile("testdata/kepler/golden.json")
	require.NoError(t, err)
	var cases []struct {
		File  string
		Zone  power.Kind
		Rates map[string]float64
		Watts float64
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 54)
	files := map[string]*trainedModel{}
	for _, c := range cases {
		if files[c.File] == nil {
			files[c.File] = keplerFile(t, c.File)
		}
		var r model.Rates
		for name, rate := range c.Rates {
			r[known[name]] = rate
		}
		z, ok := files[c.File].zones[c.Zone].(*keplerZone)
		require.True(t, ok)
		assert.InEpsilon(t, max(c.Watts, 1e-9), max(z.at(&r), 1e-9), 1e-5, "%s %s %v", c.File, c.Zone, c.Rates) // XGBoost adds in single precision
	}
	t.Attr("model-server", fmt.Sprintf("%d predictions of %d models", len(cases), len(files)))
}

// components returns a model of a package with 96 threads.
func components(member, weights string) string {
	return fmt.Sprintf(`{%s, %s, "package": {"All_Weights": {"Categorical_Variables": {}, %s}}}`, member, spec, weights)
}

const (
	overCounters = `"Bias_Weight": 100, "Numerical_Variables": {"cpu_cycles": {"scale": 1e11, "weight": 200}, "bpf_page_cache_hit": {"scale": 1, "weight": 0}}`
	overTime     = `"Bias_Weight": 90, "Numerical_Variables": {"bpf_cpu_time_ms": {"scale": 96000, "weight": 300}}`
)

func TestAModelOverCountersIsChosenOnlyWhereTheyAreReadable(t *testing.T) {
	dir := directory(t, map[string]string{
		"a.json": components(`"package_mape": 3`, overCounters), "b.json": components(`"package_mape": 9.5`, overTime),
	})
	curves, err := Curves(dir, xeon, Options{})
	require.NoError(t, err)
	require.Len(t, curves, 1)
	assert.Equal(t, []model.Feature{model.Cycles}, curves[0].Needs)
	assert.InDelta(t, 150, curves[0].Function(&model.Rates{model.Cycles: 2.5e10}), 1e-9)
	assert.InDelta(t, 100, curves[0].IdleWatts(), 1e-9)
	assert.InDelta(t, model.SameCPUError, curves[0].ExpectedError, 1e-9)

	none := Options{Readable: func(f model.Feature) error { return map[bool]error{true: errors.New("no PMU")}[f != model.CPUTime] }}
	curves, err = Curves(dir, xeon, none)
	require.NoError(t, err)
	assert.Nil(t, curves[0].Function)
	assert.InDelta(t, 240, curves[0].Curve.Watts(0.5), 0.3)
	assert.InDelta(t, 0.095, curves[0].ExpectedError, 1e-9)
	_, err = Curves(filepath.Join(dir, "a.json"), xeon, none)
	require.ErrorContains(t, err, "cpu_cycles cannot be read here (no PMU): use a model over CPU time")
}

func TestAbsoluteAndDynamicPowerAreTrainedApart(t *testing.T) {
	absolute := components(`"output_type": "AbsPower"`, overTime)
	dynamic := components(`"output_type": "DynPower"`, strings.Replace(overTime, "90", "25", 1))
	virtual := guest
	virtual.Virtual = true
	better := strings.NewReplacer(`"cores": 96`, `"cores": 48`, `"DynPower"`, `"DynPower", "package_mape": 1`).Replace(dynamic)
	both := directory(t, map[string]string{"a.json": absolute, "d.json": dynamic})
	several := directory(t, map[string]string{"a.json": absolute, "d.json": dynamic, "e.json": better})
	for name, c := range map[string]struct {
		path        string
		o           Options
		idle, watts float64
		want        string
	}{
		"a pair":                 {path: both, idle: 65. / 12, watts: 90./12 + 25, want: "with the dynamic power of d.json"},
		"the other machine":      {path: several, idle: 65. / 12, watts: 90./12 + 25, want: "with the dynamic power of d.json"},
		"a pair, dynamic":        {path: both, o: Options{NoIdle: true}, idle: 25. / 12, watts: 25./12 + 25, want: "d.json of Kepler Model Server"},
		"dynamic alone":          {path: directory(t, map[string]string{"d.json": dynamic}), o: Options{NoIdle: true}, idle: 25. / 12, watts: 25./12 + 25},
		"dynamic by its folder":  {path: directory(t, map[string]string{"DynPower.json": components(`"model_name": "x"`, overTime)}), o: Options{NoIdle: true}, idle: 90. / 12, watts: 90./12 + 25},
		"absolute in its folder": {path: directory(t, map[string]string{"DynPower.json": absolute}), idle: 90. / 12, watts: 90./12 + 25},
	} {
		curves, err := Curves(c.path, virtual, c.o)
		require.NoError(t, err, name)
		require.Len(t, curves, 1, name)
		assert.InDelta(t, c.idle, curves[0].IdleWatts(), 1e-6, name)
		assert.InDelta(t, c.watts, curves[0].Curve.Watts(1), 0.1, name)
		assert.Contains(t, curves[0].Basis, c.want, name)
	}
	_, err := Curves(directory(t, map[string]string{"d.json": dynamic}), xeon, Options{})
	require.ErrorContains(t, err, "d.json is of dynamic power (DynPower) only: add the model of AbsPower of the same machine")
	_, err = Curves(directory(t, map[string]string{"d.json": components(`"output_type": "Power"`, overTime)}), xeon, Options{})
	require.ErrorContains(t, err, `output_type "Power" is neither`)
}

const smallXGBoost = `{"learner": {"gradient_booster": {"name": "gbtree", "model": {"trees": [
	{"left_children": [1, -1, -1], "right_children": [2, -1, -1], "split_indices": [0, 0, 0], "split_conditions": [0.5, 10, 20], "split_type": [0, 0, 0]}]}},
	"learner_model_param": {"base_score": "[5E1]", "num_class": "0", "num_feature": "1", "num_target": "1"}, "objective": {"name": "reg:squarederror"}}}`

func xgboostText(text string) string {
	return components(`"model_name": "XgboostFitTrainer_0"`, fmt.Sprintf(`"Numerical_Variables": {"bpf_cpu_time_ms": {"scale": 96000}}, "XGboost_Weights": %q`,
		base64.StdEncoding.EncodeToString([]byte(text))))
}

func TestTreesHaveStepsWhichNoCurveFollows(t *testing.T) {
	m, err := parse([]byte(xgboostText(smallXGBoost)), "m.json")
	require.NoError(t, err)
	curves, err := m.curves(&xeon, &Options{})
	require.NoError(t, err)
	for ms, want := range map[float64]float64{0: 60, 47_999: 60, 48_000: 70, 96_000: 70, 1e9: 70} {
		assert.InDelta(t, want, curves[0].Function(&model.Rates{model.CPUTime: ms}), 0, "%v ms per second", ms)
	}
}

func TestNodesThatAreNotReachedUseNoFeature(t *testing.T) {
	text := strings.NewReplacer(
		"[1, -1, -1]", "[1, -1, -1, 1]", "[2, -1, -1]", "[2, -1, -1, 2]", "[0, 0, 0], \"split_c", "[0, 0, 0, 1], \"split_c", "10, 20]", "10, 20, 1]",
		"[0, 0, 0]}", "[0, 0, 0, 0]}", `"num_feature": "1"`, `"num_feature": "2"`).Replace(smallXGBoost)
	text = strings.Replace(xgboostText(text), `{"scale": 96000}`, `{"scale": 96000}, "bpf_page_cache_hit": {"scale": 1}`, 1)
	m, err := parse([]byte(text), "m.json")
	require.NoError(t, err)
	assert.Equal(t, []model.Feature{model.CPUTime}, m.zones[power.Package].needs())
}

func TestImpossibleTreesAreRefused(t *testing.T) {
	for change, want := range map[[2]string]string{
		{`"gbtree"`, `"dart"`}:                         `the booster "dart" is not gbtree`,
		{"reg:squarederror", "count:poisson"}:          `the objective "count:poisson" is none of reg:squarederror`,
		{`"num_class": "0"`, `"num_class": "3"`}:       `"3" classes`,
		{`"num_feature": "1"`, `"num_feature": "2"`}:   `it has "2" features, Numerical_Variables has 1`,
		{"[5E1]", "NaN"}:                               `base_score "NaN"`,
		{"[0.5, 10, 20]", "[0.5, 10]"}:                 "tree 0: its columns",
		{"[0.5, 10, 20]", "[0.5, NaN, 20]"}:            "invalid character 'N'",
		{"[0.5, 10, 20]", "[0.5, -1e30, 20]"}:          "",
		{"[0.5, 10, 20]", "[0.5, 1e30, 20]"}:           "with no CPU busy is 1",
		{`"left_children": [1`, `"left_children": [0`}: "tree 0: node 0 is reached twice",
		{`"left_children": [1`, `"left_children": [3`}: "node 3 is not one of its 3 nodes",
		{"[2, -1, -1]", "[1, -1, -1]"}:                 "node 1 is reached twice",
		{`"split_indices": [0`, `"split_indices": [1`}: "node 0 splits feature 1 of 1",
		{`"split_type": [0`, `"split_type": [1`}:       "node 0 splits categories",
	} {
		text := strings.Replace(smallXGBoost, change[0], change[1], 1)
		require.NotEqual(t, smallXGBoost, text)
		_, err := parse([]byte(xgboostText(text)), "m.json")
		if want == "" {
			require.NoError(t, err, "power is never negative")
			continue
		}
		require.ErrorContains(t, err, want)
	}
	_, err := parse([]byte(strings.Replace(xgboostText(smallXGBoost), `Weights": "`, `Weights": "!`, 1)), "m.json")
	require.ErrorContains(t, err, "illegal base64 data")
}
