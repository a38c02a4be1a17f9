// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/window"
)

// These functions are the format of a state.

// packVersion returns the version.
func packVersion(p *pack.Packer) (version uint32) {
	version = Version
	pack.Uint(p, &version)
	return version
}

// packHeader packs the fields that determine whether the totals are restored.
func (k *Totals) packHeader(p *pack.Packer) {
	pack.String(p, &k.boot)
	pack.Int(p, &k.clocks.Boot)
	pack.Int(p, &k.clocks.Suspended)
	pack.String(p, &k.settings)
}

// packRest packs all other fields. A reader must set ReadAt first.
func (k *Totals) packRest(p *pack.Packer) {
	p.Time(&k.BootTime)
	packWindow(p, &k.Window)
	k.packMeters(p, &k.Meters)
	packCPU(p, &k.CPU)
}

func packWindow(p *pack.Packer, s *window.State) {
	pack.Slice(p, &s.Kinds, packKind)
	pack.Slice(p, &s.Domains, pack.String)
	pack.Slice(p, &s.Zones, packZone)
	pack.Slice(p, &s.Cgroups, packCgroup)
	e := &s.Ledger
	p.Time(&e.Baseline)
	p.Time(&e.At)
	pack.Uint(p, &e.Dropped)
	pack.Slice(p, &e.Zones, packZoneState)
	pack.Slice(p, &e.Kinds, packKindState)
	pack.Slice(p, &e.Accounts, packAccount)
	if p.Reading() && !s.IsValid() {
		p.Fail()
	}
}

func packKind(p *pack.Packer, k *power.Class) {
	pack.String(p, &k.Zone)
	pack.String(p, &k.Method)
}

func packZone(p *pack.Packer, z *power.Zone) {
	pack.String(p, &z.ID)
	pack.String(p, &z.Name)
	pack.String(p, &z.Vendor)
	pack.String(p, &z.Kind)
	pack.String(p, &z.Parent)
	pack.String(p, &z.Method)
	pack.String(p, &z.Domain)
	pack.Uint(p, &z.MaxWatts)
}

func packCgroup(p *pack.Packer, c *cgroup.Past) {
	pack.String(p, &c.Path)
	pack.Uint(p, &c.Counter)
	pack.Uint(p, &c.Accounted)
}

func packZoneState(p *pack.Packer, z *ledger.ZoneState) {
	p.Bools(&z.Present, &z.Ended, &z.Delivered, &z.Superseded)
	p.Time(&z.Start)
	p.Time(&z.At)
	pack.Uint(p, &z.Energy)
	pack.Int(p, &z.Unread)
	pack.Int(p, &z.Domain)
	pack.Int(p, &z.Kind)
	pack.Pointer(p, &z.Deferred, packDeferred)
}

func packDeferred(p *pack.Packer, g *attribution.DeferredState) {
	pack.Uint(p, &g.Energy)
	pack.Int(p, &g.Elapsed)
	pack.Uint(p, &g.Busy)
	pack.Uint(p, &g.Total)
	pack.Uint(p, &g.Unattributed)
	p.Bools(&g.Assumed, &g.IdleAmongClaims)
}

func packKindState(p *pack.Packer, k *ledger.KindState) {
	p.Bools(&k.Present, &k.Ended, &k.Delivered)
	p.Time(&k.Start)
	pack.Uint(p, &k.Active)
	pack.Uint(p, &k.Idle)
	pack.Uint(p, &k.Unattributed)
	pack.Uint(p, &k.UnattributedIdle)
}

func packAccount(p *pack.Packer, a *ledger.AccountState) {
	pack.Uint(p, &a.Entity)
	p.Bools(&a.Other, &a.Live, &a.Reported, &a.Group)
	p.Time(&a.Start)
	pack.Uint(p, &a.CPU)
	pack.Uint(p, &a.Usage)
	pack.Uint(p, &a.Lost)
	pack.Slice(p, &a.Amounts, packAmounts)
	if a.Entity >= identity.NumEntities {
		p.Fail()
		return
	}
	if a.Entity.OfProcesses() {
		packProcess(p, &a.Owner.Process)
	}
	// Each attribute of an entity is a field of the workload: the table of entities decides which
	// fields are packed.
	for _, attribute := range a.Entity.Attributes() {
		pack.String(p, attribute.Field(&a.Owner.Workload))
	}
	if len(a.Entity.Names()) > 0 {
		pack.Pointer(p, &a.Owner.Names, packNames)
	}
}

func packAmounts(p *pack.Packer, a *ledger.KindAmounts) {
	pack.Int(p, &a.Kind)
	pack.Uint(p, &a.Energy)
	pack.Uint(p, &a.Idle)
}

func packProcess(p *pack.Packer, o *identity.Process) {
	pack.Int(p, &o.PID)
	pack.Int(p, &o.Start)
	pack.String(p, &o.Created)
	pack.String(p, &o.Executable)
	pack.String(p, &o.Path)
	pack.String(p, &o.CommandLine)
	pack.String(p, &o.Owner)
	pack.Int(p, &o.Parent)
	p.Bools(&o.Descendants)
}

// packNames packs names, which the accounts of a container and its pod may share. Names never
// change after they are read.
func packNames(p *pack.Packer, n *identity.Names) {
	pack.String(p, &n.Namespace)
	pack.String(p, &n.Pod)
	pack.String(p, &n.KubernetesContainer)
	pack.String(p, &n.Container)
	pack.String(p, &n.Image)
}

// packMeters packs times as durations before ReadAt, because they are times of the clock of a
// process.
func (k *Totals) packMeters(p *pack.Packer, past *power.Past) {
	before := func(at *time.Time) {
		age := k.ReadAt.Sub(*at)
		if pack.Int(p, &age); p.Reading() {
			*at = k.ReadAt.Add(-age)
		}
	}
	before(&past.Sample.At)
	pack.Uint(p, &past.Sample.Busy)
	pack.Uint(p, &past.Sample.Total)
	pack.Slice(p, &past.Zones, func(p *pack.Packer, z *power.PastZone) {
		packZone(p, &z.Zone)
		pack.String(p, &z.Meter)
		before(&z.At)
		known := !z.Raw.IsZero()
		if p.Bools(&known); !known {
			return
		}
		pack.Uint(p, &z.Raw.Energy)
		pack.Uint(p, &z.Raw.Range)
		pack.Uint(p, &z.Raw.MaxWatts)
		before(&z.Raw.At)
		pack.String(p, &z.Raw.Epoch)
	})
	p.Bools(&past.Other.Known)
	pack.Int(p, &past.Other.Balance)
}

func packCPU(p *pack.Packer, past *cpu.Past) {
	p.Bools(&past.Exact)
	pack.Int(p, &past.Now)
	packNode(p, &past.Node)
	packTicks(p, &past.Ticks)
	pack.Slice(p, &past.Domains, func(p *pack.Packer, d *cpu.PastDomain) {
		pack.String(p, &d.Domain)
		packNode(p, &d.Node)
	})
	pack.Slice(p, &past.CPUs, func(p *pack.Packer, c *cpu.PastCPU) {
		pack.Int(p, &c.Number)
		packTicks(p, &c.Ticks)
	})
	pack.Slice(p, &past.Processes, packPastProcess)
}

func packNode(p *pack.Packer, n *cpu.Node) {
	pack.Uint(p, &n.Busy)
	pack.Uint(p, &n.Total)
	pack.Uint(p, &n.Process)
}

func packTicks(p *pack.Packer, columns *[8]uint64) {
	for i := range columns {
		pack.Uint(p, &columns[i])
	}
}

func packPastProcess(p *pack.Packer, o *proc.Past) {
	pack.Int(p, &o.PID)
	pack.Int(p, &o.Parent)
	pack.Int(p, &o.Threads)
	p.Bools(&o.Kernel, &o.Zombie, &o.Discards)
	pack.Int(p, &o.Start)
	pack.Uint(p, &o.CPU)
	pack.Uint(p, &o.ChildCPU)
	pack.Uint(p, &o.Owed)
}
