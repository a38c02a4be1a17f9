// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// arguments iterates over the content of /proc/<pid>/cmdline, whose arguments end in NUL bytes
// (proc(5)). Empty arguments at the end are ignored, because they cannot be distinguished from the
// padding of a program that overwrote its title. A title with spaces is one argument, because its
// arguments cannot be separated.
type arguments struct {
	rest []byte
	left int // maximum number of further arguments
}

// maxArguments is the maximum number of arguments of a process that are read.
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

// hypervisor is a program whose processes are virtual machines.
type hypervisor struct {
	name     string
	programs []string // base names of its executable
	prefixes []string // prefixes of further base names
	// describe reads the machine's identity from the arguments after the program's name. The ID need
	// not be a UUID.
	describe func(args arguments) identity.VM
}

// hypervisors are the supported hypervisors. To support another hypervisor, add a line.
var hypervisors = []hypervisor{
	// QEMU's documentation, "System Emulation: Invocation". Fedora and Red Hat call it qemu-kvm,
	// Debian and Proxmox VE kvm; qemu-<arch> without "system" runs a single program, not a machine.
	{name: "qemu", programs: []string{"qemu-kvm", "kvm"}, prefixes: []string{"qemu-system-", "qemu-kvm-"}, describe: describeQEMU},
	// Cloud Hypervisor's command line, --platform; released as these two binaries.
	{name: "cloud-hypervisor", programs: []string{"cloud-hypervisor", "cloud-hypervisor-static"}, describe: describeCloudHypervisor},
	// Firecracker's docs/jailer.md; releases are named firecracker-v<version>-<arch>.
	{name: "firecracker", programs: []string{"firecracker"}, prefixes: []string{"firecracker-v"}, describe: describeFirecracker},
	// crosvm's book, "Vsock device".
	{name: "crosvm", programs: []string{"crosvm"}, describe: describeCrosvm},
	// VirtualBox's manual, "VBoxHeadless": VBoxManage starts it with --comment <name> --startvm
	// <uuid>.
	{name: "virtualbox", programs: []string{"VBoxHeadless", "VirtualBoxVM", "VBoxSDL"}, describe: describeVirtualBox},
	{name: "vmware", programs: []string{"vmware-vmx", "vmware-vmx-debug", "vmware-vmx-stats"}, describe: describeNothing},
}

// parseVM returns the virtual machine of a process from the content of /proc/<pid>/cmdline. ok is
// false if the program of the process is not a hypervisor. The program is the executable. If the
// executable cannot be read, it is argv[0], or comm without arguments. Other arguments are not
// examined, so an editor with a hypervisor's name as an argument is not a machine.
//
// The machine's ID is the UUID in the arguments, in lower case. Without a UUID it is the argument
// unique, which must be different for each process of the node. Names are not used as IDs, because
// they are not unique. The CID is the context ID of the vsock device. The result does not share
// memory with line.
func parseVM(line []byte, comm, exe, unique string) (identity.VM, bool) {
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
		return identity.VM{}, false
	}
	vm := h.describe(args)
	if vm.ID, ok = machineUUID(vm.ID); !ok {
		vm.ID = unique
	}
	vm.Hypervisor = h.name
	boundVM(&vm)
	return vm, true
}

// hypervisorOf returns the hypervisor of the path of a program, or nil for other programs.
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
			// A title like "qemu-system-x86_64 helper" is not the name of a program.
			if rest, ok := strings.CutPrefix(program, prefix); ok && isName(rest) {
				return h
			}
		}
	}
	return nil
}

// machineUUID returns a UUID in lower case. ok is false for the nil UUID, which does not identify a
// machine.
func machineUUID(s string) (string, bool) {
	s = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}"))
	return s, isUUID(s) && strings.Trim(s, "0-") != ""
}

// describeQEMU follows QEMU's qemu-options.hx and QEMU's parser: options have one dash or two, -uuid
// and the uuid of -smbios type=1 set the same variable, and the last option that sets it wins; a
// later -name without a guest keeps the guest's name. A guest uses its first vsock device.
func describeQEMU(args arguments) (vm identity.VM) {
	for {
		arg, ok := args.next()
		if !ok {
			return vm
		}
		option, ok := bytes.CutPrefix(arg, []byte("-"))
		if !ok {
			continue
		}
		option = bytes.TrimPrefix(option, []byte("-"))
		switch string(option) {
		case "uuid", "name", "smbios", "device":
		case "append": // the kernel's command line, which may look like an option
		default:
			continue
		}
		argument, ok := args.next()
		if !ok {
			return vm
		}
		switch value := string(argument); string(option) {
		case "uuid":
			vm.ID = value
		case "name":
			eachQEMUOption(value, "guest", func(k, v string) {
				if k == "guest" {
					vm.Name = v
				}
			})
		case "smbios":
			if uuid := smbiosUUID(value); uuid != "" {
				vm.ID = uuid
			}
		case "device":
			if vm.CID == 0 {
				vm.CID = vsockCID(value)
			}
		}
	}
}

// smbiosUUID returns the uuid of an -smbios option of type 1, or "" for other options.
func smbiosUUID(value string) string {
	var kind, id string
	eachQEMUOption(value, "", func(k, v string) {
		switch k {
		case "type":
			kind = v
		case "uuid":
			id = v
		}
	})
	if kind != "1" {
		return ""
	}
	return id
}

// vsockDevices are QEMU's devices whose guests the host reaches by AF_VSOCK
// (hw/virtio/vhost-vsock*.c). With vhost-user-vsock-* a program on the host forwards the connections
// to Unix sockets.
var vsockDevices = []string{"vhost-vsock-pci", "vhost-vsock-pci-transitional", "vhost-vsock-pci-non-transitional", "vhost-vsock-device", "vhost-vsock-ccw"}

// vsockCID returns the context ID of a -device option, or 0 for other devices. libvirt writes
// devices as JSON.
func vsockCID(value string) uint32 {
	if !strings.Contains(value, "vsock") {
		return 0
	}
	var driver, cid string
	if strings.HasPrefix(value, "{") {
		var device struct {
			Driver string      `json:"driver"`
			CID    json.Number `json:"guest-cid"`
		}
		if json.Unmarshal([]byte(value), &device) != nil {
			return 0
		}
		driver, cid = device.Driver, device.CID.String()
	} else {
		eachQEMUOption(value, "driver", func(k, v string) {
			switch k {
			case "driver":
				driver = v
			case "guest-cid":
				cid = v
			}
		})
	}
	if !slices.Contains(vsockDevices, driver) {
		return 0
	}
	return guestCID(cid)
}

// guestCID returns a guest's context ID, or 0 if it is not valid: 0 to 2 and the largest number are
// reserved (vsock(7)).
func guestCID(s string) uint32 {
	cid, err := strconv.ParseUint(s, 0, 32)
	if err != nil || cid <= 2 || cid == math.MaxUint32 {
		return 0
	}
	return uint32(cid)
}

// eachQEMUOption calls visit for each pair of key=value,key=value (QEMU's util/qemu-option.c). A comma
// inside a value is written twice, and the first key may be omitted. A key without a value is skipped.
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

// describeFirecracker reads --id, which has a default and is not always unique. If it is a UUID, it
// is the ID of the machine, and otherwise its name. The vsock of Firecracker is a Unix socket on
// the host, regardless of the guest's context ID (docs/vsock.md); so is the vsock of Cloud
// Hypervisor.
func describeFirecracker(args arguments) identity.VM {
	id := longOption(args, "--id")
	switch {
	case isUUID(id):
		return identity.VM{ID: id}
	case id == "anonymous-instance":
		return identity.VM{}
	}
	return identity.VM{Name: id}
}

func describeCloudHypervisor(args arguments) (vm identity.VM) {
	for field := range strings.SplitSeq(longOption(args, "--platform"), ",") {
		if k, v, ok := strings.Cut(field, "="); ok && (k == "uuid" || k == "system_uuid") {
			vm.ID = v
		}
	}
	return vm
}

// describeCrosvm reads --cid, or the cid of --vsock, whose key may be omitted.
func describeCrosvm(args arguments) identity.VM {
	cid := longOption(args, "--cid")
	eachQEMUOption(longOption(args, "--vsock"), "cid", func(k, v string) {
		if k == "cid" {
			cid = v
		}
	})
	return identity.VM{CID: guestCID(cid)}
}

func describeVirtualBox(args arguments) identity.VM {
	return identity.VM{ID: longOption(args, "--startvm"), Name: longOption(args, "--comment")}
}

func describeNothing(arguments) identity.VM { return identity.VM{} }

// longOption returns the value of "--option value" or "--option=value", the last value if the option
// is repeated. Arguments after "--" are not options.
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
