// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// MergeVM puts together what the cgroup and the arguments of one process say of its virtual machine. The
// ID is the UUID of the arguments, else the scope, which other processes of the machine are in too, else
// the process's own. The name is the arguments', for libvirt shortens it in the scope's.
func MergeVM(fromCgroup, fromArgs units.VM) units.VM {
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
	Unique     string   // as given to ParseVM
	FromCgroup units.VM // Placement.VM, if any
	FromArgs   units.VM // ParseVM's, if any; a UUID is qualified by the delegate of the scope, else of the process

	VM units.VM // what VMs.Resolve found
}

// VMs gives all processes of one virtual machine the same VM, and no two machines the same ID, as long as
// they run. Its zero value is ready for use. It is not safe for concurrent use.
type VMs struct {
	machines map[string]machine  // by the hypervisor's VMProcess.Unique
	scopes   map[string]units.VM // by the scope's ID, what its hypervisor is
}

type machine struct {
	vm      units.VM
	refused string // the ID that another machine had first
}

// Resolve sets the VM of each process. It wants all of them each time, the hypervisors by their age, for
// what is not among them has ended.
//
// A hypervisor has what MergeVM says, unless another one has that ID already: a copy of a machine may have
// its UUID. Then it has the next best, its scope's or its own, and keeps that. Otherwise its ID changes only
// to a UUID, once its arguments are readable. Arguments alone are no match for a cgroup: a hypervisor in a
// machine's scope takes the ID of one that is in none, even if that one is older. The other processes of its scope (a TPM, a file server) have
// their hypervisor's VM, also when they outlive it; before one is seen, they have the scope's.
func (v *VMs) Resolve(processes []VMProcess) {
	machines := make(map[string]machine, len(processes))
	owners := make(map[string]string, len(processes)) // by VM.ID, the Unique of who has it
	scopes := make(map[string]units.VM, len(processes))

	for _, inScope := range []bool{true, false} {
		// Those that run keep what they have, whatever the order.
		for _, p := range processes {
			if p.FromArgs.ID == "" || (p.FromCgroup.ID != "") != inScope {
				continue
			}
			if m, ok := v.machines[p.Unique]; ok {
				machines[p.Unique] = m
				if _, taken := owners[m.vm.ID]; !taken {
					owners[m.vm.ID] = p.Unique
				}
			}
		}
		for _, p := range processes {
			if p.FromArgs.ID == "" || (p.FromCgroup.ID != "") != inScope {
				continue
			}
			m, runs := machines[p.Unique]
			had := m.vm.ID
			m.vm = MergeVM(p.FromCgroup, p.FromArgs)
			best := m.vm.ID
			if runs && (!isUUID(unqualified(best)) || best == m.refused) {
				best = had
			}
			for _, id := range []string{best, had, p.FromCgroup.ID, p.Unique} {
				owner, taken := owners[id]
				if id != "" && (!taken || owner == p.Unique) {
					m.vm.ID = id
					break
				}
			}
			if m.vm.ID != best {
				m.refused = best
			}
			if m.vm.ID != had && owners[had] == p.Unique {
				delete(owners, had)
			}
			machines[p.Unique], owners[m.vm.ID] = m, p.Unique
			if _, ok := scopes[p.FromCgroup.ID]; !ok {
				scopes[p.FromCgroup.ID] = m.vm
			}
		}
	}
	delete(scopes, "") // those of hypervisors without a scope
	for i := range processes {
		p := &processes[i]
		if p.FromArgs.ID != "" {
			p.VM = machines[p.Unique].vm
			continue
		}
		if _, ok := scopes[p.FromCgroup.ID]; !ok {
			scopes[p.FromCgroup.ID] = p.FromCgroup
			if vm, ok := v.scopes[p.FromCgroup.ID]; ok {
				scopes[p.FromCgroup.ID] = vm // its hypervisor is gone
			}
		}
		p.VM = scopes[p.FromCgroup.ID]
	}
	v.machines, v.scopes = machines, scopes
}

// Resolve settles which virtual machines the processes are, which takes all of them at once. It says whether
// that may have changed what any process is, those that were not identified in this round too.
func (id *Identifier) Resolve() (changed bool) {
	if !id.unsettled {
		return false
	}
	id.unsettled = false
	id.machines = slices.DeleteFunc(id.machines, func(slot int32) bool { return !id.known[slot].machine })
	slices.SortFunc(id.machines, func(a, b int32) int {
		x, y := &id.known[a], &id.known[b]
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.pid, y.pid))
	})
	id.processes = id.processes[:0]
	for _, slot := range id.machines {
		e := &id.known[slot]
		in, fromArgs := id.placementOf(e.cgroup), e.fromArgs
		if isUUID(fromArgs.ID) {
			fromArgs.ID = in.delegate.qualify(fromArgs.ID)
		}
		id.processes = append(id.processes, VMProcess{Unique: e.unique, FromCgroup: in.VM, FromArgs: fromArgs})
	}
	id.vms.Resolve(id.processes)
	for i, slot := range id.machines {
		e := &id.known[slot]
		if vm := id.processes[i].VM; e.identity.VM != vm {
			e.identity.VM, e.changed = vm, true
		}
	}
	return true
}
