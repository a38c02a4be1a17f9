// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

const spec = `"machine_spec": {"vendor": "x", "processor": "intel_xeon_platinum_8259cl", "cores": 96, "chips": 2, "memory": 377, "frequency": 3500, "threads_per_core": 2}`

// keplerText returns a model of a package whose weights of CPU time are those of 96 threads.
func keplerText(name, weights string) string {
	return fmt.Sprintf(`{"model_name": %q, %s, "package": {"All_Weights": {%s, "Categorical_Variables": {},
		"Numerical_Variables": {"bpf_cpu_time_ms": {"scale": 96000, "weight": 305.25}, "bpf_page_cache_hit": {"scale": 1.0, "weight": 0.0}}}}}`, name, spec, weights)
}

func keplerCurve(t *testing.T, text string, m machine.Machine, o Options) model.Curve {
	t.Helper()
	curves, err := Curves(directory(t, map[string]string{"m.json": text}), m, o)
	require.NoError(t, err)
	require.Len(t, curves, 1)
	assert.Equal(t, power.Package, curves[0].Kind)
	return curves[0].Curve
}

func TestKeplersFunctionsAreFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		weights string
		want    func(x float64) float64
	}{
		"SGDRegressorTrainer_0":          {`"Bias_Weight": 143.8`, func(x float64) float64 { return 143.8 + 305.25*x }},
		"LogarithmicRegressionTrainer_0": {`"CurveFit_Weights": [70.6, 4157417, -683.4]`, func(x float64) float64 { return max(70.6*math.Log(4157417*x+1)-683.4, 0) }},
		"LogisticRegressionTrainer_12":   {`"CurveFit_Weights": [300, 0.4, 8, 55]`, func(x float64) float64 { return 300/(1+math.Exp(-8*(x-0.4))) + 55 }},
		"ExponentialRegressionTrainer_3": {`"CurveFit_Weights": [180, 0.9, -60]`, func(x float64) float64 { return 180*math.Exp(0.9*x) - 60 }},
	} {
		t.Run(name, func(t *testing.T) {
			c2 := keplerCurve(t, keplerText(name, c.weights), xeon, Options{})
			worst := 0.0
			for i := range 100_001 {
				u := float64(i) / 100_000
				want := c.want(u)
				worst = max(worst, math.Abs(c2.Watts(u)-want)-0.002*want)
			}
			assert.Less(t, worst, 0.05, "the largest difference is 0.2 %% of the power and 50 mW; %d points", len(c2))
			assert.Less(t, len(c2), 250)
		})
	}
}

// With 8 of 96 threads busy, 8000 ms of CPU time per second.
func TestAVirtualMachineHasKeplersPowerOfItsCPUTime(t *testing.T) {
	text := keplerText("SGDRegressorTrainer_0", `"Bias_Weight": 144`)
	c := keplerCurve(t, text, guest, Options{})
	assert.InDelta(t, 12, c.Watts(0), 0.01, "its share of the idle power")
	assert.InDelta(t, 12+305.25*8/96, c.Watts(1), 0.05)
	c = keplerCurve(t, text, guest, Options{NoIdle: true})
	assert.Zero(t, c.Watts(0))
	assert.InDelta(t, 305.25*8/96, c.Watts(1), 0.05)
	c = keplerCurve(t, text, with(xeon, func(m *machine.Machine) { m.Threads = 192 }), Options{})
	assert.InDelta(t, 144, c.Watts(0), 0.01, "the idle power of a larger machine is that of the model")
	assert.InDelta(t, 144+2*305.25, c.Watts(1), 0.5)
}

func TestKeplersModelIsChosenByItsMachine(t *testing.T) {
	dir := directory(t, map[string]string{"m.json": keplerText("SGDRegressorTrainer_0", `"Bias_Weight": 144`)})
	_, err := Curves(dir, epyc, Options{})
	require.ErrorContains(t, err, "m.json is of intel_xeon_platinum_8259cl with 96 threads")
	curves, err := Curves(dir, xeon, Options{})
	require.NoError(t, err)
	assert.Equal(t, "model m.json of Kepler Model Server, trained on the same CPU", curves[0].Basis)
	assert.Zero(t, curves[0].ExpectedError, "the file does not have it")
}

func TestAModelWithoutItsMachineIsTakenOnlyByItsName(t *testing.T) {
	text := strings.Replace(keplerText("SGDRegressorTrainer_0", `"Bias_Weight": 144`), spec+",", "", 1)
	dir := directory(t, map[string]string{"m.json": text})
	_, err := Curves(dir, xeon, Options{})
	require.ErrorContains(t, err, "m.json is of an unstated machine")
	curves, err := Curves(filepath.Join(dir, "m.json"), guest, Options{})
	require.NoError(t, err)
	assert.Equal(t, "model m.json of Kepler Model Server, trained on an unstated machine", curves[0].Basis)
	assert.InDelta(t, 144+305.25*8/96, curves[0].Curve.Watts(1), 0.2)
}

func TestTheTrainerIsToldByTheNameOfTheFileToo(t *testing.T) {
	text := strings.Replace(keplerText("x", `"CurveFit_Weights": [180, 0.9, -60]`), `"model_name": "x",`, "", 1)
	dir := directory(t, map[string]string{"ExponentialRegressionTrainer_3.json": text})
	curves, err := Curves(dir, xeon, Options{})
	require.NoError(t, err)
	assert.InDelta(t, 180*math.Exp(0.9)-60, curves[0].Curve.Watts(1), 1)
	dir = directory(t, map[string]string{"weight.json": text})
	_, err = Curves(dir, xeon, Options{})
	require.ErrorContains(t, err, "model_name does not name the trainer of its curve")
}

func TestComponentsThatCannotBeUsedAreTold(t *testing.T) {
	component := func(features, weights string) string {
		return fmt.Sprintf(`{"All_Weights": {"Categorical_Variables": {}, "Numerical_Variables": {%s}, %s}}`, features, weights)
	}
	cpu := `"bpf_cpu_time_ms": {"scale": 96000, "weight": 3}`
	for name, c := range map[string]struct{ text, want string }{
		"page cache hits":   {component(`"bpf_page_cache_hit": {"scale": 1e9, "weight": 2}, `+cpu, `"Bias_Weight": 1`), `depends on the feature "bpf_page_cache_hit", which is not read`},
		"cycles in a curve": {component(`"cpu_cycles": {"scale": 1e9}`, `"CurveFit_Weights": [1, 2, 3]`), `a curve of one of the features "cpu_cycles"`},
		"scale of v0.6":     {component(`"bpf_cpu_time_ms": {"weight": 3, "scale": 3.55e-5}`, `"Bias_Weight": 1`), "convert the archive of the model with https://"},
		"an archive's file": {`{"model_file": "core.pkl", "features": ["cpu_cycles"], "fe_files": ["scaler.pkl"]}`, "no All_Weights, as in the archives"},
		"a category":        {`{"All_Weights": {"Categorical_Variables": {"cpu_architecture": {}}, "Numerical_Variables": {}, "Bias_Weight": 1}}`, `depends on "cpu_architecture"`},
		"no scale":          {component(`"bpf_cpu_time_ms": {"weight": 3}`, `"Bias_Weight": 1`), `the scale of "bpf_cpu_time_ms" is 0`},
		"negative scale":    {component(`"bpf_cpu_time_ms": {"weight": 3, "scale": -1}`, `"Bias_Weight": 1`), `scale of "bpf_cpu_time_ms" is -1`},
		"logarithm of -1":   {component(cpu, `"CurveFit_Weights": [10, -2, 3]`), "of the largest load of its training is NaN W"},
		"two weights":       {component(cpu, `"CurveFit_Weights": [10, 2]`), "2 CurveFit_Weights, LogarithmicRegressionTrainer has 3"},
		"an explosion":      {component(cpu, `"CurveFit_Weights": [1e300, 1e10, 1e10]`), "with no CPU busy is 1e+10 W"},
		"no weights at all": {component(cpu, `"CurveFit_Weights": []`), ""},
		"a constant":        {component(`"cpu_cycles": {"scale": 1e9}`, `"Bias_Weight": 35`), "no feature has a weight"},
		// as former versions of export.py wrote it
		"a polynomial": {component(`"cpu_cycles": {"scale": 1e9}`, `"Bias_Weight": 35, "Polynomial_Weights": [{"weight": 106, "powers": {"cpu_cycles": 1}}]`),
			"convert the archive of the model again with https://"},
		"a power of nothing": {component(cpu, `"CurveFit_Weights": [0, 1, 0]`), "neither a model"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, map[string]string{"m.json": fmt.Sprintf(`{"model_name": "LogarithmicRegressionTrainer_1", %s, "core": %s}`, spec, c.text)})
			_, err := Curves(dir, xeon, Options{})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestAZoneThatCannotBeUsedSpoilsNoOther(t *testing.T) {
	text := strings.Replace(keplerText("LogarithmicRegressionTrainer_0", `"CurveFit_Weights": [70, 20, 60]`), `"package":`,
		`"dram": {"All_Weights": {"Categorical_Variables": {}, "Numerical_Variables": {"bpf_cpu_time_ms": {"scale": 96000}, "bpf_page_cache_hit": {"scale": 1}},
		"CurveFit_Weights": [11.7, 1, 21]}}, "package":`, 1)
	curves, err := Curves(directory(t, map[string]string{"m.json": text}), xeon, Options{})
	require.ErrorContains(t, err, `m.json: dram: it depends on the feature "bpf_page_cache_hit"`)
	require.Len(t, curves, 1)
	assert.Equal(t, power.Package, curves[0].Kind)
}

func TestAMachineSpecThatCannotBeIsRefused(t *testing.T) {
	for _, change := range [][2]string{{`"cores": 96`, `"cores": -1`}, {`"memory": 377`, `"memory": -1`}, {`"intel_xeon_platinum_8259cl"`, `""`}} {
		text := strings.Replace(keplerText("SGDRegressorTrainer_0", `"Bias_Weight": 144`), change[0], change[1], 1)
		_, err := parse([]byte(text), "m.json")
		require.ErrorContains(t, err, "machine_spec: ", change[1])
	}
}
