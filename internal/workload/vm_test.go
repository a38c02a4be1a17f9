// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

const (
	uuid1  = "0a1b2c3d-0000-4000-8000-00000000000a"
	uuid2  = "0a1b2c3d-0000-4000-8000-00000000000b"
	unique = "qemu-1234-567890"
)

type vmCase struct {
	name string
	exe  string
	comm string
	argv []string
	want identity.VM // zero if there is none
}

func vmCases() []vmCase {
	const qemu = "/usr/bin/qemu-system-x86_64"
	vm := func(id, name, hypervisor string) identity.VM {
		return identity.VM{ID: id, Name: name, Hypervisor: hypervisor}
	}
	return []vmCase{
		{"name and uuid", qemu, "qemu-system-x86", []string{qemu, "-name", "guest=vm7,debug-threads=on", "-uuid", uuid1, "-nographic"}, vm(uuid1, "vm7", "qemu")},
		{"two dashes", qemu, "", []string{qemu, "--name", "vm7", "--uuid", uuid1}, vm(uuid1, "vm7", "qemu")},
		{"neither name nor uuid", qemu, "", []string{qemu, "-m", "1G"}, vm(unique, "", "qemu")},
		{"no arguments", qemu, "", nil, vm(unique, "", "qemu")},
		{"a name is no identity", qemu, "", []string{qemu, "-name", "vm7"}, vm(unique, "vm7", "qemu")},
		{"uuid in capitals", qemu, "", []string{qemu, "-uuid", strings.ToUpper(uuid1)}, vm(uuid1, "", "qemu")},
		{"a broken uuid is none", qemu, "", []string{qemu, "-uuid", uuid1 + "0"}, vm(unique, "", "qemu")},
		{"a uuid without dashes is none", qemu, "", []string{qemu, "-uuid", strings.ReplaceAll(uuid1, "-", "")}, vm(unique, "", "qemu")},
		{"the nil uuid is none", qemu, "", []string{qemu, "-uuid", "00000000-0000-0000-0000-000000000000"}, vm(unique, "", "qemu")},
		{"the last name wins", qemu, "", []string{qemu, "-name", "a", "-name", "guest=b"}, vm(unique, "b", "qemu")},
		{"a later name without a guest leaves it", qemu, "", []string{qemu, "-name", "a", "-name", "process=b,debug-threads=on"}, vm(unique, "a", "qemu")},
		{"the last uuid wins", qemu, "", []string{qemu, "-uuid", uuid1, "-uuid", uuid2}, vm(uuid2, "", "qemu")},
		{"commas in a name", qemu, "", []string{qemu, "-name", "a,,b,,,process=x"}, vm(unique, "a,b,", "qemu")},
		{"commas in a guest's name", qemu, "", []string{qemu, "-name", "debug-threads=on,guest=a,,b=c,process=x"}, vm(unique, "a,b=c", "qemu")},
		{"a guest behind another", qemu, "", []string{qemu, "-name", "b,debug-threads,guest=a"}, vm(unique, "a", "qemu")},
		{"a process's name is not the guest's", qemu, "", []string{qemu, "-name", "process=guest"}, vm(unique, "", "qemu")},
		{"a name that is not UTF-8", qemu, "", []string{qemu, "-name", "a\xff"}, vm(unique, "a\uFFFD", "qemu")},
		{"smbios", qemu, "", []string{qemu, "-id", "100", "-name", "web,debug-threads=on", "-smbios", "type=1,uuid=" + uuid1}, vm(uuid1, "web", "qemu")},
		{"smbios behind uuid", qemu, "", []string{qemu, "-uuid", uuid1, "-smbios", "type=1,product=a,,b,uuid=" + uuid2}, vm(uuid2, "", "qemu")},
		{"uuid behind smbios", qemu, "", []string{qemu, "-smbios", "uuid=" + uuid2 + ",type=1", "-uuid", uuid1}, vm(uuid1, "", "qemu")},
		{"smbios of another type", qemu, "", []string{qemu, "-smbios", "type=3,uuid=" + uuid1}, vm(unique, "", "qemu")},
		{"smbios without a uuid", qemu, "", []string{qemu, "-uuid", uuid1, "-smbios", "type=1,serial=x"}, vm(uuid1, "", "qemu")},
		{"option without its value", qemu, "", []string{qemu, "-name", "a", "-uuid"}, vm(unique, "a", "qemu")},
		{"kernel command line that looks like an option", qemu, "", []string{qemu, "-append", "-uuid", uuid1}, vm(unique, "", "qemu")},
		{"option as the value of name", qemu, "", []string{qemu, "-name", "-uuid", uuid1}, vm(unique, "-uuid", "qemu")},
		{"not an option", qemu, "", []string{qemu, "uuid", uuid1}, vm(unique, "", "qemu")},
		{"program replaced while it runs", qemu + " (deleted)", "", []string{"x", "-uuid", uuid1}, vm(uuid1, "", "qemu")},
		{"executable unreadable", "", "", []string{"/usr/bin/qemu-system-aarch64", "-uuid", uuid1}, vm(uuid1, "", "qemu")},
		{"argv[0] made up", qemu, "", []string{"web-server", "-uuid", uuid1}, vm(uuid1, "", "qemu")},
		{"title written over", qemu, "", []string{"qemu: vm7 -uuid " + uuid1}, vm(unique, "", "qemu")},
		{"only the task's name", "", "qemu-system-x86", nil, vm(unique, "", "qemu")},
		{"red hat", "/usr/libexec/qemu-kvm", "", []string{"/usr/libexec/qemu-kvm", "-uuid", uuid1}, vm(uuid1, "", "qemu")},
		{"proxmox", "", "", []string{"/usr/bin/kvm", "-name", "a"}, vm(unique, "a", "qemu")},
		{"nixos", "/nix/store/x/bin/.qemu-system-x86_64-wrapped", "", []string{"/nix/store/x/bin/qemu-system-x86_64"}, vm(unique, "", "qemu")},
		{"variant of qemu-kvm", "/usr/bin/qemu-kvm-spice", "", []string{"kvm"}, vm(unique, "", "qemu")},
		{"firecracker", "/srv/jailer/firecracker/x/root/firecracker", "", []string{"firecracker", "--id=" + uuid1, "--start-time-us=1"}, vm(uuid1, "", "firecracker")},
		{"firecracker with a name", "/usr/bin/firecracker", "", []string{"firecracker", "--api-sock", "/x", "--id", "vm-1"}, vm(unique, "vm-1", "firecracker")},
		{"firecracker with the default id", "/usr/bin/firecracker-v1.7.0-x86_64", "", []string{"firecracker", "--id", "anonymous-instance"}, vm(unique, "", "firecracker")},
		{"firecracker behind the options", "/usr/bin/firecracker", "", []string{"firecracker", "--", "--id", uuid1}, vm(unique, "", "firecracker")},
		{"cloud-hypervisor", "/usr/bin/cloud-hypervisor", "", []string{"cloud-hypervisor", "--api-socket", "/run/x"}, vm(unique, "", "cloud-hypervisor")},
		{"cloud-hypervisor with a uuid", "/usr/bin/cloud-hypervisor", "", []string{"cloud-hypervisor", "--platform", "num_pci_segments=1,uuid=" + uuid1}, vm(uuid1, "", "cloud-hypervisor")},
		{"crosvm", "/usr/bin/crosvm", "", []string{"crosvm", "run", "vmlinux"}, vm(unique, "", "crosvm")},
		// docs/book/src/devices/vsock.md of crosvm, and before it was --vsock; Android's and
		// ChromeOS's pages with a =
		{"crosvm with a context ID", "/usr/bin/crosvm", "", []string{"crosvm", "run", "--cid", "3", "-c", "4", "vmlinux"}, withCID(3, vm(unique, "", "crosvm"))},
		{"crosvm of Android", "/apex/com.android.virt/bin/crosvm", "", []string{"crosvm", "run", "--cid=5", "--disable-sandbox", "--bios=bootloader"}, withCID(5, vm(unique, "", "crosvm"))},
		{"crosvm with --vsock", "/usr/bin/crosvm", "", []string{"crosvm", "run", "--vsock", "3", "vmlinux"}, withCID(3, vm(unique, "", "crosvm"))},
		{"crosvm with --vsock's keys", "/usr/bin/crosvm", "", []string{"crosvm", "run", "--vsock", "device=/dev/vhost-vsock,cid=33", "vmlinux"}, withCID(33, vm(unique, "", "crosvm"))},
		{"crosvm's number of CPUs is no context ID", "/usr/bin/crosvm", "", []string{"crosvm", "run", "-c", "4", "vmlinux"}, vm(unique, "", "crosvm")},

		// QEMU's own examples, one a bus, and those of Kata Containers.
		{"vsock", qemu, "", []string{qemu, "-device", "vhost-vsock-pci,id=vhost-vsock-pci0,guest-cid=3", "-enable-kvm"}, withCID(3, vm(unique, "", "qemu"))},
		{"vsock of a microvm", qemu, "", []string{qemu, "-M", "microvm", "-device", "vhost-vsock-device,guest-cid=42"}, withCID(42, vm(unique, "", "qemu"))},
		{"vsock of a mainframe", "/usr/bin/qemu-system-s390x", "", []string{"qemu-system-s390x", "-device", "vhost-vsock-ccw,id=vsock0,guest-cid=42,devno=fe.1.1234"}, withCID(42, vm(unique, "", "qemu"))},
		{"vsock of a modern device", qemu, "", []string{qemu, "--device", "vhost-vsock-pci-non-transitional,guest-cid=4294967294"}, withCID(4294967294, vm(unique, "", "qemu"))},
		{"vsock of a transitional device", qemu, "", []string{qemu, "-device", "vhost-vsock-pci-transitional,guest-cid=4"}, withCID(4, vm(unique, "", "qemu"))},
		{"vsock of kata", "/opt/kata/bin/qemu-system-x86_64", "", []string{"qemu", "-name", "sandbox-1", "-uuid", uuid1, "-device", "virtio-9p-pci,disable-modern=false,fsdev=extra", "-device", "vhost-vsock-pci,disable-modern=true,vhostfd=3,id=vsock-3104105,guest-cid=3104105,romfile="}, withCID(3104105, vm(uuid1, "sandbox-1", "qemu"))},
		{"vsock of libvirt", qemu, "", libvirtArguments(), withCID(7, vm("ec9eebba-8ba1-4de3-8ec0-caa6fd808ad4", "web", "qemu"))},
		{"vsock of libvirt before it wrote JSON", qemu, "", []string{qemu, "-device", "vhost-vsock-pci,id=vsock0,guest-cid=4,vhostfd=6789,bus=pci.0,addr=0x2"}, withCID(4, vm(unique, "", "qemu"))},
		{"vsock with the driver's key", qemu, "", []string{qemu, "-device", "guest-cid=0x10,driver=vhost-vsock-pci"}, withCID(16, vm(unique, "", "qemu"))},
		{"the first of two vsock devices", qemu, "", []string{qemu, "-device", "vhost-vsock-pci,guest-cid=5", "-device", "vhost-vsock-pci,guest-cid=6"}, withCID(5, vm(unique, "", "qemu"))},
		{"vsock without a context ID", qemu, "", []string{qemu, "-device", "vhost-vsock-pci"}, vm(unique, "", "qemu")},
		{"vsock by a program of the host", qemu, "", []string{qemu, "-device", "vhost-user-vsock-pci,guest-cid=5,chardev=c"}, vm(unique, "", "qemu")},
		{"another device with a context ID", qemu, "", []string{qemu, "-device", "virtio-net-pci,guest-cid=5,id=vsock"}, vm(unique, "", "qemu")},
		{"broken JSON", qemu, "", []string{qemu, "-device", `{"driver":"vhost-vsock-pci","guest-cid":5`}, vm(unique, "", "qemu")},
		{"a context ID that is no number", qemu, "", []string{qemu, "-device", `{"driver":"vhost-vsock-pci","guest-cid":5.5}`}, vm(unique, "", "qemu")},
		{"a context ID in the kernel's command line", qemu, "", []string{qemu, "-append", "-device vhost-vsock-pci,guest-cid=5"}, vm(unique, "", "qemu")},
		{"cloud-hypervisor's vsock is a Unix socket", "/usr/bin/cloud-hypervisor", "", []string{"cloud-hypervisor", "--vsock", "cid=3,socket=/tmp/ch.vsock"}, vm(unique, "", "cloud-hypervisor")},
		{"virtualbox", "/usr/lib/virtualbox/VBoxHeadless", "", []string{"/usr/lib/virtualbox/VBoxHeadless", "--comment", "box 1", "--startvm", uuid1, "--vrde", "config"}, vm(uuid1, "box 1", "virtualbox")},
		{"virtualbox by name", "/usr/lib/virtualbox/VBoxHeadless", "", []string{"VBoxHeadless", "--startvm", "box"}, vm(unique, "", "virtualbox")},
		{"vmware", "/usr/lib/vmware/bin/vmware-vmx", "", []string{"vmware-vmx", "-uuid", uuid1}, vm(unique, "", "vmware")},

		{name: "editor", exe: "/usr/bin/vim.basic", argv: []string{"vim", "qemu-system-x86_64"}},
		{name: "shell", exe: "/bin/bash", argv: []string{"bash", "-c", "qemu-system-x86_64 -uuid " + uuid1}},
		{name: "grep", exe: "", argv: []string{"grep", "qemu-system-x86_64"}},
		{name: "program that calls itself a hypervisor", exe: "/usr/bin/python3.11", comm: "qemu-system-x86", argv: []string{"qemu-system-x86_64", "-uuid", uuid1}},
		{name: "sudo", exe: "/usr/bin/sudo", argv: []string{"sudo", "qemu-system-x86_64"}},
		{name: "title that starts like a hypervisor", argv: []string{"qemu-system-x86_64 watcher"}},
		{name: "task that calls itself a hypervisor", comm: "kvm", argv: []string{"python3"}},
		{name: "qemu-img", exe: "/usr/bin/qemu-img", argv: []string{"qemu-img", "convert"}},
		{name: "qemu-nbd", exe: "/usr/bin/qemu-nbd", argv: []string{"qemu-nbd"}},
		{name: "qemu's user emulation", exe: "/usr/bin/qemu-x86_64", argv: []string{"qemu-x86_64", "/bin/ls"}},
		{name: "nothing behind the prefix", exe: "/usr/bin/qemu-system-", argv: []string{"qemu-system-"}},
		{name: "firecracker's containerd", exe: "/usr/bin/firecracker-containerd", argv: []string{"firecracker-containerd"}},
		{name: "jailer", exe: "/usr/bin/jailer", argv: []string{"jailer", "--id", "x", "--exec-file", "/usr/bin/firecracker"}},
		{name: "virtualbox's service", exe: "/usr/lib/virtualbox/VBoxSVC", argv: []string{"VBoxSVC"}},
		{name: "TPM", exe: "/usr/bin/swtpm", argv: []string{"swtpm", "socket"}},
		{name: "kernel thread", comm: "kvm-nx-lpage-re"},
		{name: "nothing known"},
	}
}

func withCID(cid uint32, vm identity.VM) identity.VM { vm.CID = cid; return vm }

// libvirtArguments are the arguments with which libvirt 9 starts QEMU, shortened.
func libvirtArguments() []string {
	return []string{
		"/usr/bin/qemu-system-x86_64", "-name", "guest=web,debug-threads=on", "-S",
		"-object", `{"qom-type":"secret","id":"masterKey0","format":"raw","file":"/var/lib/libvirt/qemu/domain-2-web/master-key.aes"}`,
		"-machine", "pc-q35-6.2,usb=off,vmport=off,dump-guest-core=off,memory-backend=pc.ram", "-accel", "kvm", "-m", "2048",
		"-uuid", "ec9eebba-8ba1-4de3-8ec0-caa6fd808ad4", "-no-user-config", "-nodefaults", "-boot", "strict=on",
		"-device", `{"driver":"pcie-root-port","port":16,"chassis":1,"id":"pci.1","bus":"pcie.0","multifunction":true,"addr":"0x2"}`,
		"-device", `{"driver":"virtio-net-pci","netdev":"hostnet0","id":"net0","mac":"52:54:00:03:16:5a","bus":"pci.1","addr":"0x0"}`,
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-device", `{"driver":"vhost-vsock-pci","id":"vsock0","guest-cid":7,"vhostfd":"28","bus":"pci.7","addr":"0x0"}`,
		"-msg", "timestamp=on",
	}
}

func TestContextIDsOfTheHostAndReservedOnesAreNoGuests(t *testing.T) {
	t.Parallel()
	for _, cid := range []string{"0", "1", "2", "4294967295", "4294967296", "18446744073709551615", "-1", "", "x", "3x"} {
		assert.Zero(t, guestCID(cid), cid)
	}
}

func (c vmCase) line() []byte { return []byte(strings.Join(c.argv, "\x00")) }

func TestHypervisorsAreIdentifiedByTheirProgram(t *testing.T) {
	t.Parallel()
	for _, c := range vmCases() {
		line := c.line()
		got, ok := parseVM(line, c.comm, c.exe, unique)
		for i := range line {
			line[i] = 'X' // the result shares no memory with it
		}
		assert.Equal(t, c.want, got, c.name)
		assert.Equal(t, c.want != identity.VM{}, ok, c.name)
	}
}

// split returns all arguments of a command line.
func split(line string) (argv []string) {
	args := newArguments([]byte(line))
	for arg, ok := args.next(); ok; arg, ok = args.next() {
		argv = append(argv, string(arg))
		_ = append(arg, 'X') // must not change the next one
	}
	return argv
}

func TestArgumentsOfACommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"":                                      nil,
		"a\x00":                                 {"a"},
		"a\x00b":                                {"a", "b"}, // no NUL at the end
		"a\x00\x00b\x00":                        {"a", "", "b"},
		"\x00a\x00":                             {"", "a"},
		"\x00\x00\x00":                          nil,
		"nginx: worker process\x00\x00\x00\x00": {"nginx: worker process"}, // padding after a title
		"postgres: writer   ":                   {"postgres: writer   "},
	} {
		assert.Equal(t, want, split(line), "%q", line)
	}
	assert.Len(t, split(strings.Repeat("x\x00", maxArguments+1)), maxArguments)
	assert.Equal(t, []string{strings.Repeat("x", 1<<20)}, split(strings.Repeat("x", 1<<20)))
}

func TestTheUUIDIsPreferredThenTheScopeThenTheProcess(t *testing.T) {
	t.Parallel()
	vm := func(id, name string) identity.VM { return identity.VM{ID: id, Name: name, Hypervisor: "qemu"} }
	scope, none := vm("machine-qemu-1-vm1", "vm1"), identity.VM{}
	for name, c := range map[string]struct{ fromCgroup, fromArgs, want identity.VM }{
		"nothing":             {none, none, none},
		"scope alone":         {scope, none, scope},
		"arguments alone":     {none, vm(unique, "a"), vm(unique, "a")},
		"uuid":                {scope, vm(uuid1, "long-name"), vm(uuid1, "long-name")},
		"uuid without a name": {scope, vm(uuid1, ""), vm(uuid1, "vm1")},
		"no uuid":             {scope, vm(unique, "a"), vm("machine-qemu-1-vm1", "a")},
	} {
		assert.Equal(t, c.want, mergeVM(c.fromCgroup, c.fromArgs), name)
	}
}

// scope and qemu are the machine according to a cgroup and to a hypervisor's arguments.
func scope(n int) identity.VM {
	return identity.VM{ID: fmt.Sprintf("machine-qemu-%d-vm", n), Name: "vm", Hypervisor: "qemu"}
}

func qemu(pid int, uuid string) vmProcess {
	u := fmt.Sprintf("qemu-%d-1", pid)
	vm := identity.VM{ID: uuid, Name: "vm", Hypervisor: "qemu"}
	if uuid == "" {
		vm.ID = u
	}
	return vmProcess{unique: u, fromArgs: vm}
}

func (p vmProcess) in(n int) vmProcess { p.fromCgroup = scope(n); return p }

func helper(pid, n int) vmProcess {
	return vmProcess{unique: fmt.Sprintf("swtpm-%d-1", pid), fromCgroup: scope(n)}
}

// resolve returns the IDs of the processes.
func resolve(v *vms, processes ...vmProcess) []string {
	v.resolve(processes)
	var ids []string
	for _, p := range processes {
		ids = append(ids, p.vm.ID)
	}
	return ids
}

func (p vmProcess) cid(cid uint32) vmProcess { p.fromArgs.CID = cid; return p }

// resolveCIDs returns the context IDs of the processes.
func resolveCIDs(v *vms, processes ...vmProcess) []uint32 {
	v.resolve(processes)
	var cids []uint32
	for _, p := range processes {
		cids = append(cids, p.vm.CID)
	}
	return cids
}

func TestHelpersHaveTheContextIDOfTheirMachineWhileItRuns(t *testing.T) {
	t.Parallel()
	var v vms
	assert.Equal(t, []uint32{3, 3, 0}, resolveCIDs(&v, helper(1, 1), qemu(2, uuid1).in(1).cid(3), helper(3, 2)))
	assert.Equal(t, []uint32{0, 3}, resolveCIDs(&v, helper(1, 1), qemu(4, uuid2).in(2).cid(3)), "another machine has it")
}

func TestAMachineThatIsStartedAgainHasItsNewContextID(t *testing.T) {
	t.Parallel()
	var v vms
	assert.Equal(t, []uint32{3}, resolveCIDs(&v, qemu(1, uuid1).in(1).cid(3)))
	assert.Equal(t, []uint32{4}, resolveCIDs(&v, qemu(2, uuid1).in(2).cid(4)))
	assert.Equal(t, []uint32{5}, resolveCIDs(&v, qemu(2, uuid1).in(2).cid(5)), "it executed another program")
}

// Any user can write arguments. The kernel gives a context ID to one guest.
func TestAContextIDIsThatOfTheMachineThatHadItFirst(t *testing.T) {
	t.Parallel()
	var v vms
	genuine, forged := qemu(2, uuid1).cid(3), qemu(1, uuid2).cid(3)
	assert.Equal(t, []uint32{3}, resolveCIDs(&v, genuine))
	for range 3 {
		assert.Equal(t, []uint32{0, 3}, resolveCIDs(&v, forged, genuine))
	}
	assert.Equal(t, []uint32{3}, resolveCIDs(&v, forged), "free again")
	assert.Equal(t, []uint32{0, 3}, resolveCIDs(&v, forged, genuine.in(1)), "a scope takes it from arguments alone")
	assert.Equal(t, []uint32{0, 3}, resolveCIDs(&v, forged, genuine.in(1)))
}

func TestProcessesOfACgroupOwnerNeverTakeAContextIDFromTheHosts(t *testing.T) {
	t.Parallel()
	forged, genuine := qemu(1, uuid2).in(2).cid(3), qemu(2, uuid1).cid(3)
	forged.owned = true
	var v vms
	assert.Equal(t, []uint32{3}, resolveCIDs(&v, forged), "nobody else claims it")
	for range 3 {
		assert.Equal(t, []uint32{0, 3}, resolveCIDs(&v, forged, genuine))
	}
	assert.Equal(t, []uint32{3, 0}, resolveCIDs(&v, genuine, forged))
}

func TestHelpersOfAScopeAreInTheirHypervisorsMachine(t *testing.T) {
	t.Parallel()
	var v vms
	// The helper comes first, and must not have an ID of its own for one interval.
	assert.Equal(t, []string{uuid1, uuid1, uuid2, uuid2}, resolve(&v, helper(1, 1), qemu(2, uuid1).in(1), helper(3, 2), qemu(4, uuid2).in(2)))
	// The hypervisor ends first.
	assert.Equal(t, []string{uuid1, uuid2, uuid2}, resolve(&v, helper(1, 1), helper(3, 2), qemu(4, uuid2).in(2)))
	// The machine is forgotten when its scope is gone.
	assert.Equal(t, []string{uuid2}, resolve(&v, qemu(4, uuid2).in(2)))
	assert.Equal(t, []string{scope(1).ID}, resolve(&v, helper(9, 1)))
}

func TestAScopeWithoutAHypervisorIsItsOwnMachineUntilOneIsSeen(t *testing.T) {
	t.Parallel()
	var v vms
	assert.Equal(t, []string{scope(1).ID}, resolve(&v, helper(1, 1)))
	assert.Equal(t, []string{uuid1, uuid1}, resolve(&v, helper(1, 1), qemu(2, uuid1).in(1)))
	// Arguments that become unreadable change nothing.
	assert.Equal(t, []string{uuid1, uuid1}, resolve(&v, helper(1, 1), qemu(2, "").in(1)))
}

func TestArgumentsThatBecomeReadableGiveTheUUID(t *testing.T) {
	t.Parallel()
	var v vms
	assert.Equal(t, []string{scope(1).ID, "qemu-2-1"}, resolve(&v, qemu(1, "").in(1), qemu(2, "")))
	assert.Equal(t, []string{uuid1, uuid2}, resolve(&v, qemu(1, uuid1).in(1), qemu(2, uuid2)))
}

func TestCopiesOfAMachineDoNotShareAnID(t *testing.T) {
	t.Parallel()
	var v vms
	assert.Equal(t, []string{uuid1, "qemu-2-1", scope(3).ID, scope(3).ID}, resolve(&v, qemu(1, uuid1), qemu(2, uuid1), qemu(3, "").in(3), helper(4, 3)))
	// The first hypervisor ends. The running ones do not inherit its ID, and a new one may have it.
	assert.Equal(t, []string{"qemu-2-1", scope(3).ID, scope(3).ID}, resolve(&v, qemu(2, uuid1), qemu(3, "").in(3), helper(4, 3)))
	assert.Equal(t, []string{"qemu-2-1", scope(3).ID, uuid1}, resolve(&v, qemu(2, uuid1), qemu(3, "").in(3), qemu(5, uuid1)))
	// A later hypervisor does not get the ID of a running one, whatever its position.
	assert.Equal(t, []string{"qemu-0-1", uuid1}, resolve(&v, qemu(0, uuid1), qemu(5, uuid1)))
	// The same holds in scopes.
	assert.Equal(t, []string{uuid2}, resolve(&v, qemu(6, uuid2).in(6)))
	assert.Equal(t, []string{scope(7).ID, uuid2, scope(7).ID}, resolve(&v, qemu(7, uuid2).in(7), qemu(6, uuid2).in(6), helper(8, 7)))
}

// Any user can write arguments. The machine manager creates scopes.
func TestArgumentsAloneNeverKeepAnIDFromAMachineInItsScope(t *testing.T) {
	t.Parallel()
	forged, genuine := qemu(1, uuid1), qemu(2, uuid1).in(1)
	for _, first := range []vmProcess{forged, genuine} {
		var v vms
		resolve(&v, first) // it was alone before
		for range 2 {
			assert.Equal(t, []string{"qemu-1-1", uuid1}, resolve(&v, forged, genuine))
			assert.Equal(t, []string{uuid1, "qemu-1-1"}, resolve(&v, genuine, forged))
		}
	}
}

func TestTwoHypervisorsInOneScopeAreTwoMachines(t *testing.T) {
	t.Parallel()
	var v vms
	assert.Equal(t, []string{scope(1).ID, "qemu-2-1", uuid1}, resolve(&v, qemu(1, "").in(1), qemu(2, "").in(1), qemu(3, uuid1).in(1)))
}

func TestARestartedMachineHasItsUUIDAtOnce(t *testing.T) {
	t.Parallel()
	var v vms
	assert.Equal(t, []string{uuid1, uuid1}, resolve(&v, qemu(1, uuid1).in(1), helper(2, 1)))
	assert.Equal(t, []string{uuid1, uuid1}, resolve(&v, helper(2, 1), qemu(3, uuid1).in(2)))
}

func TestForksOfAHypervisorBelongToItsMachineIfRequested(t *testing.T) {
	t.Parallel()
	var v vms
	assert.Equal(t, []string{uuid1, uuid1, "qemu-2-1", "qemu-2-1"}, resolve(&v, qemu(1, uuid1), qemu(1, uuid1), qemu(2, ""), qemu(2, "")))
}

func TestResolveIsStable(t *testing.T) {
	t.Parallel()
	var v vms
	processes := []vmProcess{qemu(1, uuid1).in(1), qemu(2, uuid1).in(2), qemu(3, uuid1), qemu(4, "").in(4), helper(5, 2), qemu(6, "")}
	first := resolve(&v, processes...)
	for range 3 {
		assert.Equal(t, first, resolve(&v, processes...))
	}
	// In any order, running hypervisors keep their IDs.
	slices.Reverse(processes)
	again := resolve(&v, processes...)
	slices.Reverse(again)
	assert.Equal(t, first, again)
}

func FuzzParseVM(f *testing.F) {
	for _, c := range vmCases() {
		f.Add(c.line(), c.comm, c.exe)
	}
	f.Add([]byte("kvm\x00-name\x00guest="+strings.Repeat("é", maxName)), "", "/usr/bin/kvm")
	f.Add(bytes.Repeat([]byte("kvm\x00-name\x00\x00"), 100), "", "")
	f.Fuzz(func(t *testing.T, cmdline []byte, comm, exe string) {
		vm, ok := parseVM(cmdline, comm, exe, unique)
		switch {
		case !ok && vm != identity.VM{}:
			t.Errorf("no VM, and yet %+v", vm)
		case ok && (vm.Hypervisor == "" || vm.ID != unique && !isUUID(vm.ID)):
			t.Errorf("VM %+v", vm)
		case ok && vm.ID != unique && !strings.Contains(strings.ToLower(string(cmdline)), vm.ID):
			t.Errorf("uuid %q is made up", vm.ID)
		case vm.CID != 0 && (vm.CID <= 2 || vm.CID == math.MaxUint32):
			t.Errorf("context ID %d", vm.CID)
		case strings.ToValidUTF8(vm.Name, "") != vm.Name || len(vm.Name) > maxName:
			t.Errorf("name %q of %d bytes", vm.Name, len(vm.Name))
		}
	})
}

func FuzzArguments(f *testing.F) {
	for _, c := range vmCases() {
		f.Add([]byte(strings.Join(c.argv, "\x00") + "\x00"))
	}
	f.Add([]byte("a\x00\x00b\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		line := string(b)
		argv := split(line)
		joined, trimmed := strings.Join(argv, "\x00"), strings.TrimRight(line, "\x00")
		switch n := len(argv); {
		case n == maxArguments && strings.HasPrefix(trimmed, joined):
		case joined != trimmed:
			t.Errorf("%q joined again is %q", argv, joined)
		case n > 0 && argv[n-1] == "":
			t.Errorf("%q ends in an empty argument", argv)
		}
	})
}
