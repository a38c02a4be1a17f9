// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// mergeVM returns the virtual machine of a process from its cgroup and its arguments. The ID is the
// UUID in the arguments, else the scope, which contains other processes of the machine as well, else
// the process's own. The name in the arguments is preferred: libvirt shortens it for the scope.
func mergeVM(fromCgroup, fromArgs identity.VM) identity.VM {
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

// unqualified returns an ID without its cgroup owner.
func unqualified(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// vmProcess is a process whose cgroup or arguments belong to a virtual machine.
type vmProcess struct {
	unique     string      // as given to parseVM, qualified by the cgroup owner of the scope, else of the process
	fromCgroup identity.VM // Placement.VM, if any
	fromArgs   identity.VM // from parseVM, if any; its ID is qualified in the same way
	owned      bool        // there is a cgroup owner: a user, a unit or a container runs the process

	vm identity.VM // result of vms.resolve
}

// vms gives all processes of a virtual machine the same VM, and no two machines the same ID or CID,
// while they run. The zero vms is ready to use. It is not safe for concurrent use.
type vms struct {
	machines map[string]machine     // by the hypervisor's vmProcess.unique
	scopes   map[string]identity.VM // the hypervisor's VM, by the scope's ID
	cids     map[uint32]string      // vmProcess.unique of the hypervisor that has it, by VM.CID
}

// machine is the virtual machine of a hypervisor.
type machine struct {
	vm      identity.VM
	refused string // the ID that another machine had first
}

// resolve sets the VM of each process. It takes all processes of virtual machines each time,
// hypervisors by their age: a machine that is not among them has ended.
//
// A hypervisor has the VM that mergeVM returns, but with the first of these IDs that no other
// hypervisor has:
//
//  1. its previous ID, except that a UUID replaces it once the arguments are readable
//  2. the UUID in its arguments
//  3. the ID of its scope
//  4. its own
//
// A UUID that another hypervisor had first, such as the UUID of a copied machine, is not taken later
// either. Hypervisors with a scope choose first: a hypervisor without a scope loses its ID to them,
// even if it is older.
//
// The kernel lets only one guest have a CID, and arguments may claim anything. Of several
// hypervisors that claim a CID, those without a cgroup owner come first, of these those with a scope,
// and then the hypervisor that had the CID before or is older.
//
// The other processes of a scope, such as a TPM, have their hypervisor's VM, also when they outlive
// it, then without a CID. Until a hypervisor is seen, they have the scope's VM.
func (v *vms) resolve(processes []vmProcess) {
	r := resolution{
		before: v,
		owners: make(map[string]string, len(processes)),
		now: vms{
			machines: make(map[string]machine, len(processes)),
			scopes:   make(map[string]identity.VM, len(processes)),
			cids:     map[uint32]string{},
		},
	}
	r.assignCIDs(processes)
	for _, inScope := range []bool{true, false} {
		for _, step := range []func(*vmProcess){r.keep, r.choose} {
			for i := range processes {
				if p := &processes[i]; p.fromArgs.ID != "" && (p.fromCgroup.ID != "") == inScope {
					step(p)
				}
			}
		}
	}
	delete(r.now.scopes, "") // of hypervisors without a scope
	for i := range processes {
		p := &processes[i]
		if p.fromArgs.ID != "" {
			p.vm = r.now.machines[p.unique].vm
		} else {
			p.vm = r.scopeOf(p)
		}
	}
	*v = r.now
}

// resolution is one call of vms.resolve.
type resolution struct {
	before *vms
	now    vms
	owners map[string]string // vmProcess.unique of the hypervisor that has it, by VM.ID
}

// assignCIDs gives each CID to the hypervisor with the best claim.
func (r *resolution) assignCIDs(processes []vmProcess) {
	best := map[uint32]int{} // rank of the holder
	for i := range processes {
		p := &processes[i]
		cid, rank := p.fromArgs.CID, 0
		if p.owned {
			rank += 4
		}
		if p.fromCgroup.ID == "" {
			rank += 2
		}
		if r.before.cids[cid] != p.unique {
			rank++
		}
		if _, taken := r.now.cids[cid]; cid != 0 && (!taken || rank < best[cid]) {
			r.now.cids[cid], best[cid] = p.unique, rank
		}
	}
}

// keep lets a hypervisor keep its previous ID, regardless of the order of the processes.
func (r *resolution) keep(p *vmProcess) {
	m, ok := r.before.machines[p.unique]
	if !ok {
		return
	}
	r.now.machines[p.unique] = m
	if _, taken := r.owners[m.vm.ID]; !taken {
		r.owners[m.vm.ID] = p.unique
	}
}

// choose gives a hypervisor the best ID that no other hypervisor has.
func (r *resolution) choose(p *vmProcess) {
	m, known := r.now.machines[p.unique]
	had := m.vm.ID
	m.vm = mergeVM(p.fromCgroup, p.fromArgs)
	best := m.vm.ID
	if known && (!isUUID(unqualified(best)) || best == m.refused) {
		best = had
	}
	for _, id := range []string{best, had, p.fromCgroup.ID, p.unique} {
		owner, taken := r.owners[id]
		if id != "" && (!taken || owner == p.unique) {
			m.vm.ID = id
			break
		}
	}
	if m.vm.ID != best {
		m.refused = best
	}
	if m.vm.ID != had && r.owners[had] == p.unique {
		delete(r.owners, had)
	}
	if r.now.cids[m.vm.CID] != p.unique {
		m.vm.CID = 0
	}
	r.now.machines[p.unique], r.owners[m.vm.ID] = m, p.unique
	if _, ok := r.now.scopes[p.fromCgroup.ID]; !ok {
		r.now.scopes[p.fromCgroup.ID] = m.vm
	}
}

// scopeOf returns the VM of a process that is not a hypervisor.
func (r *resolution) scopeOf(p *vmProcess) identity.VM {
	scope := p.fromCgroup.ID
	if _, ok := r.now.scopes[scope]; !ok {
		r.now.scopes[scope] = p.fromCgroup
		if vm, ok := r.before.scopes[scope]; ok {
			vm.CID = 0 // its hypervisor exited, and another machine may get the CID
			r.now.scopes[scope] = vm
		}
	}
	return r.now.scopes[scope]
}

// guest is a process that is or was part of a virtual machine.
type guest struct {
	pid      int32
	start    time.Duration
	vm       identity.VM   // result of Resolve
	fromArgs identity.VM   // of its command line
	unique   string        // ID of a virtual machine without a better ID
	argsSeen time.Duration // when the command line was last read
}

// guests are the processes of virtual machines.
type guests struct {
	slots     []int32
	unsettled bool // the processes changed since they were resolved
	vms       vms
	processes []vmProcess // scratch of Resolve
}

// list adds a process of a virtual machine, or notes that it has changed.
func (g *guests) list(e *entry, p *proc.Process) {
	g.unsettled = true
	if e.guest == nil {
		e.guest = &guest{pid: p.PID, start: p.Start}
		g.slots = append(g.slots, p.Slot)
	}
}

// shrink frees the memory for guests. The caller lists their slots again.
func (g *guests) shrink() { g.slots, g.processes, g.unsettled = nil, nil, true }

// isGuest reports whether the process is or was part of a virtual machine.
func (e *entry) isGuest() bool { return e.guest != nil }

// Resolve finds the virtual machines of all processes together. It reports whether this may have
// changed the identity of any process, including processes that were not identified in this round.
func (id *Identifier) Resolve() (changed bool) {
	g := &id.guests
	if !g.unsettled {
		return false
	}
	g.unsettled = false
	g.slots = slices.DeleteFunc(g.slots, func(slot int32) bool { return !id.known[slot].isGuest() })
	slices.SortFunc(g.slots, func(a, b int32) int {
		x, y := id.known[a].guest, id.known[b].guest
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.pid, y.pid))
	})
	g.slots = slices.Compact(g.slots) // a slot may have been reused
	g.processes = g.processes[:0]
	for _, slot := range g.slots {
		e := &id.known[slot]
		owner, fromArgs := e.in.owner, e.guest.fromArgs
		if fromArgs.ID != "" {
			fromArgs.ID = owner.qualify(fromArgs.ID)
		}
		g.processes = append(g.processes, vmProcess{
			unique: owner.qualify(e.guest.unique), fromCgroup: e.in.VM, fromArgs: fromArgs, owned: owner.name != "",
		})
	}
	g.vms.resolve(g.processes)
	for i, slot := range g.slots {
		e := &id.known[slot]
		if vm := g.processes[i].vm; e.guest.vm != vm {
			e.guest.vm, e.changed = vm, true
		}
	}
	return true
}
