// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// claimGPUUser claims the GPU time of a user. If the user is several processes that cannot be
// distinguished, the claim belongs to the workload that they have in common.
func (b *Collector) claimGPUUser(u *attribution.Usage, user *gpu.User, m *Measurement) {
	used := min(user.Used, maxClaim)
	all := b.findUsers(user, m)
	if found := b.gpus.users; all && len(found) == 1 {
		u.Claims = append(u.Claims, attribution.Claim{Claimant: found[0].id, CPU: used})
		return
	}
	for _, found := range b.gpus.users {
		u.Claims = append(u.Claims, attribution.Claim{Claimant: found.id}) // it has the GPU open
	}
	if used == 0 {
		return
	}
	id, ok := b.claimantInCommon(all)
	if !all && user.Cgroup != "" {
		id, _, ok = b.claimantForCgroup(user.Cgroup)
	}
	if !ok {
		u.Unattributed = units.AddSaturating(u.Unattributed, used)
		return
	}
	u.Claims = append(u.Claims, attribution.Claim{Claimant: id, ShortLived: true, CPU: used})
}

// claimantInCommon returns a claimant in the workload that all the users have in common. ok is
// false if they have no workload in common, if only some of them are excluded, or if all is false.
func (b *Collector) claimantInCommon(all bool) (id attribution.Claimant, ok bool) {
	if !all {
		return attribution.NoClaimant, false
	}
	first, same := b.gpus.users[0], true
	workload := b.Ledger.Workload(first.id)
	for _, found := range b.gpus.users[1:] {
		if found.excluded != first.excluded {
			return attribution.NoClaimant, false
		}
		same = same && b.Ledger.Workload(found.id) == workload
	}
	if same {
		return first.id, workload != identity.Workload{}
	}
	return b.claimantForCommon(first.excluded)
}

// claimantForCommon opens a claimant, for this interval, for the workload that all the users have
// in common. ok is false if they have no workload in common.
func (b *Collector) claimantForCommon(excluded bool) (id attribution.Claimant, ok bool) {
	common := b.Ledger.Workload(b.gpus.users[0].id)
	for _, found := range b.gpus.users[1:] {
		workload := b.Ledger.Workload(found.id)
		common = identity.Common(&common, &workload)
	}
	if common == (identity.Workload{}) {
		return attribution.NoClaimant, false
	}
	id = b.openClaimant(identity.Owner{Workload: common}, b.last.Stamp, excluded)
	b.end(id)
	return id, true
}

// findUsers finds the claimants of a user's processes, each once. It reports whether all were
// found.
func (b *Collector) findUsers(user *gpu.User, m *Measurement) (all bool) {
	g := &b.gpus
	g.users = g.users[:0]
	all = len(user.PIDs) > 0
	for _, pid := range user.PIDs {
		found, ok := b.findUser(pid, user.Last, m)
		all = all && ok
		if ok && !slices.Contains(g.users, found) {
			g.users = append(g.users, found)
		}
	}
	return all
}

// findUser finds the claimant of a process that had a PID when it used a GPU last.
func (b *Collector) findUser(pid int32, last time.Time, m *Measurement) (user gpuUser, ok bool) {
	g := &b.gpus
	lived := func(start time.Duration) bool {
		return last.IsZero() || !last.Before(m.ReadAt.Add(start-m.Table.Now))
	}
	if p, known := g.processes[pid]; known && lived(p.start) {
		if c := &b.claimants[p.slot]; c.open {
			if c.sleeps {
				b.wake(c, p.slot, pid, p.start, m)
			}
			c.usesGPU = true
			return gpuUser{c.id, c.excluded}, true
		}
	}
	for _, list := range [...][]lateUser{g.late, g.young} {
		for i := len(list) - 1; i >= 0; i-- {
			if l := &list[i]; l.pid == pid && lived(l.start) && !last.After(l.ended) {
				return l.gpuUser, true
			}
		}
	}
	return gpuUser{}, false
}
