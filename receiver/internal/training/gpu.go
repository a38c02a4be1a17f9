// SPDX-License-Identifier: Apache-2.0

package training

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// GPUs are listed later than CPUs, and may appear and disappear. Each GPU's model is stored with
// the hardware on which it was trained, and restored when a zone of the GPU is listed for the first
// time.

// maxTrainedGPUs is the maximum number of stored models of GPUs, including those of absent GPUs.
const maxTrainedGPUs = 256

// RestoreGPUs restores the static power models of GPUs that are listed for the first time.
func (t *Training) RestoreGPUs(z Zones, readings []power.Reading) {
	if !slices.Contains(t.cfg.Zones, power.GPU) || !t.cfg.Attribution.Trains(t.cfg.Zones) {
		return
	}
	for i := range readings {
		zone := readings[i].Zone
		if zone.Kind != power.GPU {
			continue
		}
		if _, known := t.gpus[zone.Domain]; known || !slices.Contains(z.Domains, zone.Domain) {
			continue
		}
		if t.gpus == nil {
			t.gpus = map[units.Domain][]string{}
		}
		hardware := hardwareOfGPU(t.cfg.RootPath, zone.Domain, readings)
		t.gpus[zone.Domain] = hardware
		z.eachGPUModel(func(kind power.Class, model *static.Model) {
			stored, ok := t.Trained.GPUs[trainedName(zone.Domain, kind)]
			if ok && stored.Rule == t.rule(power.GPU) && slices.Equal(stored.Hardware, hardware) {
				model.Restore(slices.Index(z.Domains, zone.Domain), stored.State)
			}
		})
	}
}

// noteGPUs notes the trained models of GPUs. The stored models of absent GPUs stay.
func (t *Training) noteGPUs(z Zones) {
	z.eachGPUModel(func(kind power.Class, model *static.Model) {
		for i, domain := range z.Domains {
			hardware, known := t.gpus[domain]
			if !known {
				continue
			}
			name := trainedName(domain, kind)
			if _, stored := t.Trained.GPUs[name]; !stored && len(t.Trained.GPUs) >= maxTrainedGPUs {
				continue
			}
			if state, ok := model.State(i); ok {
				if t.Trained.GPUs == nil {
					t.Trained.GPUs = map[string]trainedZone{}
				}
				t.Trained.GPUs[name] = trainedZone{Rule: t.rule(power.GPU), Hardware: hardware, State: state}
			}
		}
	})
}

// eachGPUModel calls yield for each trainable model of GPUs.
func (z Zones) eachGPUModel(yield func(power.Class, *static.Model)) {
	for i, kind := range z.Kinds {
		if model, ok := z.Rules.Models[i].(*static.Model); ok && kind.Zone == power.GPU {
			yield(kind, model)
		}
	}
}

// hardwareOfGPU describes the hardware that determines the static power of a GPU: its zones, and
// the machine with its kernel.
func hardwareOfGPU(root string, domain units.Domain, readings []power.Reading) (hardware []string) {
	for i := range readings {
		if zone := readings[i].Zone; zone.Kind == power.GPU && zone.Domain == domain {
			hardware = append(hardware, zoneLine(&readings[i]))
		}
	}
	slices.Sort(hardware)
	return append(hardware, processorsOf(root)...)
}
