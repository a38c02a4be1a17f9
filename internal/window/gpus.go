// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// gpu returns the index of a GPU in Interval.Domains. It adds a new GPU to the domains.
func (b *Collector) gpu(name units.Domain) int {
	g := &b.gpus
	if i, ok := g.index[name]; ok {
		return i
	}
	if g.index == nil {
		g.index, g.first = map[units.Domain]int{}, len(b.named)
	}
	if len(g.known) >= maxGPUs && name != otherGPUs {
		return b.gpu(otherGPUs)
	}
	i := len(b.named)
	g.index[name] = i
	g.known, b.named = append(g.known, knownGPU{}), append(b.named, name)
	return i
}

// beginGPUs adds the GPUs of a measurement to the domains, and starts an interval of all GPUs
// without claims.
func (b *Collector) beginGPUs(m *Measurement) {
	for i := range m.GPUs {
		b.gpu(m.GPUs[i].Domain)
	}
	iv := &b.interval
	for len(iv.Domains) < len(b.named) {
		iv.Domains = append(iv.Domains, attribution.Usage{})
	}
	for i := range b.gpus.known {
		u := &iv.Domains[b.gpus.first+i]
		*u = attribution.Usage{Claims: u.Claims[:0], IdleAmongClaims: true}
	}
}

// claimGPUs claims the GPU time of the interval.
func (b *Collector) claimGPUs(m *Measurement) {
	g := &b.gpus
	if len(g.known) == 0 {
		return
	}
	for i := range m.GPUs {
		if domain := b.gpu(m.GPUs[i].Domain); domain < g.first+maxGPUs {
			b.claimGPU(domain, &m.GPUs[i], m)
		}
	}
	for i := range g.known {
		if b.isSilent(i, m) {
			elapsed := units.CPUTime(b.interval.Elapsed)
			u := &b.interval.Domains[g.first+i]
			u.Busy, u.Total, u.Unattributed, u.Assumed = elapsed, elapsed, elapsed, true
		}
	}
	b.endEpoch(m)
}

// isSilent reports whether no usage of a GPU is expected: either no source lists it, or its usage
// was not reported for more than maxSilence although its energy is read.
func (b *Collector) isSilent(i int, m *Measurement) bool {
	known, domain := &b.gpus.known[i], b.gpus.first+i
	if !known.listed {
		return true
	}
	return b.interval.Domains[domain].Total == 0 && m.ReadAt.Sub(known.reportedAt) > maxSilence &&
		slices.ContainsFunc(b.interval.Zones, func(z attribution.ZoneReading) bool { return z.Domain == domain && z.OK })
}

// claimGPU claims the time of one GPU. Of several sources that report it, the first counts.
func (b *Collector) claimGPU(domain int, usage *gpu.Usage, m *Measurement) {
	known, u := &b.gpus.known[domain-b.gpus.first], &b.interval.Domains[domain]
	if !known.listed {
		known.listed, known.reportedAt = true, m.ReadAt
		if b.gpus.processes == nil {
			b.gpus.processes = map[int32]process{}
			b.gpus.renew(m.Table)
		}
	}
	if u.Total > 0 {
		return
	}
	u.Total = min(usage.Total, maxClaim)
	u.Busy = min(usage.Busy, u.Total)
	u.Unattributed, u.Assumed = min(usage.Unattributed, maxClaim), usage.Assumed
	if u.Total > 0 {
		known.reportedAt, known.epoch = m.ReadAt, b.gpus.epoch+1
	}
	for i := range usage.Users {
		b.claimGPUUser(u, &usage.Users[i], m)
	}
}

// endEpoch begins the next epoch if the usage of all GPUs was reported.
func (b *Collector) endEpoch(m *Measurement) {
	g := &b.gpus
	if !slices.ContainsFunc(g.known, func(k knownGPU) bool { return k.listed && k.epoch <= g.epoch }) {
		g.epoch++
	}
	b.endLateUsers(m)
}
