// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// MergeVM returns the virtual machine of a process from its cgroup and its arguments. The ID is the
// UUID in the arguments, else the scope, which other processes of the machine are in too, else the
// process's own. The name in the arguments is preferred: libvirt shortens it for the scope.
func MergeVM(fromCgroup, fromArgs identity.VM) identity.VM {
	switch {
	case fromArgs.ID == "":
		return fromCgroup
	case fromCgroup.ID == "":
		return fromArgs
	}
	vm := fromArgs
	if !isUUID(unqualified(vm.ID)) {
		vm.ID = fromCgroup.ID
	}
	if vm.Name == "" {
		vm.Name = fromCgroup.Name
	}
	return vm
}

// unqualified returns an ID without its delegate.
func unqualified(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// VMProcess is a process that its cgroup or its arguments put into a virtual machine.
type VMProcess struct {
	Unique     string      // as given to ParseVM, qualified by the delegate of the scope, else of the process
	FromCgroup identity.VM // Placement.VM, if any
	FromArgs   identity.VM // ParseVM's, if any; its ID is qualified in the same way
	Delegated  bool        // there is such a delegate: a user, a unit or a container runs it

	VM identity.VM // what VMs.Resolve found
}

// VMs gives all processes of a virtual machine the same VM, and no two machines the same ID or CID,
// as long as they run. The zero VMs is ready to use. It is not safe for concurrent use.
type VMs struct {
	machines map[string]machine     // by the hypervisor's VMProcess.Unique
	scopes   map[string]identity.VM // by the scope's ID, what its hypervisor is
	cids     map[uint32]string      // by VM.CID, the Unique of the hypervisor that has it
}

type machine struct {
	vm      identity.VM
	refused string // the ID that another machine had first
}

// Resolve sets the VM of each process. It takes all processes of virtual machines each time,
// hypervisors by their age: a machine that is not among them has ended.
//
// A hypervisor has the VM that MergeVM returns, but with the first of these IDs that no other
// hypervisor has:
//
//  1. the ID that it had, except that a UUID takes its place once the arguments are readable
//  2. the UUID in its arguments
//  3. the ID of its scope
//  4. its own
//
// A UUID that another hypervisor had first, as that of a copied machine, is not taken later either.
// Hypervisors with a scope choose first: one without a scope loses its ID to them, even if it is
// older.
//
// The kernel lets only one guest have a CID, and arguments may claim anything. Of several
// hypervisors that claim one, those that no delegate runs come first, of these those with a scope,
// and then the one that had it before or is older.
//
// The other processes of a scope, such as a TPM, have their hypervisor's VM, also when they outlive
// it, then without a CID, and the scope's until a hypervisor is seen.
func (v *VMs) Resolve(processes []VMProcess) {
	r := resolution{
		before:   v,
		machines: make(map[string]machine, len(processes)),
		owners:   make(map[string]string, len(processes)),
		cids:     map[uint32]string{},
		scopes:   make(map[string]identity.VM, len(processes)),
	}
	r.assignCIDs(processes)
	for _, inScope := range []bool{true, false} {
		for _, step := range []func(*VMProcess){r.keep, r.choose} {
			for i := range processes {
				if p := &processes[i]; p.FromArgs.ID != "" && (p.FromCgroup.ID != "") == inScope {
					step(p)
				}
			}
		}
	}
	delete(r.scopes, "") // of hypervisors without a scope
	for i := range processes {
		p := &processes[i]
		if p.FromArgs.ID != "" {
			p.VM = r.machines[p.Unique].vm
		} else {
			p.VM = r.scopeOf(p)
		}
	}
	v.machines, v.scopes, v.cids = r.machines, r.scopes, r.cids
}

// resolution is one call of VMs.Resolve.
type resolution struct {
	before   *VMs
	machines map[string]machine
	owners   map[string]string // by VM.ID, the Unique of the hypervisor that has it
	cids     map[uint32]string // by VM.CID, the Unique of the hypervisor that gets it
	scopes   map[string]identity.VM
}

// assignCIDs gives each CID to the hypervisor with the best claim.
func (r *resolution) assignCIDs(processes []VMProcess) {
	best := make(map[uint32]int, len(r.cids)) // the rank of its holder
	for i := range processes {
		p := &processes[i]
		cid, rank := p.FromArgs.CID, 0
		if p.Delegated {
			rank += 4
		}
		if p.FromCgroup.ID == "" {
			rank += 2
		}
		if r.before.cids[cid] != p.Unique {
			rank++
		}
		if _, taken := r.cids[cid]; cid != 0 && (!taken || rank < best[cid]) {
			r.cids[cid], best[cid] = p.Unique, rank
		}
	}
}

// keep lets a hypervisor that was there before keep its ID, whatever the order of the processes.
func (r *resolution) keep(p *VMProcess) {
	m, ok := r.before.machines[p.Unique]
	if !ok {
		return
	}
	r.machines[p.Unique] = m
	if _, taken := r.owners[m.vm.ID]; !taken {
		r.owners[m.vm.ID] = p.Unique
	}
}

// choose gives a hypervisor the best ID that no other one has.
func (r *resolution) choose(p *VMProcess) {
	m, known := r.machines[p.Unique]
	had := m.vm.ID
	m.vm = MergeVM(p.FromCgroup, p.FromArgs)
	best := m.vm.ID
	if known && (!isUUID(unqualified(best)) || best == m.refused) {
		best = had
	}
	for _, id := range []string{best, had, p.FromCgroup.ID, p.Unique} {
		owner, taken := r.owners[id]
		if id != "" && (!taken || owner == p.Unique) {
			m.vm.ID = id
			break
		}
	}
	if m.vm.ID != best {
		m.refused = best
	}
	if m.vm.ID != had && r.owners[had] == p.Unique {
		delete(r.owners, had)
	}
	if r.cids[m.vm.CID] != p.Unique {
		m.vm.CID = 0
	}
	r.machines[p.Unique], r.owners[m.vm.ID] = m, p.Unique
	if _, ok := r.scopes[p.FromCgroup.ID]; !ok {
		r.scopes[p.FromCgroup.ID] = m.vm
	}
}

// scopeOf returns the VM of a process that is no hypervisor.
func (r *resolution) scopeOf(p *VMProcess) identity.VM {
	scope := p.FromCgroup.ID
	if _, ok := r.scopes[scope]; !ok {
		r.scopes[scope] = p.FromCgroup
		if vm, ok := r.before.scopes[scope]; ok {
			vm.CID = 0 // its hypervisor is gone, and another machine may get it
			r.scopes[scope] = vm
		}
	}
	return r.scopes[scope]
}

// Resolve finds the virtual machines of all processes together. It reports whether the identity of
// any process may have changed by that, including processes that were not identified in this round.
func (id *Identifier) Resolve() (changed bool) {
	if !id.unsettled {
		return false
	}
	id.unsettled = false
	id.machines = slices.DeleteFunc(id.machines, func(slot int32) bool { return !id.known[slot].isListed() })
	slices.SortFunc(id.machines, func(a, b int32) int {
		x, y := id.known[a].guest, id.known[b].guest
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.pid, y.pid))
	})
	id.processes = id.processes[:0]
	for _, slot := range id.machines {
		e := &id.known[slot]
		in, fromArgs := e.in, e.guest.fromArgs
		if in == nil {
			in = &cgroupText{}
		}
		if fromArgs.ID != "" {
			fromArgs.ID = in.owner.qualify(fromArgs.ID)
		}
		id.processes = append(id.processes, VMProcess{
			Unique: in.owner.qualify(e.guest.unique), FromCgroup: in.VM, FromArgs: fromArgs, Delegated: in.owner.name != "",
		})
	}
	id.vms.Resolve(id.processes)
	for i, slot := range id.machines {
		e := &id.known[slot]
		if vm := id.processes[i].VM; e.guest.vm != vm {
			e.guest.vm, e.changed = vm, true
		}
	}
	return true
}
