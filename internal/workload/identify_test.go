// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
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
	t.Cleanup(func() { assert.NoError(t, i.id.Close()) })
	return i
}

// process returns a process as a scan shows it.
func process(pid int, p *hostsim.Process) *proc.Process {
	q := &proc.Process{Slot: int32(pid), Sight: proc.Sight{ID: proc.ID{PID: int32(pid), Start: time.Duration(p.Start) * hostsim.Tick}}}
	if p.Kernel {
		q.Flags |= proc.Kernel
	}
	copy(q.Comm[:15], p.Comm)
	return q
}

// counted returns a process as a source shows it that counts executions and moves.
func counted(pid int, p *hostsim.Process) *proc.Process {
	q := process(pid, p)
	q.Cgroups, q.Execs = 77, 3
	return q
}

// round identifies all processes and returns the identity of the process with this PID.
func (i *identified) round(pid int) (Identity, bool) {
	i.t.Helper()
	require.NoError(i.t, i.host.Render())
	for pid, p := range i.host.Processes {
		i.id.Identify(process(pid, p), 0)
	}
	i.id.Resolve()
	found, changed := i.id.Identity(int32(pid))
	return *found, changed
}

// look identifies a process at a time and returns its identity.
func (i *identified) look(p *proc.Process, now time.Duration) (Identity, bool) {
	i.t.Helper()
	require.NoError(i.t, i.host.Render())
	i.id.Identify(p, now)
	i.id.Resolve()
	found, changed := i.id.Identity(p.Slot)
	return *found, changed
}

// bytesRead returns how many bytes of each file of the host are read while f runs.
func (i *identified) bytesRead(f func()) map[string]int {
	read := map[string]int{}
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if rest, ok := strings.CutPrefix(path, i.host.Root()); ok {
			read[filepath.Base(rest)] += len(got)
		}
		return got, err
	})()
	f()
	return read
}

// ran is the identity of a process that executes the file at a path.
func ran(file, line string) Identity {
	return Identity{Executable: path.Base(file), Path: file, CommandLine: line}
}

// unreadable is the identity of a process whose executable cannot be read.
func unreadable(name, line string) Identity { return Identity{Executable: name, CommandLine: line} }

// step is the state of a process and its identity.
type step struct {
	process hostsim.Process
	want    Identity
}

// histories are the states of processes in successive scans.
func histories() map[string][]step {
	type p = hostsim.Process
	inDocker := ran("/bin/app", "")
	inDocker.Placement = contained(hexA, "docker", "/system.slice/docker-"+hexA+".scope")
	return map[string][]step{
		"an executable":               {{p{Comm: "worker-7", Exe: "/usr/bin/app"}, ran("/usr/bin/app", "")}},
		"one that was deleted":        {{p{Comm: "app", Exe: "/usr/bin/app (deleted)"}, ran("/usr/bin/app", "")}},
		"one in memory":               {{p{Comm: "6", Exe: "/memfd:runc (deleted)"}, ran("/memfd:runc", "")}},
		"one that is not UTF-8":       {{p{Comm: "app", Exe: "/usr/bin/\xffapp"}, ran("/usr/bin/\uFFFDapp", "")}},
		"one that cannot be read":     {{p{Comm: "app"}, unreadable("app", "")}},
		"a name that is not UTF-8":    {{p{Comm: "a\xffb"}, unreadable("a\uFFFDb", "")}},
		"a kernel thread":             {{p{Comm: "ksoftirqd/0", Kernel: true}, unreadable("ksoftirqd/0", "")}},
		"a worker":                    {{p{Comm: "kworker/0:1", Kernel: true}, unreadable("kworker/0:1", "")}},
		"a worker at work":            {{p{Comm: "kworker/0:1-eve", Kernel: true}, unreadable("kworker/0:1", "")}},
		"a worker that runs now":      {{p{Comm: "kworker/u8:2+fl", Kernel: true}, unreadable("kworker/u8:2", "")}},
		"a worker of high priority":   {{p{Comm: "kworker/3:1H-kb", Kernel: true}, unreadable("kworker/3:1H", "")}},
		"a rescuer":                   {{p{Comm: "kworker/R-rcu_g", Kernel: true}, unreadable("kworker/R-rcu_g", "")}},
		"a program named like one":    {{p{Comm: "kworker/0:1-eve", Exe: "/tmp/kworker"}, ran("/tmp/kworker", "")}},
		"a kernel thread's arguments": {{p{Comm: "x", Kernel: true, Args: []string{"/usr/bin/qemu-kvm"}}, unreadable("x", "")}},
		"a container":                 {{p{Comm: "app", Exe: "/bin/app", Cgroup: "0::" + inDocker.Cgroup + "/sub"}, inDocker}},

		"it executes another program": {
			{p{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh", "-c", "exec app"}}, ran("/bin/sh", "sh -c exec app")},
			{p{Comm: "app", Exe: "/bin/app", Args: []string{"app", "--serve"}}, ran("/bin/app", "app --serve")},
		},
		"it executes the same file under another name": {
			{p{Comm: "sh", Exe: "/bin/busybox", Args: []string{"sh"}}, ran("/bin/busybox", "sh")},
			{p{Comm: "sleep", Exe: "/bin/busybox", Args: []string{"sleep", "5"}}, ran("/bin/busybox", "sleep 5")},
		},
		"it renames itself": {
			{p{Comm: "app", Exe: "/usr/bin/app", Args: []string{"app"}}, ran("/usr/bin/app", "app")},
			{p{Comm: "app: idle", Exe: "/usr/bin/app", Args: []string{"app"}}, ran("/usr/bin/app", "app")},
		},
		// A collector without root cannot read the executables of other users' processes. Entrypoints
		// of containers execute the container's program.
		"it executes another program, and neither can be read": {
			{p{Comm: "entrypoint.sh", Args: []string{"/bin/sh", "/entrypoint.sh", "java"}}, unreadable("entrypoint.sh", "/bin/sh /entrypoint.sh java")},
			{p{Comm: "java", Args: []string{"java", "-jar"}}, unreadable("java", "java -jar")},
			{p{Comm: "GC Thread#0", Args: []string{"java", "-jar"}}, unreadable("java", "java -jar")}, // renamed
			{p{Comm: "GC Thread#0", Args: []string{"java: idle"}}, unreadable("java", "java -jar")},   // it has set its title
			{p{Comm: "app", Args: []string{"app"}}, unreadable("app", "app")},
		},
		"it executes a program that cannot be read": {
			{p{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh"}}, ran("/bin/sh", "sh")},
			{p{Comm: "sudo", Args: []string{"sudo", "-s"}}, unreadable("sudo", "sudo -s")},
			{p{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh"}}, ran("/bin/sh", "sh")},
		},
		// The kernel sets a task's name before it has set up the new command line.
		"it is executing another program": {
			{p{Comm: "entrypoint.sh", Args: []string{"/bin/sh", "/entrypoint.sh"}}, unreadable("entrypoint.sh", "/bin/sh /entrypoint.sh")},
			{p{Comm: "java"}, unreadable("entrypoint.sh", "/bin/sh /entrypoint.sh")},
			{p{Comm: "java", Args: []string{"java"}}, unreadable("java", "java")},
		},
		"its executable becomes unreadable": {
			{p{Comm: "app", Exe: "/usr/bin/app"}, ran("/usr/bin/app", "")},
			{p{Comm: "else"}, ran("/usr/bin/app", "")},
		},
		"its executable becomes readable": {
			{p{Comm: "task"}, unreadable("task", "")},
			{p{Comm: "task", Exe: "/usr/bin/app"}, ran("/usr/bin/app", "")},
		},
	}
}

func TestIdentityFollowsTheProcess(t *testing.T) {
	for name, steps := range histories() {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, command line %v", name, wanted), func(t *testing.T) {
				i := newIdentified(t, wanted)
				var before Identity
				for n, s := range steps {
					if !wanted {
						s.want.CommandLine = ""
					}
					i.host.Processes[10] = &s.process
					got, changed := i.round(10)
					assert.Equal(t, s.want, got, "step %d", n)
					assert.Equal(t, s.want != before, changed, "step %d changes it", n)
					_, changed = i.round(10)
					assert.False(t, changed, "nothing happened after step %d", n)
					before = s.want
				}
			})
		}
	}
}

func TestAReusedSlotStartsEmpty(t *testing.T) {
	i := newIdentified(t, true)
	i.host.Processes[10] = &hostsim.Process{Comm: "qemu-kvm", Exe: "/usr/libexec/qemu-kvm", Args: []string{"qemu-kvm", "-name", "a"},
		Cgroup: "0::/system.slice/docker-" + hexA + ".scope"}
	got, _ := i.round(10)
	require.NotEmpty(t, got.VM.ID)
	require.NotEmpty(t, got.Container.ID)
	i.id.Forget(10)
	i.host.Processes[10] = &hostsim.Process{Comm: "app"}
	got, changed := i.round(10)
	assert.Equal(t, unreadable("app", ""), got)
	assert.True(t, changed)
	i.id.Forget(99_999) // never seen
}

func TestCommandLinesAreJoinedAndBounded(t *testing.T) {
	long := strings.Repeat("x", maxText)
	cut := long[:maxText-len(ellipsis)] + ellipsis
	for line, want := range map[string]string{
		"app\x00--a b\x00\x00": "app --a b",
		"":                     "",
		"a\xff\x00b\x00":       "a\uFFFD b",
		long + "\x00":          long,
		long + "y":             cut,
		"nginx: worker process\x00\x00\x00\x00\x00\x00\x00": "nginx: worker process",
	} {
		got := joinArguments([]byte(line))
		assert.Equal(t, want, got)
		assert.True(t, utf8.ValidString(got) && len(got) <= maxText)
	}
}

func TestTheCgroupIsReadAgain(t *testing.T) {
	i := newIdentified(t, false)
	i.in(10, "")
	for cgroup, container := range map[string]string{
		"0::/system.slice/docker-" + hexA + ".scope": hexA, "0::/system.slice/docker-" + hexB + ".scope": hexB, "0::/docker/" + hexC: hexC,
	} {
		i.host.Processes[10].Cgroup = cgroup
		got, changed := i.round(10)
		assert.Equal(t, container, got.Container.ID)
		assert.True(t, changed)
	}
	assert.Empty(t, i.in(10, "0::/user.slice").ID)
	i.host.Processes[10].Cgroup = "0::/user.slice/another"
	_, changed := i.round(10)
	assert.False(t, changed, "another cgroup outside of containers is the same identity")
	require.NoError(t, os.Remove(filepath.Join(i.host.Root(), "proc/10/cgroup")))
	i.id.Identify(process(10, i.host.Processes[10]), 0)
	got, changed := i.id.Identity(10)
	assert.False(t, changed, "a cgroup that cannot be read")
	assert.Equal(t, "app", got.Executable)
}

func TestTheMemoryOfCgroupsIsBounded(t *testing.T) {
	i := newIdentified(t, false)
	for n := range 100 {
		container := fmt.Sprintf("%064x", n)
		require.Equal(t, container, i.in(10, "0::/docker/"+container).ID)
	}
	assert.LessOrEqual(t, len(i.id.cgroups), len(i.id.known)+1)
}

func TestHelpersInTheScopeHaveTheHypervisorsMachine(t *testing.T) {
	const scope = `/machine.slice/machine-qemu\x2d3\x2dvm.scope`
	i := newIdentified(t, false)
	i.host.Processes[9] = &hostsim.Process{Comm: "swtpm", Exe: "/usr/bin/swtpm", Start: 100, Cgroup: "0::" + scope}
	got, _ := i.round(9)
	assert.Equal(t, identity.VM{ID: "machine-qemu-3-vm", Name: "vm", Hypervisor: "qemu"}, got.VM, "before the hypervisor is seen")
	i.hypervisor(10, 200, scope+"/libvirt/emulator", uuid1)
	want := identity.VM{ID: uuid1, Name: "vm", Hypervisor: "qemu"}
	got, changed := i.round(9)
	assert.Equal(t, want, got.VM)
	assert.True(t, changed)
	hypervisor, _ := i.id.Identity(10)
	assert.Equal(t, want, hypervisor.VM)
	i.end(10)
	got, changed = i.round(9)
	assert.Equal(t, want, got.VM, "the hypervisor exited")
	assert.False(t, changed)
}

func TestAProcessThatExecutesAHypervisorIsAMachineFromThenOn(t *testing.T) {
	i := newIdentified(t, false)
	shell := hostsim.Process{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh", "start-vm"}}
	hypervisor := hostsim.Process{Comm: "qemu-kvm", Exe: "/usr/libexec/qemu-kvm", Args: []string{"qemu-kvm", "-uuid", uuid1}}
	for _, s := range []struct {
		process hostsim.Process
		want    string
	}{{shell, ""}, {hypervisor, uuid1}, {shell, ""}} {
		i.host.Processes[10] = &s.process
		got, changed := i.round(10)
		assert.Equal(t, s.want, got.VM.ID)
		assert.True(t, changed)
	}
}

func TestLookingAgainAllocatesNothing(t *testing.T) {
	i := newIdentified(t, true)
	i.host.Processes = map[int]*hostsim.Process{
		10: {Comm: "app", Exe: "/usr/bin/app", Args: []string{"app"}, Cgroup: "0::/system.slice/docker-" + hexA + ".scope"},
		11: {Comm: "qemu-kvm", Exe: "/usr/libexec/qemu-kvm", Args: []string{"qemu-kvm", "-uuid", uuid1}},
		12: {Comm: "kworker/0:1-eve", Kernel: true},
		13: {Comm: "unreadable"},
		14: {Comm: "sh", Args: []string{"sh"}},
		15: {Comm: "another"},
	}
	i.round(10)
	i.host.Processes[14].Comm, i.host.Processes[14].Args = "java", []string{"java"}
	i.host.Processes[15].Comm = "renamed"
	i.round(10)
	var rows []*proc.Process
	for pid, p := range i.host.Processes {
		rows = append(rows, process(pid, p))
	}
	assert.Zero(t, allocs.Count(100, func() {
		for _, p := range rows {
			i.id.Identify(p, 0)
		}
		i.id.Resolve()
		for _, p := range rows {
			i.id.Identity(p.Slot)
		}
	}))
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
	assert.Less(t, m.HeapAlloc, uint64(32<<20))
	runtime.KeepAlive(kept)
}

func TestAProcessWhoseFilesCouldNotBeReadIsReadAgainAtOnce(t *testing.T) {
	for _, missing := range []string{"exe", "cgroup"} {
		i := newIdentified(t, false)
		p := &hostsim.Process{Comm: "app", Exe: "/bin/before", Cgroup: "0::/user.slice"}
		i.host.Processes[10] = p
		require.NoError(t, i.host.Render())
		require.NoError(t, os.Remove(filepath.Join(i.host.Root(), "proc/10", missing)))
		i.id.Identify(counted(10, p), time.Second)
		p.Exe, p.Cgroup = "/bin/after", "0::/docker/"+hexA
		got, _ := i.look(counted(10, p), time.Second)
		assert.Equal(t, "after", got.Executable, missing)
		assert.Equal(t, hexA, got.Container.ID, missing)
	}
}

func TestAProgramThatExecutesItselfAnewHasItsNewCommandLine(t *testing.T) {
	i := newIdentified(t, true)
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app"}
	i.host.Processes[10] = p
	row := counted(10, p)
	for _, want := range []string{"app one", "app two"} {
		p.Args = strings.Fields(want)
		row.Execs++
		got, changed := i.look(row, time.Second)
		assert.Equal(t, want, got.CommandLine)
		assert.True(t, changed)
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
	i.round(10)
	return rows
}

func TestRenamingAllocatesNothing(t *testing.T) {
	for _, isCounted := range []bool{false, true} {
		for _, wanted := range []bool{false, true} {
			i := newIdentified(t, wanted)
			rows := i.renamers()
			now, names := time.Duration(0), byte(0)
			look := func() {
				now, names = now+10*time.Second, names+1
				for _, p := range rows {
					if !p.Is(proc.Kernel) {
						p.Comm[0] = 'a' + names%2
					}
					if isCounted {
						p.Cgroups, p.Execs = 77, 3
					}
					i.id.Identify(p, now)
				}
				i.id.Resolve()
			}
			look()
			assert.Zero(t, allocs.Count(100, look), "counted %v, command line wanted %v", isCounted, wanted)
		}
	}
}

func TestTheCommandLineIsReadOnlyOfHypervisors(t *testing.T) {
	for name, c := range map[string]struct {
		process hostsim.Process
		wanted  bool
		want    int
	}{
		"a program":                                {hostsim.Process{Comm: "app", Exe: "/bin/app"}, false, 0},
		"a program whose command line is wanted":   {hostsim.Process{Comm: "app", Exe: "/bin/app"}, true, maxText + 1},
		"a program that cannot be read":            {hostsim.Process{Comm: "app"}, false, maxText + 1},
		"a program that calls itself a hypervisor": {hostsim.Process{Comm: "qemu-kvm", Exe: "/bin/app"}, false, 0},
		"a hypervisor":                             {hostsim.Process{Comm: "kvm", Exe: "/bin/kvm"}, false, maxFile},
	} {
		i := newIdentified(t, c.wanted)
		c.process.Args = []string{"app", strings.Repeat("\x00", 900_000), "x"}
		i.host.Processes[10] = &c.process
		got := i.bytesRead(func() { i.round(10) })["cmdline"]
		assert.GreaterOrEqual(t, got, c.want, name)
		assert.LessOrEqual(t, got, 2*c.want, "%s: reads to find the length count as well", name)
		c.process.Comm = "renamed"
		assert.LessOrEqual(t, i.bytesRead(func() { i.round(10) })["cmdline"], min(c.want, maxText+1), "%s, renamed", name)
	}
}

func TestAHypervisorThatRenamesItselfIsReadOnceAMinuteIfExecutionsAreNotCounted(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "a", Exe: "/bin/kvm"}
	i.host.Processes[10] = p
	now := 10 * time.Second
	look := func(n int, args ...string) string {
		now += 10 * time.Second
		p.Comm, p.Args = string(rune('a'+n%2)), append([]string{strconv.Itoa(n)}, args...)
		got, _ := i.look(process(10, p), now)
		return got.VM.ID
	}
	long := []string{strings.Repeat("x", 100_000), "-uuid", uuid1}
	look(0, long...)
	read := i.bytesRead(func() {
		for n := range 60 { // ten minutes
			look(n, long...)
		}
	})["cmdline"]
	assert.LessOrEqual(t, read, int(10*time.Minute/lookSoon+1)*(maxFile+maxText+1))
	look(60, "-uuid", uuid2)
	now += lookSoon
	assert.Equal(t, uuid2, look(60, "-uuid", uuid2))
}

// If the source counts executions, another command line or name alone is not an execution.
func TestAnExecOfAnUnreadableProgramIsDetectedByTheExecCount(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "sh", Exe: "/bin/sh", Args: []string{"sh"}}
	i.host.Processes[10] = p
	look := func(comm string, execs uint64) string {
		defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
			if strings.HasPrefix(path, i.host.Root()) && strings.HasSuffix(path, "/exe") && p.Exe == "" {
				return nil, fs.ErrPermission
			}
			return got, err
		})()
		row := counted(10, p)
		row.Comm, row.Execs = proc.Comm{}, execs
		copy(row.Comm[:], comm)
		got, _ := i.look(row, 0)
		return got.Executable
	}
	look("sh", 3)
	p.Exe, p.Args = "", []string{"sudo"}
	assert.Equal(t, "sh", look("sudo", 3))
	assert.Equal(t, "sudo", look("sudo", 4))
	assert.Equal(t, "sudo", look("renamed", 4))
}

func TestProcessesInACgroupShareItsTextAndTheirPlacement(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	i.in(10, "0::/system.slice/docker-"+hexA+".scope")
	i.in(11, "0::/system.slice/docker-"+hexA+".scope")
	assert.Same(t, i.id.known[10].in, i.id.known[11].in)
	assert.Same(t, i.id.known[10].placed, i.id.known[11].placed)
}

func TestSkippedProcessesAreDeferred(t *testing.T) {
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "app", Exe: "/bin/before"}
	i.host.Processes[10] = p
	i.id.MayDefer(true)
	i.look(process(10, p), settledAge)
	p.Exe = "/bin/after"
	got, _ := i.look(process(10, p), settledAge+time.Second)
	assert.Equal(t, "before", got.Executable)
	assert.True(t, i.id.IsDeferred(10))
	i.id.MayDefer(false)
	got, _ = i.look(process(10, p), settledAge+time.Second)
	assert.Equal(t, "after", got.Executable)
	assert.False(t, i.id.IsDeferred(10))
}

func TestProcessesKeepTheirIdentitiesWhenTheTableShrinks(t *testing.T) {
	i := newIdentified(t, false)
	i.hypervisor(30, 100, "/docker/"+hexA, uuid1)
	want, _ := i.round(30)
	i.id.Shrink([]int32{1, 30, 99})
	i.id.Resolve()
	got, changed := i.id.Identity(1)
	assert.Equal(t, want, *got)
	assert.False(t, changed)
	assert.Len(t, i.id.known, 3)
	assert.Empty(t, i.id.ProcessCgroup(2), "the slot is empty")
}
