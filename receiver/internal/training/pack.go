// SPDX-License-Identifier: Apache-2.0

package training

import "github.com/energyreceiver/energyreceiver/internal/pack"

// Pack packs or unpacks the models. It is part of the format of a state.
func (t *Models) Pack(p *pack.Packer) {
	pack.Slice(p, &t.Hardware, pack.String)
	pack.Map(p, &t.Zones, packTrained)
	pack.Map(p, &t.GPUs, packTrained)
}

func packTrained(p *pack.Packer, z *trainedZone) {
	pack.String(p, &z.Rule)
	pack.Slice(p, &z.Hardware, pack.String)
	pack.Int(p, &z.Zones)
	p.Bools(&z.InUse, &z.Provisional) // states before Provisional have the same bytes, and no provisional estimate
	p.Float(&z.Static)
	pack.Slice(p, &z.Estimator, (*pack.Packer).Float)
}
