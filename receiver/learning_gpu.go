// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// GPUs are known later than CPUs, and come and go. So what was learned of each is kept on its own, with the hardware that it was
// learned on, and restored when a zone of the GPU is listed for the first time.

// maxKeptGPUs is of how many GPUs it is kept what was learned, those included that are not there now.
const maxKeptGPUs = 256

// restoreGPUs gives static power models what is stored of GPUs that are listed for the first time. domains are those of the ledger,
// by their index.
func (l *learning) restoreGPUs(rules *attribution.Rules, kinds []claims.Kind, domains []units.Domain, readings []power.Reading) {
	for i := range readings {
		zone := readings[i].Zone
		if _, known := l.gpus[zone.Domain]; known || zone.Kind != power.GPU || !slices.Contains(domains, zone.Domain) {
			continue
		}
		if l.gpus == nil {
			l.gpus = map[units.Domain][]string{}
		}
		hardware := hardwareOfGPU(l.cfg.RootPath, zone.Domain, readings)
		l.gpus[zone.Domain] = hardware
		eachGPUModel(rules, kinds, func(kind claims.Kind, model *static.Model) {
			kept, ok := l.kept.GPUs[storedName(zone.Domain, kind)]
			if ok && kept.Rule == l.rule(power.GPU) && slices.Equal(kept.Hardware, hardware) {
				model.Restore(slices.Index(domains, zone.Domain), kept.State)
			}
		})
	}
}

// keepGPUs takes over what static power models have learned of GPUs. What is kept of others stays.
func (l *learning) keepGPUs(rules *attribution.Rules, kinds []claims.Kind, domains []units.Domain) {
	eachGPUModel(rules, kinds, func(kind claims.Kind, model *static.Model) {
		for i, domain := range domains {
			hardware, known := l.gpus[domain]
			if !known {
				continue
			}
			name := storedName(domain, kind)
			if _, kept := l.kept.GPUs[name]; !kept && len(l.kept.GPUs) >= maxKeptGPUs {
				continue
			}
			if state, ok := model.State(i); ok {
				if l.kept.GPUs == nil {
					l.kept.GPUs = map[string]keptZone{}
				}
				l.kept.GPUs[name] = keptZone{Rule: l.rule(power.GPU), Hardware: hardware, State: state}
			}
		}
	})
}

// eachGPUModel calls yield for each model of GPUs that learns.
func eachGPUModel(rules *attribution.Rules, kinds []claims.Kind, yield func(claims.Kind, *static.Model)) {
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
			hardware = append(hardware, zonePrefix+zone.ID+" "+zone.Name)
		}
	}
	slices.Sort(hardware)
	return append(hardware, cpu.Hardware(root)...)
}
