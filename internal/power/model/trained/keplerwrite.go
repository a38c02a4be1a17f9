// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"encoding/json"
	"fmt"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// Component is the power of a zone kind in the format of Kepler Model Server.
type Component struct {
	// Error is the mean absolute error of the power, relative to the mean power. It is optional.
	Error   float64
	zone    *keplerZone
	weights *weightsJSON
}

// Watts returns the power in watts at rates. It is not safe for concurrent use.
func (c *Component) Watts(r *model.Rates) float64 { return c.zone.at(r) }

// NewLinear returns the component with the power bias + Σ weight · feature / scale, in watts. The
// error reports why a reader would reject the component, such as weights that are all 0.
func NewLinear(features []model.Feature, scales, weights []float64, bias float64) (*Component, error) {
	w := newWeights(features, scales, weights)
	w.Bias = bias
	return w.component()
}

// NewTrees returns the component with the power base + Σ trees, in watts, over feature / scale.
// The features must be sorted by their names. The error reports why a reader would reject the
// component.
func NewTrees(features []model.Feature, scales []float64, trees []Tree, base float64) (c *Component, err error) {
	w := newWeights(features, scales, make([]float64, len(features)))
	if w.XGBoost, err = encodeXGBoost(trees, base, len(features)); err != nil {
		return nil, err
	}
	return w.component()
}

func newWeights(features []model.Feature, scales, weights []float64) *weightsJSON {
	w := weightsJSON{Categorical: map[string]json.RawMessage{}, Numerical: map[string]featureJSON{}}
	for i, f := range features {
		w.Numerical[FeatureName(f)] = featureJSON{Scale: scales[i], Weight: weights[i]}
	}
	return &w
}

// component returns the component as it will be read.
func (w *weightsJSON) component() (*Component, error) {
	z, err := w.zone("", "")
	if err != nil {
		return nil, err
	}
	return &Component{zone: z, weights: w}, nil
}

// KeplerModel is a model that is written in the format of Kepler Model Server.
type KeplerModel struct {
	// Trainer is the name of the trainer of all zones, such as SGDRegressorTrainer.
	Trainer string
	// Dynamic reports whether the power is the dynamic power only.
	Dynamic bool
	// Machine is the machine that the model was trained on.
	Machine machine.Machine
	// Zones has the components. Kinds that the format lacks, such as power.PSys, are ignored.
	Zones map[power.Kind]*Component
}

// Encode returns the model's JSON. The error reports why a reader would reject it.
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
