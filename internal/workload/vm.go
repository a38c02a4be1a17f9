// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// arguments iterates over the content of /proc/<pid>/cmdline, whose arguments end in NUL bytes (proc(5)). Empty
// arguments count, but for those at the end: they cannot be told from the padding that a program leaves when it
// overwrites its title. A title with spaces stays one argument, for what its words were is lost.
type arguments struct {
	rest []byte
	left int // how many more are looked at
}

// maxArguments is how many arguments of a process are looked at.
const maxArguments = 1024

func newArguments(line []byte) arguments {
	return arguments{bytes.TrimRight(line, "\x00"), maxArguments}
}

// next returns the next argument, a subslice of the line.
func (a *arguments) next() (arg []byte, ok bool) {
	if len(a.rest) == 0 || a.left == 0 {
		return nil, false
	}
	a.left--
	arg, a.rest, _ = bytes.Cut(a.rest, []byte{0})
	return arg[:len(arg):len(arg)], true
}

// hypervisor is a program that is a virtual machine while it runs.
type hypervisor struct {
	name     string
	programs []string // base names of its executable
	prefixes []string // or what they start with
	// describe reads the machine's own identity from the arguments behind the program's name. What it
	// returns as uuid need not be one.
	describe func(args arguments) (uuid, name string)
}

// hypervisors are the programs that are known. To support another one, add a line.
var hypervisors = []hypervisor{
	// QEMU's documentation, "System Emulation: Invocation". Fedora and Red Hat call it qemu-kvm, Debian and
	// Proxmox VE kvm; qemu-<arch> without "system" runs a single program and is none.
	{name: "qemu", programs: []string{"qemu-kvm", "kvm"}, prefixes: []string{"qemu-system-", "qemu-kvm-"}, describe: describeQEMU},
	// Cloud Hypervisor's command line, --platform; released as these two binaries.
	{name: "cloud-hypervisor", programs: []string{"cloud-hypervisor", "cloud-hypervisor-static"}, describe: describeCloudHypervisor},
	// Firecracker's docs/jailer.md; releases are named firecracker-v<version>-<arch>.
	{name: "firecracker", programs: []string{"firecracker"}, prefixes: []string{"firecracker-v"}, describe: describeFirecracker},
	{name: "crosvm", programs: []string{"crosvm"}, describe: describeNothing},
	// VirtualBox's manual, "VBoxHeadless": VBoxManage starts it with --comment <name> --startvm <uuid>.
	{name: "virtualbox", programs: []string{"VBoxHeadless", "VirtualBoxVM", "VBoxSDL"}, describe: describeVirtualBox},
	{name: "vmware", programs: []string{"vmware-vmx", "vmware-vmx-debug", "vmware-vmx-stats"}, describe: describeNothing},
}

// ParseVM reports whether a process is a virtual machine, and which, by the content of /proc/<pid>/cmdline. It is one only
// if the program itself is a hypervisor: by its executable, where that cannot be read by argv[0], and only where there
// are no arguments either by comm. What else the arguments say does not count, so an editor with a hypervisor's name as
// its argument is none.
//
// The machine's ID is its UUID in lower case, where the arguments have one, and otherwise unique, which the
// caller makes so that no other process on the node has it. It is never made from a name: names repeat.
// The line is not kept.
func ParseVM(line []byte, comm, exe, unique string) (units.VM, bool) {
	args := newArguments(line)
	first, ok := args.next()
	program := comm
	if exe != "" {
		program = strings.TrimSuffix(exe, deletedSuffix)
	} else if ok {
		program = string(first)
	}
	h := hypervisorOf(program)
	if h == nil {
		return units.VM{}, false
	}
	vm := units.VM{ID: unique, Hypervisor: h.name}
	id, name := h.describe(args)
	if uuid, ok := machineUUID(id); ok {
		vm.ID = uuid
	}
	vm.Name = name
	boundVM(&vm)
	return vm, true
}

// hypervisorOf returns the hypervisor that a program is by its path, nil if it is none.
func hypervisorOf(program string) *hypervisor {
	program = program[strings.LastIndexByte(program, '/')+1:]
	// The wrapped programs of NixOS: .qemu-system-x86_64-wrapped.
	if inner, ok := strings.CutSuffix(program, "-wrapped"); ok {
		program = strings.TrimPrefix(inner, ".")
	}
	for i := range hypervisors {
		h := &hypervisors[i]
		for _, name := range h.programs {
			if program == name {
				return h
			}
		}
		for _, prefix := range h.prefixes {
			// A title like "qemu-system-x86_64 helper" is no program's name.
			if rest, ok := strings.CutPrefix(program, prefix); ok && isName(rest) {
				return h
			}
		}
	}
	return nil
}

// machineUUID returns a UUID that can tell machines apart: not the nil UUID, which means none.
func machineUUID(s string) (string, bool) {
	s = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}"))
	return s, isUUID(s) && strings.Trim(s, "0-") != ""
}

// describeQEMU follows QEMU's qemu-options.hx and the way in which it parses it: options have one dash or
// two, -uuid and the uuid of -smbios type=1 set the same variable, and the last one to set it wins; a
// later -name changes what it names and no more.
func describeQEMU(args arguments) (uuid, name string) {
	for {
		arg, ok := args.next()
		if !ok {
			return uuid, name
		}
		option, ok := bytes.CutPrefix(arg, []byte("-"))
		if !ok {
			continue
		}
		option = bytes.TrimPrefix(option, []byte("-"))
		switch string(option) {
		case "uuid", "name", "smbios":
		case "append": // the kernel's command line, which may look like anything
		default:
			continue
		}
		argument, ok := args.next()
		if !ok {
			return uuid, name
		}
		switch value := string(argument); string(option) {
		case "uuid":
			uuid = value
		case "name":
			eachQEMUOption(value, "guest", func(k, v string) {
				if k == "guest" {
					name = v
				}
			})
		case "smbios":
			var kind, id string
			eachQEMUOption(value, "", func(k, v string) {
				switch k {
				case "type":
					kind = v
				case "uuid":
					id = v
				}
			})
			if kind == "1" && id != "" {
				uuid = id
			}
		}
	}
}

// eachQEMUOption goes through key=value,key=value, where a comma inside a value is written twice and the
// first key may be left out (QEMU's util/qemu-option.c). A key alone has no value.
func eachQEMUOption(s, implied string, visit func(key, value string)) {
	for first := true; s != ""; first = false {
		key := implied
		if i := strings.IndexAny(s, "=,"); i >= 0 && s[i] == '=' {
			key, s = s[:i], s[i+1:]
		} else if !first || implied == "" {
			if i < 0 {
				return
			}
			s = s[i+1:]
			continue
		}
		var value string
		value, s = cutQEMUValue(s)
		visit(key, value)
	}
}

func cutQEMUValue(s string) (value, rest string) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, ',')
		if i < 0 {
			b.WriteString(s)
			return b.String(), ""
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		if !strings.HasPrefix(s, ",") {
			return b.String(), s
		}
		b.WriteByte(',')
		s = s[1:]
	}
}

// describeFirecracker: --id is unique only if whoever starts Firecracker makes it so, and has a default.
// So it is an identity where it is a UUID, and otherwise a name.
func describeFirecracker(args arguments) (uuid, name string) {
	id := longOption(args, "--id")
	switch {
	case isUUID(id):
		return id, ""
	case id == "anonymous-instance":
		return "", ""
	}
	return "", id
}

func describeCloudHypervisor(args arguments) (uuid, name string) {
	for field := range strings.SplitSeq(longOption(args, "--platform"), ",") {
		if k, v, ok := strings.Cut(field, "="); ok && (k == "uuid" || k == "system_uuid") {
			uuid = v
		}
	}
	return uuid, ""
}

func describeVirtualBox(args arguments) (uuid, name string) {
	return longOption(args, "--startvm"), longOption(args, "--comment")
}

func describeNothing(arguments) (uuid, name string) { return "", "" }

// longOption returns the value of "--option value" or "--option=value", the last one if there are more.
// What follows "--" is not options.
func longOption(args arguments, option string) (value string) {
	for {
		arg, ok := args.next()
		if !ok || string(arg) == "--" {
			return value
		}
		behind, ok := bytes.CutPrefix(arg, []byte(option))
		switch {
		case !ok:
		case len(behind) > 0 && behind[0] == '=':
			value = string(behind[1:])
		case len(behind) == 0:
			if arg, ok := args.next(); ok {
				value = string(arg)
			}
		}
	}
}

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
