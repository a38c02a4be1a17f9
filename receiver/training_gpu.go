// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// GPUs are listed later than CPUs, and may appear and disappear. Each GPU's model is stored with the hardware on which it was
// trained, and restored when a zone of the GPU is listed for the first time.

// maxTrainedGPUs is the maximum number of stored models of GPUs, including those of absent GPUs.
const maxTrainedGPUs = 256

// restoreGPUs restores the static power models of GPUs that are listed for the first time. domains are those of the ledger, by
// their index.
func (t *training) restoreGPUs(rules *attribution.Rules, kinds []power.Class, domains []units.Domain, readings []power.Reading) {
	for i := range readings {
		zone := readings[i].Zone
		if _, known := t.gpus[zone.Domain]; known || zone.Kind != power.GPU || !slices.Contains(domains, zone.Domain) {
			continue
		}
		if t.gpus == nil {
			t.gpus = map[units.Domain][]string{}
		}
		hardware := hardwareOfGPU(t.cfg.RootPath, zone.Domain, readings)
		t.gpus[zone.Domain] = hardware
		eachGPUModel(rules, kinds, func(kind power.Class, model *static.Model) {
			stored, ok := t.trained.GPUs[trainedName(zone.Domain, kind)]
			if ok && stored.Rule == t.rule(power.GPU) && slices.Equal(stored.Hardware, hardware) {
				model.Restore(slices.Index(domains, zone.Domain), stored.State)
			}
		})
	}
}

// noteGPUs notes the trained models of GPUs. The stored models of absent GPUs stay.
func (t *training) noteGPUs(rules *attribution.Rules, kinds []power.Class, domains []units.Domain) {
	eachGPUModel(rules, kinds, func(kind power.Class, model *static.Model) {
		for i, domain := range domains {
			hardware, known := t.gpus[domain]
			if !known {
				continue
			}
			name := trainedName(domain, kind)
			if _, stored := t.trained.GPUs[name]; !stored && len(t.trained.GPUs) >= maxTrainedGPUs {
				continue
			}
			if state, ok := model.State(i); ok {
				if t.trained.GPUs == nil {
					t.trained.GPUs = map[string]trainedZone{}
				}
				t.trained.GPUs[name] = trainedZone{Rule: t.rule(power.GPU), Hardware: hardware, State: state}
			}
		}
	})
}

// eachGPUModel calls yield for each trainable model of GPUs.
func eachGPUModel(rules *attribution.Rules, kinds []power.Class, yield func(power.Class, *static.Model)) {
	for i, kind := range kinds {
		if model, ok := rules.Models[i].(*static.Model); ok && kind.Zone == power.GPU {
			yield(kind, model)
		}
	}
}

// hardwareOfGPU describes what the static power of a GPU depends on: its zones, and the machine with its kernel.
func hardwareOfGPU(root string, domain units.Domain, readings []power.Reading) (hardware []string) {
	for i := range readings {
		if zone := readings[i].Zone; zone.Kind == power.GPU && zone.Domain == domain {
			hardware = append(hardware, zoneLine(&readings[i]))
		}
	}
	slices.Sort(hardware)
	return append(hardware, cpu.Hardware(root)...)
}
