// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const (
	hexA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	hexB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	hexC = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
)

// identified is an identifier on a simulated host, where each process's slot is its PID.
type identified struct {
	t    *testing.T
	host *hostsim.Host
	id   *Identifier
}

func newIdentified(t *testing.T, wantCommandLine bool) *identified {
	t.Helper()
	i := &identified{t: t, host: hostsim.New(t.TempDir())}
	i.id = NewIdentifier(i.host.Root(), Wanted{CommandLine: wantCommandLine})
	t.Cleanup(func() {
		if err := i.id.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

func process(pid int, p *hostsim.Process) *proc.Process {
	q := &proc.Process{Slot: int32(pid), Sight: proc.Sight{ID: proc.ID{PID: int32(pid), Start: time.Duration(p.Start) * hostsim.Tick}}}
	if p.Kernel {
		q.Flags |= proc.Kernel
	}
	copy(q.Comm[:15], p.Comm)
	return q
}

// round identifies all processes and returns the identity of the one with this PID.
func (i *identified) round(pid int) (Identity, bool) {
	i.t.Helper()
	if err := i.host.Render(); err != nil {
		i.t.Fatal(err)
	}
	for pid, p := range i.host.Processes {
		i.id.Identify(process(pid, p), 0)
	}
	i.id.Resolve()
	found, changed := i.id.Identity(int32(pid))
	return *found, changed
}

func (i *identified) expect(pid int, want Identity, wantChanged bool) {
	i.t.Helper()
	got, changed := i.round(pid)
	if diff := cmp.Diff(want, got); diff != "" {
		i.t.Errorf("identity (-want +got):\n%s", diff)
	}
	if changed != wantChanged {
		i.t.Errorf("changed: %v, want %v", changed, wantChanged)
	}
}

func TestIdentity(t *testing.T) {
	for name, tt := range map[string]struct {
		process hostsim.Process
		want    Identity
	}{
		"an executable":               {hostsim.Process{Comm: "worker-7", Exe: "/usr/bin/app"}, Identity{Executable: "app", Path: "/usr/bin/app"}},
		"one that was deleted":        {hostsim.Process{Comm: "app", Exe: "/usr/bin/app (deleted)"}, Identity{Executable: "app", Path: "/usr/bin/app"}},
		"one in memory":               {hostsim.Process{Comm: "6", Exe: "/memfd:runc (deleted)"}, Identity{Executable: "memfd:runc", Path: "/memfd:runc"}},
		"one that is not UTF-8":       {hostsim.Process{Comm: "app", Exe: "/usr/bin/\xffapp"}, Identity{Executable: "\uFFFDapp", Path: "/usr/bin/\uFFFDapp"}},
		"one that cannot be read":     {hostsim.Process{Comm: "app"}, Identity{Executable: "app"}},
		"a name that is not UTF-8":    {hostsim.Process{Comm: "a\xffb"}, Identity{Executable: "a\uFFFDb"}},
		"a kernel thread":             {hostsim.Process{Comm: "ksoftirqd/0", Kernel: true}, Identity{Executable: "ksoftirqd/0"}},
		"a worker":                    {hostsim.Process{Comm: "kworker/0:1", Kernel: true}, Identity{Executable: "kworker/0:1"}},
		"a worker at work":            {hostsim.Process{Comm: "kworker/0:1-eve", Kernel: true}, Identity{Executable: "kworker/0:1"}},
		"a worker that runs now":      {hostsim.Process{Comm: "kworker/u8:2+fl", Kernel: true}, Identity{Executable: "kworker/u8:2"}},
		"a worker of high priority":   {hostsim.Process{Comm: "kworker/3:1H-kb", Kernel: true}, Identity{Executable: "kworker/3:1H"}},
		"a rescuer":                   {hostsim.Process{Comm: "kworker/R-rcu_g", Kernel: true}, Identity{Executable: "kworker/R-rcu_g"}},
		"a program named like one":    {hostsim.Process{Comm: "kworker/0:1-eve", Exe: "/tmp/kworker"}, Identity{Executable: "kworker", Path: "/tmp/kworker"}},
		"a kernel thread's arguments": {hostsim.Process{Comm: "x", Kernel: true, Args: []string{"/usr/bin/qemu-kvm"}}, Identity{Executable: "x"}},
		"a container": {
			hostsim.Process{Comm: "app", Exe: "/bin/app", Cgroup: "0::/system.slice/docker-" + hexA + ".scope/sub"},
			Identity{Executable: "app", Path: "/bin/app", Placement: Placement{
				Workload: identity.Workload{Container: identity.Container{ID: hexA, Runtime: "docker"}}, Cgroup: "/system.slice/docker-" + hexA + ".scope",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIdentified(t, false)
			i.host.Processes[10] = &tt.process
			i.expect(10, tt.want, true)
			i.expect(10, tt.want, false)
		})
	}
}

func TestExecutingAnotherProgramIsAnotherIdentity(t *testing.T) {
	i := newIdentified(t, true)
	p := &hostsim.Process{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh", "-c", "exec app"}}
	i.host.Processes[10] = p
	i.expect(10, Identity{Executable: "sh", Path: "/bin/sh", CommandLine: "sh -c exec app"}, true)
	p.Comm, p.Exe, p.Args = "app", "/bin/app", []string{"app", "--serve"}
	i.expect(10, Identity{Executable: "app", Path: "/bin/app", CommandLine: "app --serve"}, true)
	i.expect(10, Identity{Executable: "app", Path: "/bin/app", CommandLine: "app --serve"}, false)
}

func TestExecutingTheSameFileUnderAnotherNameIsAnotherCommandLine(t *testing.T) {
	i := newIdentified(t, true)
	p := &hostsim.Process{Comm: "sh", Exe: "/bin/busybox", Args: []string{"sh"}}
	i.host.Processes[10] = p
	i.round(10)
	p.Comm, p.Args = "sleep", []string{"sleep", "5"}
	i.expect(10, Identity{Executable: "busybox", Path: "/bin/busybox", CommandLine: "sleep 5"}, true)
}

func TestATaskThatRenamesItselfChangesNothing(t *testing.T) {
	for _, exe := range []string{"/usr/bin/app", ""} {
		i := newIdentified(t, true)
		p := &hostsim.Process{Comm: "app", Exe: exe, Args: []string{"app"}}
		i.host.Processes[10] = p
		want, _ := i.round(10)
		p.Comm = "app: idle"
		i.expect(10, want, false)
	}
}

// A collector without root cannot read the executables of other users' processes. Entrypoints of
// containers execute the container's program.
func TestExecutingIsNoticedWhereTheExecutableCannotBeRead(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "entrypoint.sh", Args: []string{"/bin/sh", "/entrypoint.sh", "java"}}
	i.host.Processes[10] = p
	i.expect(10, Identity{Executable: "entrypoint.sh"}, true)
	p.Comm, p.Args = "java", []string{"java", "-jar", "app.jar"}
	i.expect(10, Identity{Executable: "java"}, true)
	i.expect(10, Identity{Executable: "java"}, false)
	p.Comm = "GC Thread#0"
	i.expect(10, Identity{Executable: "java"}, false) // renamed
	p.Args = []string{"app.jar: idle"}
	i.expect(10, Identity{Executable: "java"}, false) // it has set its title
	p.Comm, p.Args = "app", []string{"app"}
	i.expect(10, Identity{Executable: "app"}, true)
}

func TestExecutingIsNoticedWhereTheExecutableCanNoLongerBeRead(t *testing.T) {
	i := newIdentified(t, true)
	p := &hostsim.Process{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh"}}
	i.host.Processes[10] = p
	i.expect(10, Identity{Executable: "sh", Path: "/bin/sh", CommandLine: "sh"}, true)
	p.Comm, p.Exe, p.Args = "sudo", "", []string{"sudo", "-s"}
	i.expect(10, Identity{Executable: "sudo", CommandLine: "sudo -s"}, true)
	p.Comm, p.Exe, p.Args = "sh", "/bin/sh", []string{"sh"}
	i.expect(10, Identity{Executable: "sh", Path: "/bin/sh", CommandLine: "sh"}, true)
}

// The kernel sets a task's name before it has set up the new command line.
func TestAnExecutionInProgressIsNoticedWhenItIsDone(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "entrypoint.sh", Args: []string{"/bin/sh", "/entrypoint.sh"}}
	i.host.Processes[10] = p
	i.expect(10, Identity{Executable: "entrypoint.sh"}, true)
	p.Comm, p.Args = "java", nil
	i.expect(10, Identity{Executable: "entrypoint.sh"}, false)
	p.Args = []string{"java"}
	i.expect(10, Identity{Executable: "java"}, true)
}

func TestAnExecutableThatBecomesUnreadableStaysKnown(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "app", Exe: "/usr/bin/app"}
	i.host.Processes[10] = p
	want, _ := i.round(10)
	p.Exe, p.Comm = "", "else"
	i.expect(10, want, false)
}

func TestAnExecutableThatBecomesReadableIsKnownThen(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "task"}
	i.host.Processes[10] = p
	i.expect(10, Identity{Executable: "task"}, true)
	p.Exe = "/usr/bin/app"
	i.expect(10, Identity{Executable: "app", Path: "/usr/bin/app"}, true)
}

func TestAProcessThatIsGoneAlreadyIsKnownByItsName(t *testing.T) {
	i := newIdentified(t, true)
	if err := i.host.Render(); err != nil {
		t.Fatal(err)
	}
	i.id.Identify(process(10, &hostsim.Process{Comm: "gone"}), 0)
	i.id.Resolve()
	got, changed := i.id.Identity(10)
	if want := (Identity{Executable: "gone"}); *got != want || !changed {
		t.Errorf("%+v, changed %v", *got, changed)
	}
}

func TestAReusedSlotStartsEmpty(t *testing.T) {
	i := newIdentified(t, true)
	i.host.Processes[10] = &hostsim.Process{Comm: "qemu-kvm", Exe: "/usr/libexec/qemu-kvm", Args: []string{"qemu-kvm", "-name", "a"},
		Cgroup: "0::/system.slice/docker-" + hexA + ".scope"}
	if got, _ := i.round(10); got.VM.ID == "" || got.Container.ID == "" {
		t.Fatalf("%+v", got)
	}
	i.id.Forget(10)
	i.host.Processes[10] = &hostsim.Process{Comm: "app"}
	i.expect(10, Identity{Executable: "app"}, true)
	i.id.Forget(99_999) // never seen
}

func TestTheCommandLineIsReadOnlyWhereItIsWanted(t *testing.T) {
	long := strings.Repeat("x", maxText)
	cut := long[:maxText-len(ellipsis)] + ellipsis
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"arguments":                  {[]string{"app", "--a b", ""}, "app --a b"},
		"none":                       {nil, ""},
		"not UTF-8":                  {[]string{"a\xff", "b"}, "a\uFFFD b"},
		"just fits":                  {[]string{long}, long},
		"too long":                   {[]string{long + "y"}, cut},
		"cut within a character":     {[]string{long[:maxText-len(ellipsis)-1] + "éxxx"}, cut[1:]},
		"longer after replacement":   {[]string{strings.Repeat("a\xff", maxText/2)}, strings.Repeat("a\uFFFD", maxText/4-1) + "a" + ellipsis},
		"shorter after replacement":  {[]string{strings.Repeat("\xff", maxText+1)}, "\uFFFD" + ellipsis},
		"a title that spaces follow": {[]string{"nginx: worker process"}, "nginx: worker process"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, wanted := range []bool{true, false} {
				i := newIdentified(t, wanted)
				i.host.Processes[10] = &hostsim.Process{Comm: "app", Exe: "/bin/app", Args: tt.args}
				got, _ := i.round(10)
				want := tt.want
				if !wanted {
					want = ""
				}
				if strings.TrimSpace(got.CommandLine) != want || !utf8.ValidString(got.CommandLine) || len(got.CommandLine) > maxText {
					t.Errorf("wanted %v: %.60q of %d bytes, want %.60q of %d", wanted, got.CommandLine, len(got.CommandLine), want, len(want))
				}
			}
		})
	}
}

func TestTheCgroupIsReadAgain(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app"}
	i.host.Processes[10] = p
	i.round(10)
	for _, tt := range []struct{ cgroup, container string }{
		{"0::/system.slice/docker-" + hexA + ".scope", hexA},
		{"0::/system.slice/docker-" + hexB + ".scope", hexB},
		{"0::/user.slice", ""},
	} {
		p.Cgroup = tt.cgroup
		got, changed := i.round(10)
		if got.Container.ID != tt.container || !changed {
			t.Errorf("%s: in %q, changed %v", tt.cgroup, got.Container.ID, changed)
		}
	}
	p.Cgroup = "0::/user.slice/another"
	if _, changed := i.round(10); changed {
		t.Error("another cgroup that is no container's is another identity")
	}
	if err := os.Remove(filepath.Join(i.host.Root(), "proc/10/cgroup")); err != nil {
		t.Fatal(err)
	}
	i.id.Identify(process(10, p), 0)
	if got, changed := i.id.Identity(10); changed || got.Executable != "app" {
		t.Errorf("a cgroup that cannot be read changed it: %+v", got)
	}
}

func TestTheMemoryOfCgroupsIsBounded(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app"}
	i.host.Processes[10] = p
	for n := range 500 {
		p.Cgroup = fmt.Sprintf("0::/system.slice/docker-%064x.scope", n)
		if got, _ := i.round(10); got.Container.ID != fmt.Sprintf("%064x", n) {
			t.Fatalf("%d: %+v", n, got)
		}
	}
	if most := len(i.id.known) + 1; len(i.id.cgroups) > most {
		t.Errorf("%d cgroups are remembered for %d slots", len(i.id.cgroups), len(i.id.known))
	}
}

func TestHelpersInTheScopeHaveTheHypervisorsMachine(t *testing.T) {
	const scope = `0::/machine.slice/machine-qemu\x2d3\x2dweb.scope`
	i := newIdentified(t, false)
	i.host.Processes[9] = &hostsim.Process{Comm: "swtpm", Exe: "/usr/bin/swtpm", Start: 100, Cgroup: scope}
	if got, _ := i.round(9); got.VM.Name != "web" || got.VM.ID == "" || isUUID(got.VM.ID) {
		t.Errorf("before the hypervisor is seen: %+v", got.VM)
	}
	i.host.Processes[10] = &hostsim.Process{Comm: "qemu-system-x86", Exe: "/usr/bin/qemu-system-x86_64", Start: 200,
		Args: []string{"qemu-system-x86_64", "-name", "guest=web", "-uuid", uuid1}, Cgroup: scope + "/libvirt/emulator"}
	want := identity.VM{ID: uuid1, Name: "web", Hypervisor: "qemu"}
	helper, changed := i.round(9)
	if helper.VM != want || !changed {
		t.Errorf("the helper: %+v, changed %v", helper.VM, changed)
	}
	hypervisor, _ := i.id.Identity(10)
	if hypervisor.VM != want {
		t.Errorf("the hypervisor: %+v", hypervisor.VM)
	}
	i.id.Forget(10)
	delete(i.host.Processes, 10)
	if got, changed := i.round(9); got.VM != want || changed {
		t.Errorf("when the hypervisor is gone: %+v, changed %v", got.VM, changed)
	}
}

func TestAProcessThatExecutesAHypervisorIsAMachineFromThenOn(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh", "start-vm"}}
	i.host.Processes[10] = p
	if got, _ := i.round(10); got.VM != (identity.VM{}) {
		t.Errorf("%+v", got.VM)
	}
	p.Comm, p.Exe, p.Args = "qemu-kvm", "/usr/libexec/qemu-kvm", []string{"qemu-kvm", "-uuid", uuid1}
	if got, changed := i.round(10); got.VM.ID != uuid1 || !changed {
		t.Errorf("%+v, changed %v", got.VM, changed)
	}
	p.Comm, p.Exe, p.Args = "sh", "/bin/sh", []string{"sh"}
	if got, changed := i.round(10); got.VM != (identity.VM{}) || !changed {
		t.Errorf("%+v, changed %v", got.VM, changed)
	}
}

func TestLookingAgainAllocatesNothing(t *testing.T) {
	i := newIdentified(t, true)
	i.host.Processes[10] = &hostsim.Process{Comm: "app", Exe: "/usr/bin/app", Args: []string{"app"}, Cgroup: "0::/system.slice/docker-" + hexA + ".scope"}
	i.host.Processes[11] = &hostsim.Process{Comm: "qemu-kvm", Exe: "/usr/libexec/qemu-kvm", Args: []string{"qemu-kvm", "-uuid", uuid1}}
	i.host.Processes[12] = &hostsim.Process{Comm: "kworker/0:1-eve", Kernel: true}
	i.host.Processes[13] = &hostsim.Process{Comm: "unreadable"}
	i.host.Processes[14] = &hostsim.Process{Comm: "sh", Args: []string{"sh"}}
	i.host.Processes[15] = &hostsim.Process{Comm: "another"}
	i.round(10)
	i.host.Processes[14].Comm, i.host.Processes[14].Args = "java", []string{"java"}
	i.host.Processes[15].Comm = "renamed"
	i.round(10)
	var rows []*proc.Process
	for pid, p := range i.host.Processes {
		rows = append(rows, process(pid, p))
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, p := range rows {
			i.id.Identify(p, 0)
		}
		i.id.Resolve()
		for _, p := range rows {
			i.id.Identity(p.Slot)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestACutCommandLineKeepsNothingOfTheRest(t *testing.T) {
	line := []byte(strings.Repeat("x", 1<<20))
	kept := make([]string, 64)
	for i := range kept {
		kept[i] = joinArguments(line)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 32<<20 {
		t.Errorf("%d MB are in use for %d command lines of %d bytes", m.HeapAlloc>>20, len(kept), len(kept[0]))
	}
	runtime.KeepAlive(kept)
}

func TestAProcessThatMerelyRanIsReadOnceInSomeMinutes(t *testing.T) {
	const second = time.Second
	for name, tt := range map[string]struct {
		now  time.Duration
		edit func(*proc.Process)
		want string
	}{
		"it merely ran":                      {11 * second, func(*proc.Process) {}, "before"},
		"an hour ago":                        {10*second + lookAgain, func(*proc.Process) {}, "after"},
		"the clock went back":                {9 * second, func(*proc.Process) {}, "after"},
		"it executed a program":              {10 * second, func(p *proc.Process) { p.Execs++ }, "after"},
		"it moved":                           {10 * second, func(p *proc.Process) { p.Cgroups++ }, "after"},
		"its cgroup is another one":          {10 * second, func(p *proc.Process) { p.Cgroup++ }, "after"},
		"it has another name":                {11 * second, func(p *proc.Process) { p.Comm[0] = 'x' }, "before"},
		"it has another name since a minute": {10*second + lookSoon, func(p *proc.Process) { p.Comm[0] = 'x' }, "after"},
		"the source no longer reports it":    {10 * second, func(p *proc.Process) { p.Cgroups, p.Execs = 0, 0 }, "after"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIdentified(t, false)
			p := &hostsim.Process{Comm: "app", Exe: "/bin/before", Cgroup: "0::/system.slice/docker-" + hexA + ".scope"}
			i.host.Processes[10] = p
			identify := func(now time.Duration, edit func(*proc.Process)) Identity {
				if err := i.host.Render(); err != nil {
					t.Fatal(err)
				}
				row := process(10, p)
				row.Cgroups, row.Execs = 77, 3
				edit(row)
				i.id.Identify(row, now)
				i.id.Resolve()
				found, _ := i.id.Identity(10)
				return *found
			}
			identify(10*second, func(*proc.Process) {})
			p.Exe, p.Cgroup = "/bin/after", "0::/system.slice/docker-"+hexB+".scope"
			got, container := identify(tt.now, tt.edit), map[string]string{"before": hexA, "after": hexB}[tt.want]
			if got.Executable != tt.want || got.Container.ID != container {
				t.Errorf("%s in %s, want %s in %s", got.Executable, got.Container.ID, tt.want, container)
			}
		})
	}
}

func TestOnlySettledProcessesAreDeferred(t *testing.T) {
	const second = time.Second
	for name, tt := range map[string]struct {
		first, now time.Duration // when it is identified, and when again
		edit       func(*proc.Process)
		want       string
	}{
		"old":                                {settledAge, settledAge + second, func(*proc.Process) {}, "before"},
		"young when it was identified":       {settledAge - second, settledAge + second, func(*proc.Process) {}, "after"},
		"with another name":                  {settledAge, settledAge + second, func(p *proc.Process) { p.Comm[0] = 'x' }, "after"},
		"after the clock went back":          {settledAge + second, settledAge, func(*proc.Process) {}, "after"},
		"of a source that counts executions": {settledAge, settledAge + second, func(p *proc.Process) { p.Cgroups, p.Execs = 77, 1 }, "after"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIdentified(t, false)
			p := &hostsim.Process{Comm: "app", Exe: "/bin/before", Cgroup: "0::/user.slice"}
			i.host.Processes[10] = p
			identify := func(now time.Duration, edit func(*proc.Process)) string {
				require.NoError(t, i.host.Render())
				row := process(10, p)
				edit(row)
				i.id.Identify(row, now)
				found, _ := i.id.Identity(10)
				return found.Executable
			}
			i.id.MayDefer(true)
			require.Equal(t, "before", identify(tt.first, func(*proc.Process) {}), "the first time")
			p.Exe = "/bin/after"
			require.Equal(t, tt.want, identify(tt.now, tt.edit))
			require.Equal(t, tt.want == "before", i.id.IsDeferred(10))
			i.id.MayDefer(false)
			require.Equal(t, "after", identify(tt.now, tt.edit))
			require.False(t, i.id.IsDeferred(10))
		})
	}
}

func TestAProcessWhoseFilesCouldNotBeReadIsReadAgainAtOnce(t *testing.T) {
	for _, missing := range []string{"exe", "cgroup"} {
		t.Run(missing, func(t *testing.T) {
			i := newIdentified(t, false)
			p := &hostsim.Process{Comm: "app", Exe: "/bin/before", Cgroup: "0::/user.slice"}
			i.host.Processes[10] = p
			row := process(10, p)
			row.Cgroups = 77
			if err := i.host.Render(); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(i.host.Root(), "proc/10", missing)); err != nil {
				t.Fatal(err)
			}
			i.id.Identify(row, time.Second)
			p.Exe, p.Cgroup = "/bin/after", "0::/system.slice/docker-"+hexA+".scope"
			if err := i.host.Render(); err != nil {
				t.Fatal(err)
			}
			i.id.Identify(row, time.Second)
			if got, _ := i.id.Identity(10); got.Executable != "after" || got.Container.ID != hexA {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestAProgramThatExecutesItselfAnewHasItsNewCommandLine(t *testing.T) {
	i := newIdentified(t, true)
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app", Args: []string{"app", "one"}}
	i.host.Processes[10] = p
	row := process(10, p)
	for execs, want := range []string{"app one", "app two"} {
		p.Args = strings.Fields(want)
		if err := i.host.Render(); err != nil {
			t.Fatal(err)
		}
		row.Cgroups, row.Execs = 77, uint64(execs)
		i.id.Identify(row, time.Second)
		if got, changed := i.id.Identity(10); got.CommandLine != want || !changed {
			t.Errorf("%q, changed %v, want %q", got.CommandLine, changed, want)
		}
	}
}

// renamers are processes that the test renames before each identification.
func (i *identified) renamers() (rows []*proc.Process) {
	nul := strings.Repeat("\x00", 900_000)
	for pid, p := range map[int]hostsim.Process{
		10: {Comm: "app", Exe: "/bin/app", Args: []string{"app", nul}},
		11: {Comm: "app", Args: []string{nul, "x"}},
		12: {Comm: "qemu-kvm", Exe: "/usr/libexec/qemu-kvm", Args: []string{"qemu-kvm", strings.Repeat("a\x00", 400_000)}},
		13: {Comm: "kworker/0:1", Kernel: true},
	} {
		i.host.Processes[pid] = &p
		rows = append(rows, process(pid, &p))
	}
	return rows
}

func TestRenamingAllocatesNothing(t *testing.T) {
	for _, counted := range []bool{false, true} {
		for _, wanted := range []bool{false, true} {
			i := newIdentified(t, wanted)
			rows := i.renamers()
			i.round(10)
			now, names := time.Duration(0), byte(0)
			look := func() {
				now, names = now+10*time.Second, names+1
				for _, p := range rows {
					if !p.Is(proc.Kernel) {
						p.Comm[0] = 'a' + names%2
					}
					if counted {
						p.Cgroups, p.Execs = 77, 3
					}
					i.id.Identify(p, now)
				}
				i.id.Resolve()
			}
			look()
			if n := testing.AllocsPerRun(100, look); n > 0 {
				t.Errorf("counted %v, command line wanted %v: %v allocations", counted, wanted, n)
			}
		}
	}
}

// bytesRead returns how many bytes of each file of the host are read while f runs.
func (i *identified) bytesRead(f func()) map[string]int {
	read := map[string]int{}
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if rest, ok := strings.CutPrefix(path, i.host.Root()); ok {
			read[filepath.Base(rest)] += len(got)
		}
		return got, err
	})
	defer restore()
	f()
	return read
}

func TestTheCommandLineIsReadOnlyOfHypervisors(t *testing.T) {
	for _, c := range []struct {
		name    string
		process hostsim.Process
		wanted  bool
		want    int
	}{
		{"a program", hostsim.Process{Comm: "app", Exe: "/bin/app"}, false, 0},
		{"a program whose command line is wanted", hostsim.Process{Comm: "app", Exe: "/bin/app"}, true, maxText + 1},
		{"a program that cannot be read", hostsim.Process{Comm: "app"}, false, maxText + 1},
		{"a program that calls itself a hypervisor", hostsim.Process{Comm: "qemu-kvm", Exe: "/bin/app"}, false, 0},
		{"a hypervisor", hostsim.Process{Comm: "kvm", Exe: "/bin/kvm"}, false, 64 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := newIdentified(t, c.wanted)
			c.process.Args = []string{"app", strings.Repeat("\x00", 900_000), "x"}
			i.host.Processes[10] = &c.process
			got := i.bytesRead(func() { i.round(10) })["cmdline"]
			// Reads to find the length count, too.
			if got < c.want || got > 2*c.want {
				t.Errorf("%d bytes were read, want %d", got, c.want)
			}
			c.process.Comm = "renamed"
			again := i.bytesRead(func() { i.round(10) })["cmdline"]
			if most := min(c.want, maxText+1); again > most {
				t.Errorf("%d bytes were read when it had renamed itself, want %d at most", again, most)
			}
		})
	}
}

func TestAProcessThatRenamesItselfIsReadAsSeldomAsOneThatDoesNot(t *testing.T) {
	i := newIdentified(t, false)
	rows := i.renamers()
	now := 10 * time.Second
	look := func() {
		now += 10 * time.Second
		for _, p := range rows {
			p.Cgroups, p.Execs = 77, 3
			p.Comm[0]++
			i.id.Identify(p, now)
		}
	}
	for range maxAttempts {
		i.round(10)
		look()
	}
	links := 0
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasPrefix(path, i.host.Root()) && strings.HasSuffix(path, "/exe") {
			links++
		}
		return got, err
	})
	defer restore()
	for range 60 { // ten minutes
		look()
	}
	if most := 3 * int(10*time.Minute/lookSoon+1); links > most {
		t.Errorf("three processes were looked at %d times in ten minutes, want %d at most", links, most)
	}
}

// However far apart the scans are, hardly any of them reads a file of a process that has not
// changed.
func TestProcessesThatStayTheSameAreLookedAtOnceAnHour(t *testing.T) {
	const processes, scans = 200, 100
	for _, interval := range []time.Duration{time.Second, 10 * time.Second} {
		i := newIdentified(t, false)
		var rows []*proc.Process
		for pid := 10; pid < 10+processes; pid++ {
			p := &hostsim.Process{Comm: "app", Exe: "/bin/app"}
			i.host.Processes[pid] = p
			row := process(pid, p)
			row.Cgroups, row.Execs = 77, 3
			rows = append(rows, row)
		}
		if err := i.host.Render(); err != nil {
			t.Fatal(err)
		}
		now, looks := lookAgain, 0
		scan := func() {
			now += interval
			for _, p := range rows {
				i.id.Identify(p, now)
			}
		}
		scan()
		restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
			if strings.HasPrefix(path, i.host.Root()) && strings.HasSuffix(path, "/exe") {
				looks++
			}
			return got, err
		})
		for range scans {
			scan()
		}
		restore()
		if most := 2 * processes * scans * int(interval/time.Second) / int(lookAgain/time.Second); looks > most {
			t.Errorf("%d processes were looked at %d times in %d scans %v apart, want %d at most", processes, looks, scans, interval, most)
		}
	}
}

func TestAHypervisorThatRenamesItselfIsReadOnceAMinuteWhereExecutionsAreNotCounted(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "a", Exe: "/bin/kvm"}
	i.host.Processes[10] = p
	now := 10 * time.Second
	look := func(n int) {
		now += 10 * time.Second
		p.Comm = string(rune('a' + n%2))
		p.Args = []string{strconv.Itoa(n), strings.Repeat("x", 100_000), "-uuid", uuid1}
		if n == 60 {
			p.Args = []string{"kvm", "-uuid", uuid2}
		}
		if err := i.host.Render(); err != nil {
			t.Fatal(err)
		}
		i.id.Identify(process(10, p), now)
	}
	look(0)
	read := i.bytesRead(func() {
		for n := range 60 { // ten minutes
			look(n)
		}
	})["cmdline"]
	if most := int(10*time.Minute/lookSoon+1) * (maxFile + maxText + 1); read > most {
		t.Errorf("%d bytes were read in ten minutes, want %d at most", read, most)
	}
	look(60)
	now += lookSoon
	look(60)
	i.id.Resolve()
	if got, _ := i.id.Identity(10); got.VM.ID != uuid2 {
		t.Errorf("%+v", got.VM)
	}
}

func TestProcessesAreNotAllLookedAtAgainTogether(t *testing.T) {
	const processes = 1000
	due := map[time.Duration]int{}
	for slot := range int32(processes) {
		const seen = time.Hour + 3*time.Second
		next := nextLook(slot, seen)
		if next <= seen || next > seen+lookAgain {
			t.Fatalf("slot %d: %v after %v", slot, next, seen)
		}
		if after := nextLook(slot, next); after != next+lookAgain {
			t.Fatalf("slot %d: %v after %v", slot, after, next)
		}
		due[next/(lookAgain/30)]++
	}
	for at, n := range due {
		if n > 2*processes/30 {
			t.Errorf("%d of %d in a thirtieth of the time, number %d", n, processes, at)
		}
	}
}

// If the source counts executions, another command line or name alone is no execution.
func TestAnExecOfAnUnreadableProgramIsDetectedByTheExecCount(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh"}}
	i.host.Processes[10] = p
	row := process(10, p)
	row.Cgroups, row.Execs = 77, 3
	look := func(comm string, execs uint64) Identity {
		if err := i.host.Render(); err != nil {
			t.Fatal(err)
		}
		row.Comm, row.Execs = proc.Comm{}, execs
		copy(row.Comm[:], comm)
		restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
			if strings.HasPrefix(path, i.host.Root()) && strings.HasSuffix(path, "/exe") && p.Exe == "" {
				return nil, fs.ErrPermission
			}
			return got, err
		})
		defer restore()
		i.id.Identify(row, 0)
		got, _ := i.id.Identity(10)
		return *got
	}
	look("sh", 3)
	p.Exe, p.Args = "", []string{"sudo"}
	if got := look("sudo", 3); got.Path != "/bin/sh" {
		t.Errorf("%+v", got)
	}
	if got := look("sudo", 4); got.Path != "" || got.Executable != "sudo" {
		t.Errorf("%+v", got)
	}
	if got := look("renamed", 4); got.Executable != "sudo" {
		t.Errorf("%+v", got)
	}
}

func TestProcessesInACgroupShareItsTextAndTheirPlacement(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	i.in(10, "0::/system.slice/docker-"+hexA+".scope")
	i.in(11, "0::/system.slice/docker-"+hexA+".scope")
	assert.Same(t, i.id.known[10].in, i.id.known[11].in)
	assert.Same(t, i.id.known[10].placed, i.id.known[11].placed)
}
