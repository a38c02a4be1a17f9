// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// machine is a virtual machine of the test.
type machine struct {
	name, uuid string
	load       string
	used       float64 // seconds of CPU time by the reference
}

func machines() []*machine {
	return []*machine{
		{name: "busy", uuid: "b0a4b1de-37c5-4f5e-9d0a-6f3c2e815d74", load: "burn 70 0"},
		{name: "calm", uuid: "1d6c0f92-8ea7-4b3b-a5f4-90e2c7d8b316", load: "burn 15 0"},
	}
}

// until is the CPU time that the busy machine uses during the measurement, in seconds.
const until = 6

// testMachines compares the machines' CPU times from a collector with the true CPU times.
func testMachines(t *testing.T, collectors map[string]*collector, bpfLacks string, all []*machine) {
	for _, source := range []string{"procfs", "bpf"} {
		t.Run(source, func(t *testing.T) {
			if collectors[source] == nil {
				t.Skipf("lacks BPF: %s", bpfLacks)
			}
			emissions := readEmissions(t, collectors[source].out)
			requireBalance(t, emissions, "package")
			var members []member
			var used, billed []float64
			for _, m := range all {
				id := "vm.id=" + m.uuid
				got := total(emissions, "process.cpu.time", id)
				energy := total(emissions, "vm.energy", id, "vm.name="+m.name, "vm.hypervisor=qemu")
				t.Logf("%s, %s: used %.4f s, reported %.4f s (%+.2f %%), %.3f J", source, m.name, m.used, got, 100*(got/m.used-1), energy)
				// While a machine starts, its process is not yet a machine for a few milliseconds.
				assert.InDelta(t, m.used, got, 0.02*m.used+0.05, "%s by %s", m.name, source)
				assert.InDelta(t, total(emissions, "process.energy", id), energy, 1e-4, "a machine has the energy of its processes")
				members = append(members, member{"process.cpu.time", "vm.energy", id})
				used, billed = append(used, m.used), append(billed, energy)
			}
			requireSameRate(t, emissions, members)
			t.Logf("%s: CPU time %.3f : 1, energy %.3f : 1", source, used[0]/used[1], billed[0]/billed[1])
		})
	}
}

// startCollectors starts a collector for each CPU time source, with further settings of the
// receiver. bpfLacks is the reason if BPF is unavailable.
func startCollectors(t *testing.T, settings ...string) (all map[string]*collector, bpfLacks string) {
	t.Helper()
	all = map[string]*collector{}
	for _, source := range []string{"procfs", "bpf"} {
		all[source] = startCollector(t, source, settings...)
	}
	if all["bpf"].hasEnded() {
		bpfLacks = lastLine(all["bpf"].log)
		delete(all, "bpf")
	}
	return all, bpfLacks
}

// loadInitramfs returns the files that a machine needs to run the load program.
func loadInitramfs(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "initramfs")
	writeInitramfs(t, path, map[string]string{"init": build(t, "guest"), "load": build(t, "load")})
	return path
}

func (m *machine) kernelArguments() string {
	return fmt.Sprintf("console=ttyS0 quiet panic=-1 tsc=reliable guest.load=%q", m.load)
}

// Two machines of libvirt are compared with `virsh domstats`, which reads their cgroups. libvirt
// puts the threads of virtual CPUs into separate cgroups.
func TestLibvirtMachines(t *testing.T) {
	need(t)
	k := guestKernel(t, "6.1.", "amd64")
	l := startLibvirt(t)
	initramfs := loadInitramfs(t)
	collectors, bpfLacks := startCollectors(t)
	all := machines()
	for _, m := range all {
		l.create(t, m, k, initramfs)
	}
	for _, m := range all {
		l.virsh(t, "resume", m.name)
	}
	eventually(t, "the busy machine has used its CPU time", func() bool { return l.cpuTotal(t, all[0]) > until })
	for _, m := range all {
		l.virsh(t, "suspend", m.name)
	}
	for _, c := range collectors {
		c.emits(t, 2)
	}
	for _, m := range all {
		m.used = l.cpuTotal(t, m)
	}
	for _, c := range collectors {
		c.stop(t)
	}
	testMachines(t, collectors, bpfLacks, all)
}

// libvirt is a daemon that the test has started.
type libvirt struct{ client, uri string }

// startLibvirt starts a daemon with its own configuration and state.
func startLibvirt(t *testing.T) *libvirt {
	t.Helper()
	const packages = "libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients"
	daemon, client, unshare := program(t, "libvirtd", packages), program(t, "virsh", packages), program(t, "unshare", "util-linux")
	if _, err := os.Stat("/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so"); err != nil {
		t.Skip("lacks libvirt's driver for QEMU: apt-get install libvirt-daemon-driver-qemu")
	}
	dir, err := os.MkdirTemp("", "libvirt-")
	require.NoError(t, err)
	before := cgroupDirs(t)
	t.Cleanup(func() {
		removeCgroups(t, before)
		assert.NoError(t, os.RemoveAll(dir))
	})
	daemonConfig := fmt.Sprintf("unix_sock_dir = %q\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n", dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "libvirtd.conf"), []byte(daemonConfig), 0o600))
	driverConfig := "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\nremember_owner = 0\nnamespaces = []\nstdio_handler = \"file\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "qemu.conf"), []byte(driverConfig), 0o600))
	// The daemon's mount namespace gives it private directories.
	const script = `set -e
for d in /etc/libvirt /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do mkdir -p $d; mount -t tmpfs none $d; done
cp "$1/qemu.conf" /etc/libvirt/
# It looks for a user, though it is not to use it.
cp /etc/passwd /etc/group "$1"
grep -q ^libvirt-qemu: "$1/passwd" || echo libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin >>"$1/passwd"
grep -q ^libvirt-qemu: "$1/group" || echo libvirt-qemu:x:64055: >>"$1/group"
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
exec "$2" --config "$1/libvirtd.conf" --pid-file "$1/pid"`
	log := filepath.Join(cache(t), "libvirtd.log")
	ended := startDaemon(t, exec.Command(unshare, "--mount", "--propagation=private", "sh", "-c", script, "sh", dir, daemon), log)
	l := &libvirt{client: client, uri: "qemu:///system?socket=" + filepath.Join(dir, "libvirt-sock")}
	eventually(t, "libvirtd answers", func() bool {
		select {
		case <-ended:
			t.Skipf("lacks a machine that libvirtd runs on: %s", lastLine(log))
		default:
		}
		return exec.Command(l.client, "--connect", l.uri, "version").Run() == nil
	})
	return l
}

func (l *libvirt) virsh(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, exec.Command(l.client, append([]string{"--connect", l.uri}, args...)...))
}

// create creates a machine that is paused.
func (l *libvirt) create(t *testing.T, m *machine, k kernel, initramfs string) {
	t.Helper()
	domain := m.domain(t, k, initramfs, 256, m.kernelArguments(), "<serial type='null'/>")
	l.virsh(t, "create", domain, "--paused")
	t.Cleanup(func() { l.virsh(t, "destroy", m.name) })
}

// domain returns a file that describes the machine to libvirt. The memory is in MiB.
func (m *machine) domain(t *testing.T, k kernel, initramfs string, memory int, arguments, devices string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), m.name+".xml")
	text := fmt.Sprintf(`<domain type='qemu'>
  <name>%s</name>
  <uuid>%s</uuid>
  <memory unit='MiB'>%d</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>%s</kernel>
    <initrd>%s</initrd>
    <cmdline>%s</cmdline>
  </os>
  <devices>
    <emulator>%s</emulator>
    %s
    <memballoon model='none'/>
  </devices>
</domain>`, m.name, m.uuid, memory, k.image(), initramfs, arguments, k.qemu(t), devices)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// cpuTotal returns the CPU time of a machine by libvirt, in seconds.
func (l *libvirt) cpuTotal(t *testing.T, m *machine) float64 {
	t.Helper()
	said := l.virsh(t, "domstats", "--cpu-total", m.name)
	_, figure, found := strings.Cut(said, "cpu.time=")
	require.True(t, found, said)
	nanoseconds, err := strconv.ParseUint(strings.Fields(figure)[0], 10, 64)
	require.NoError(t, err)
	return float64(nanoseconds) / 1e9
}

// Two machines without a manager, identified only by their arguments, are compared with the times
// of their processes.
func TestQEMUByHand(t *testing.T) {
	need(t)
	k := guestKernel(t, "6.1.", "amd64")
	initramfs := loadInitramfs(t)
	collectors, bpfLacks := startCollectors(t)
	all := machines()
	var processes []*exec.Cmd
	for _, m := range all {
		cmd := exec.Command(k.qemu(t), "-name", "guest="+m.name+",debug-threads=on", "-uuid", m.uuid, "-accel", "tcg", "-machine", "q35",
			"-m", "256M", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "null",
			"-kernel", k.image(), "-initrd", initramfs, "-append", m.kernelArguments())
		ended := startDaemon(t, cmd, filepath.Join(cache(t), "qemu-"+m.name+".log"))
		processes = append(processes, cmd)
		t.Cleanup(func() {
			select {
			case <-ended:
				t.Errorf("%s ended by itself", m.name)
			default:
			}
		})
	}
	eventually(t, "the busy machine has used its CPU time", func() bool { return processTime(t, processes[0].Process.Pid) > until })
	for _, cmd := range processes {
		require.NoError(t, cmd.Process.Signal(unix.SIGSTOP))
		t.Cleanup(func() { _ = cmd.Process.Signal(unix.SIGCONT) }) // a stopped process cannot end
	}
	for _, c := range collectors {
		c.emits(t, 2)
		c.stop(t)
	}
	for i, m := range all {
		m.used = processTime(t, processes[i].Process.Pid)
	}
	testMachines(t, collectors, bpfLacks, all)
}

// processTime returns the user and system time of a process in seconds (proc_pid_stat(5), fields 14
// and 15).
func processTime(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	sum := 0.0
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseFloat(field, 64)
		require.NoError(t, err)
		sum += ticks / 100
	}
	return sum
}
