// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// findMachine finds virtual machines. The emulator and the vCPUs are in children of the machine's
// directory.
func findMachine(w *walk, name string) verdict {
	if vm, ok := vmAt(w.dirs(), name); ok {
		vm.ID = w.owner.qualify(vm.ID)
		w.line.VM, w.line.owner = vm, w.owner
	}
	return passed
}

// vmAt returns the virtual machine to which the directory name, below dirs, belongs.
func vmAt(dirs []string, name string) (identity.VM, bool) {
	scope, isScope := strings.CutSuffix(name, ".scope")
	if d, machine, ok := libvirtMachine(name); ok && d.vm {
		vm := identity.VM{ID: machine, Name: guestName(strings.TrimPrefix(machine, d.prefix)), Hypervisor: d.name}
		if isScope {
			vm.ID = "machine-" + machine
		}
		return vm, true
	}
	// Proxmox VE puts the machine with the number 100 into qemu.slice/100.scope.
	if isScope && isDigits(scope) && len(dirs) > 0 && dirs[len(dirs)-1] == "qemu.slice" {
		return identity.VM{ID: scope, Hypervisor: "qemu"}, true
	}
	return identity.VM{}, false
}

// libvirtDrivers are the drivers of libvirt that make cgroups.
var libvirtDrivers = []machineDriver{
	{prefix: "qemu-", name: "qemu", vm: true, legacy: true},
	{prefix: "ch-", name: "cloud-hypervisor", vm: true},
	{prefix: "lxc-", name: "lxc", legacy: true},
}

// machineDriver is a driver of libvirt.
type machineDriver struct {
	prefix string // of the names of its machines
	name   string // of the hypervisor or of the container runtime
	vm     bool   // the machines are virtual machines, not containers
	legacy bool   // some releases did not number their guests
}

// libvirtMachine reads the driver and the machine's name from a cgroup's name. According to
// libvirt's "Control Groups Resource Management", a machine is named <driver>-<number>-<name>. Its
// cgroup is machine-<machine>.scope, escaped for systemd, or <machine>.libvirt-<driver> without
// systemd.
func libvirtMachine(name string) (machineDriver, string, bool) {
	if scope, ok := strings.CutSuffix(name, ".scope"); ok {
		machine, ok := strings.CutPrefix(scope, "machine-")
		if !ok {
			return machineDriver{}, "", false
		}
		machine = unescapeUnit(machine)
		for _, d := range libvirtDrivers {
			rest, ok := strings.CutPrefix(machine, d.prefix)
			if _, numbered := cutNumber(rest); ok && rest != "" && (numbered || d.legacy) {
				return d, machine, isMachineName(machine)
			}
		}
		return machineDriver{}, "", false
	}
	for _, d := range libvirtDrivers {
		machine, ok := strings.CutSuffix(name, ".libvirt-"+strings.TrimSuffix(d.prefix, "-"))
		if ok && machine != "" {
			return d, machine, isMachineName(machine)
		}
	}
	return machineDriver{}, "", false
}

// guestName takes the guest's name from "1-vm1", and from "embed-<hash>-1-vm1" of libvirt's
// embedded driver. libvirt may have shortened it.
func guestName(s string) string {
	if rest, ok := strings.CutPrefix(s, "embed-"); ok && len(rest) > 9 && isHex(rest[:8]) && rest[8] == '-' {
		if name, ok := cutNumber(rest[9:]); ok {
			return name
		}
	}
	name, _ := cutNumber(s)
	return name
}

// cutNumber cuts the number of a running domain from "1-vm1".
func cutNumber(s string) (rest string, ok bool) {
	n, rest, ok := strings.Cut(s, "-")
	if !ok || !isDigits(n) {
		return s, false
	}
	return rest, true
}
