// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"
)

// attackConfig sends to a backend without a queue, so that the receiver gets the response of each
// request.
const attackConfig = receiverConfig + `
exporters:
  otlp_http:
    endpoint: BACKEND
    compression: none
    sending_queue: {enabled: false}
    retry_on_failure: {enabled: false}
service:
  telemetry: {metrics: {level: none}, logs: {encoding: json, sampling: {enabled: false}}}
  pipelines:
    metrics: {receivers: [energy], exporters: [otlp_http]}
`

// attacked is a collector under attack and its backend.
type attacked struct {
	*collector
	*backend
	requests []pmetric.Metrics // acknowledged, not yet in parsed; guarded by backend.mu
	parsed   []emission        // one for each collection
}

// attack starts a collector whose command line has a prefix, and returns when its backend has the
// first collection.
func attack(t *testing.T, source string, before ...string) *attacked {
	t.Helper()
	a := startAttackedWith(t, attackConfig, source, before...)
	a.takes(t, 1)
	return a
}

// startAttackedWith starts a collector with a configuration, after replacing SOURCE and BACKEND.
func startAttackedWith(t *testing.T, text, source string, before ...string) *attacked {
	t.Helper()
	dir := filepath.Join(cache(t), strings.ToLower(strings.NewReplacer("/", "-", "Test", "").Replace(t.Name())))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	a := &attacked{collector: &collector{log: filepath.Join(dir, source+".log")}, backend: startBackend(t)}
	a.taking = func(md pmetric.Metrics) { a.requests = append(a.requests, md) }
	config := filepath.Join(t.TempDir(), "config.yaml")
	text = strings.NewReplacer("SOURCE", source, "BACKEND", "http://"+a.address).Replace(text)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	args := append(append([]string(nil), before...), collectorBinary(t), "--config", config)
	a.cmd = exec.Command(args[0], args[1:]...)
	a.ended = startDaemon(t, a.cmd, a.log)
	return a
}

// takes waits until the backend has acknowledged more collections.
func (a *attacked) takes(t *testing.T, more int) {
	t.Helper()
	want := len(a.collections(t)) + more
	eventually(t, "the backend has new collections, the log is in "+a.log, func() bool {
		require.Falsef(t, a.hasEnded(), "the collector ended, its log is in %s", a.log)
		return len(a.collections(t)) >= want
	})
}

// collections returns the collections that the backend has acknowledged. Each begins with the part
// that has the node's metrics.
func (a *attacked) collections(t *testing.T) []emission {
	t.Helper()
	a.mu.Lock()
	more := a.requests
	a.requests = nil
	a.mu.Unlock()
	for _, md := range more {
		text, err := new(pmetric.JSONMarshaler).MarshalMetrics(md)
		require.NoError(t, err)
		e := parseEmission(t, text)
		first := slices.ContainsFunc(e, func(p point) bool { return strings.HasPrefix(p.metric, "system.") })
		if n := len(a.parsed); n > 0 && !first {
			a.parsed[n-1] = append(a.parsed[n-1], e...)
			continue
		}
		a.parsed = append(a.parsed, e)
	}
	return a.parsed
}

// requireBalance stops the collector and checks that the backend has all energy.
func (a *attacked) requireBalance(t *testing.T) []emission {
	t.Helper()
	a.stop(t)
	all := a.collections(t)
	requireBalance(t, all, "package")
	return all
}

// cpu returns the CPU time of the collector.
func (a *attacked) cpu(t *testing.T) time.Duration { return processCPU(t, a.cmd.Process.Pid) }

func processCPU(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks time.Duration
	for _, f := range fields[11:13] { // utime and stime, proc_pid_stat(5)
		n, err := strconv.Atoi(f)
		require.NoError(t, err)
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// startHostile starts a program n times with arguments, and waits until all run.
func startHostile(t *testing.T, program, what string, n int, args func(i int) []string) (pids []int) {
	t.Helper()
	for i := range n {
		cmd := exec.Command(program, args(i)...)
		cmd.Env = append(os.Environ(), "HOSTILE="+what, "GOMAXPROCS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoErrorf(t, err, "%s printed %q", program, line)
		pids = append(pids, cmd.Process.Pid)
	}
	return pids
}

func none(int) []string { return nil }

// copyAs copies a program to another name.
func copyAs(t *testing.T, program, name string) string {
	t.Helper()
	content, err := os.ReadFile(program)
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(to, content, 0o755))
	return to
}

// sources runs an attack with BPF and procfs, and with more CPU time sources.
func sources(t *testing.T, test func(t *testing.T, source string), more ...string) {
	need(t)
	for _, source := range append([]string{"bpf", "procfs"}, more...) {
		t.Run(source, func(t *testing.T) { test(t, source) })
	}
}

// 33 processes have the arguments of virtual machines with names of 130 kB each. Without a limit on
// names, all backends refuse such collections.
func TestAttackNamesWithoutBounds(t *testing.T) {
	sources(t, func(t *testing.T, source string) {
		a := attack(t, source)
		machine := copyAs(t, build(t, "hostile"), "qemu-system-x86_64")
		startHostile(t, machine, "idle", 33, func(i int) []string {
			return []string{"-name", fmt.Sprintf("guest=%d-", i) + strings.Repeat("ä", 65_000)}
		})
		a.takes(t, 5)
		all := a.requireBalance(t)
		assert.Zero(t, a.refusals(), "requests over the size limit")
		assert.LessOrEqual(t, a.largestRequest(), maxMessage/2, "bytes of the largest request")
		machines := map[string]bool{}
		for _, e := range all {
			for _, p := range e {
				for key, value := range p.attributes {
					bound := 256
					if key == "process.executable.path" {
						bound = 4096
					}
					if len(value) > bound || !utf8.ValidString(value) {
						t.Fatalf("%s has %d bytes", key, len(value))
					}
				}
				if p.metric == "vm.energy" && strings.HasSuffix(p.attributes["vm.name"], "…") {
					machines[p.series] = true
				}
			}
		}
		assert.Len(t, machines, 33)
	})
}

// A user that names a cgroup like a container gets no part of the container's energy, and does not
// add to it.
func TestAttackForgedContainer(t *testing.T) {
	sources(t, func(t *testing.T, source string) {
		load := build(t, "load")
		sum := sha256.Sum256([]byte(t.Name()))
		id := hex.EncodeToString(sum[:])
		a := attack(t, source)
		genuine := startIn(t, "docker/"+id, load, "burn", "20", "1.5")
		forged := startIn(t, "user.slice/user-4711.slice/user@4711.service/app.slice/docker-"+id+".scope", load, "burn", "20", "1.5")
		forgedPod := "5c1f7e0a_93b4_4a6d_8e21_b7d06f3c9a18"
		inPod := startIn(t, "user.slice/user-4711.slice/user@4711.service/kubepods.slice/kubepods-pod"+forgedPod+".slice/cri-containerd-"+id+".scope",
			load, "burn", "20", "1.5")
		for _, cmd := range []*process{genuine, forged, inPod} {
			cmd.waitDone(t)
		}
		a.takes(t, 2)
		all := a.requireBalance(t)
		assert.InDelta(t, 1.5, total(all, "container.cpu.time", "container.id="+id, "container.runtime.name=docker"), 0.2,
			"seconds of the real container")
		assert.Zero(t, total(all, "k8s.pod.energy", "k8s.pod.uid="+strings.ReplaceAll(forgedPod, "_", "-")), "a pod outside kubepods")
	}, "clocks")
}

// process is a process that a test has started in a cgroup.
type process struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

// startIn starts a program in a new cgroup of every hierarchy. The cgroups are removed at the end
// of the test.
func startIn(t *testing.T, cgroup, program string, args ...string) *process {
	t.Helper()
	var files []string
	for _, hierarchy := range hierarchies(t) {
		dir := hierarchy
		for _, name := range strings.Split(cgroup, "/") {
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				require.ErrorIs(t, err, os.ErrExist)
				continue
			}
			for _, set := range []string{"cpuset.cpus", "cpuset.mems"} { // empty at first in version 1
				if value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), set)); err == nil {
					_ = os.WriteFile(filepath.Join(dir, set), value, 0)
				}
			}
			made := dir
			t.Cleanup(func() {
				eventually(t, "the cgroup is empty", func() bool { return os.Remove(made) == nil })
			})
		}
		files = append(files, filepath.Join(dir, "cgroup.procs"))
	}
	script := `for f in ` + strings.Join(files, " ") + `; do echo $$ >$f || exit 1; done; exec "$0" "$@"`
	cmd := exec.Command("sh", append([]string{"-c", script, program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it sleeps
		_ = cmd.Wait()
	})
	return &process{cmd, bufio.NewReader(out)}
}

func (p *process) waitDone(t *testing.T) {
	t.Helper()
	line, err := p.out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "done\n", line)
}

// hierarchies returns the mount points of all cgroup hierarchies.
func hierarchies(t *testing.T) (dirs []string) {
	t.Helper()
	for line := range strings.Lines(fileText(t, "/proc/self/mounts")) {
		if fields := strings.Fields(line); fields[2] == "cgroup" || fields[2] == "cgroup2" {
			dirs = append(dirs, fields[1])
		}
	}
	require.NotEmpty(t, dirs)
	return dirs
}

// After a collector was stopped with SIGSTOP and continued, it attributes the energy of the whole
// time.
func TestAttackStopped(t *testing.T) {
	sources(t, func(t *testing.T, source string) {
		a := attack(t, source)
		load := startIn(t, "docker/"+strings.Repeat("5", 64), build(t, "load"), "burn", "50", "4")
		require.NoError(t, a.cmd.Process.Signal(unix.SIGSTOP))
		load.waitDone(t) // eight seconds and more
		require.NoError(t, a.cmd.Process.Signal(unix.SIGCONT))
		a.takes(t, 2)
		all := a.requireBalance(t)
		assert.InDelta(t, 4, total(all, "container.cpu.time", "container.id="+strings.Repeat("5", 64)), 0.2)
		requireModeledEnergy(t, all)
	}, "clocks")
}

// requireModeledEnergy checks that all energy adds up to the model's 100 W.
func requireModeledEnergy(t *testing.T, all []emission) {
	t.Helper()
	last := all[len(all)-1].filter("system.energy", "energy.state=active")[0]
	assert.InEpsilon(t, 100*last.at.Sub(last.start).Seconds(), total(all, "system.energy"), 0.01, "J in %v", last.at.Sub(last.start))
}

// In a time namespace, the clocks of processes' start times differ from the kernel's clocks, which
// BPF reports (time_namespaces(7)).
func TestAttackOtherClocks(t *testing.T) {
	need(t)
	unshare := program(t, "unshare", "util-linux")
	for _, offset := range []string{"1000000", "-20"} {
		t.Run(offset, func(t *testing.T) {
			a := attack(t, "auto", unshare, "--time", "--boottime", offset, "--monotonic", offset)
			assert.Contains(t, fileText(t, a.log), "time namespace")
			load := startIn(t, "docker/"+strings.Repeat("6", 64), build(t, "load"), "burn", "50", "1")
			began := time.Now()
			load.waitDone(t)
			a.takes(t, 2)
			all := a.requireBalance(t)
			points := all[len(all)-1].filter("process.energy", "process.pid="+strconv.Itoa(load.cmd.Process.Pid))
			require.NotEmpty(t, points)
			assert.Positive(t, points[0].value)
			created, err := time.Parse(time.RFC3339, points[0].attributes["process.creation.time"])
			require.NoError(t, err)
			assert.WithinDuration(t, began, created, 5*time.Second)
			requireModeledEnergy(t, all)
		})
	}
}

// In a collection interval, more processes end than fit into the buffer for exits, some of them in
// a container. The lost exits must not leave much energy unattributed.
func TestAttackForkStorm(t *testing.T) {
	need(t)
	hostile, load := build(t, "hostile"), build(t, "load")
	interval := max(intervalOf(t, 2*104_857, hostile), 15*time.Second)
	text := strings.Replace(attackConfig, "collection_interval: 1s", "collection_interval: "+interval.String(), 1)
	require.NotEqual(t, attackConfig, text)
	a := startAttackedWith(t, text, "bpf")
	a.takes(t, 1)
	before, began := forks(t), time.Now()
	startHostile(t, hostile, "storm", 2*runtime.NumCPU(), none)
	id := strings.Repeat("8", 64)
	neighbor := startIn(t, "docker/"+id, load, "fork", "3")
	within(t, 4*interval, "two collections pass", func() bool { return len(a.collections(t)) >= 3 })
	exits := float64(forks(t)-before) / time.Since(began).Seconds()
	neighbor.waitDone(t)
	all := a.requireBalance(t)
	active, unattributed := total(all, "system.energy", "energy.state=active"), total(all, "system.unattributed.energy")
	t.Logf("%.0f exits a second, %.2f %% of %.0f J are unattributed", exits, 100*unattributed/active, active)
	require.Greater(t, exits*interval.Seconds(), 1.2*104_857, "exits per interval, more than the buffer's size")
	assert.Less(t, unattributed, 0.02*active)
	assert.InDelta(t, 3.2, total(all, "container.cpu.time", "container.id="+id), 0.3, "seconds of processes that end in the storm")
}

// A thousand processes run for 0.4 ms in turn, each in a different cgroup than before. Only their
// CPU clocks show which of them ran, and in each window they use too little to make the receiver
// read all clocks.
func TestAttackTurns(t *testing.T) {
	need(t)
	const windows = 25
	const bound = 50 * time.Millisecond // twice the debt, and the CPU time during reads of the clocks
	dir := t.TempDir()
	program := filepath.Join(dir, "turns")
	run(t, exec.Command(compiler(t), "-O1", "-Wall", "-Werror", "-o", program, "turns/turns.c"))
	cgroups := [2]string{"docker/" + strings.Repeat("a1", 32), "docker/" + strings.Repeat("a2", 32)}
	startIn(t, cgroups[1], build(t, "load"), "burn", "50", "0.01").waitDone(t)
	hierarchies, counter := countingHierarchies(t)
	args := []string{"1000"}
	for _, hierarchy := range hierarchies {
		for _, cgroup := range cgroups {
			args = append(args, filepath.Join(hierarchy, cgroup, "cgroup.procs"))
		}
	}
	turns := startIn(t, cgroups[0], program, args...)
	turns.waitDone(t)
	parent := strconv.Itoa(turns.cmd.Process.Pid)
	for _, hierarchy := range hierarchies { // the children stay in their cgroups
		require.NoError(t, os.WriteFile(filepath.Join(hierarchy, "docker/cgroup.procs"), []byte(parent), 0))
	}
	require.NoError(t, turns.cmd.Process.Signal(unix.SIGSTOP))
	a := attack(t, "clocks")
	a.takes(t, 12) // until the receiver has found all cgroups
	cost := func(collections func()) time.Duration {
		before, n := a.cpu(t), len(a.collections(t))
		collections()
		return (a.cpu(t) - before) / time.Duration(len(a.collections(t))-n)
	}
	rest := cost(func() { a.takes(t, 8) })
	ran := func() time.Duration {
		return counted(t, filepath.Join(hierarchies[0], cgroups[0], counter)) + counted(t, filepath.Join(hierarchies[0], cgroups[1], counter))
	}
	found := func() time.Duration {
		all := a.collections(t)
		return time.Duration(1e9 * (total(all, "process.cpu.time", "process.executable.name=turns") - total(all, "process.cpu.time", "process.pid="+parent)))
	}
	ranBefore, foundBefore, late := ran(), found(), time.Duration(0)
	require.NoError(t, turns.cmd.Process.Signal(unix.SIGCONT))
	attacked := cost(func() {
		for range windows {
			want := ran() - ranBefore
			a.takesAfter(t, time.Now())
			got := found() - foundBefore
			require.LessOrEqual(t, got, ran()-ranBefore, "no CPU time is counted twice")
			late = max(late, want-got)
		}
	})
	t.Logf("%v ran, up to %v of it late; a collection took %v of CPU time, and %v before", ran()-ranBefore, late, attacked, rest)
	assert.Greater(t, ran()-ranBefore, 3*bound)
	assert.LessOrEqual(t, late, bound)
	assert.Less(t, attacked, 2*rest+5*time.Millisecond)
	all := a.requireBalance(t)
	assert.InDelta(t, total(all, "process.cpu.time", "process.executable.name=turns"),
		total(all, "container.cpu.time", "container.id="+filepath.Base(cgroups[0]))+total(all, "container.cpu.time", "container.id="+filepath.Base(cgroups[1])),
		0.001, "seconds of the processes, and of their containers")
}

// takesAfter waits until the backend has acknowledged a collection that began after a time.
func (a *attacked) takesAfter(t *testing.T, after time.Time) {
	t.Helper()
	for {
		a.takes(t, 1)
		all := a.collections(t)
		if all[len(all)-1].filter("system.energy")[0].at.After(after) {
			return
		}
	}
}

// countingHierarchies returns the mount points of the hierarchies that count CPU time, and the name
// of the counters in the first of them.
func countingHierarchies(t *testing.T) (dirs []string, counter string) {
	t.Helper()
	for _, dir := range hierarchies(t) {
		name := "cpuacct.usage"
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			name = "cpu.stat"
		} else if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			continue
		}
		if len(dirs) == 0 {
			counter = name
		}
		dirs = append(dirs, dir)
	}
	require.NotEmpty(t, dirs)
	return dirs, counter
}

// counted returns the CPU time in a cgroup's cpuacct.usage or cpu.stat.
func counted(t *testing.T, counter string) time.Duration {
	t.Helper()
	text, isV2 := strings.CutPrefix(fileText(t, counter), "usage_usec ")
	line, _, _ := strings.Cut(text, "\n")
	n, err := strconv.Atoi(line)
	require.NoError(t, err)
	if isV2 {
		return time.Duration(n) * time.Microsecond
	}
	return time.Duration(n)
}

// intervalOf returns a collection interval that lasts for a number of exits of a fork storm. The
// fork rate of a machine depends on its load.
func intervalOf(t *testing.T, exits float64, hostile string) time.Duration {
	t.Helper()
	const most = 90 * time.Second
	storm := startHostile(t, hostile, "storm", 2*runtime.NumCPU(), none)
	before, began := forks(t), time.Now()
	within(t, time.Minute, "20,000 forks", func() bool { return forks(t)-before > 20_000 })
	rate := float64(forks(t)-before) / time.Since(began).Seconds()
	for _, pid := range storm {
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	}
	interval := time.Duration(exits/rate*1000) * time.Millisecond
	if interval > most {
		t.Skipf("this machine is too slow or too busy: %.0f exits per second", rate)
	}
	return interval.Round(time.Second)
}

// The kernel uses each PID several times within a window. Only the counter of the storm's container
// includes its processes.
func TestAttackReusedPIDs(t *testing.T) {
	need(t)
	const pids = 32768 // the default of small machines
	limitPIDs(t, pids)
	hostile, load := build(t, "hostile"), build(t, "load")
	interval := intervalOf(t, 2*pids, hostile)
	text := strings.Replace(attackConfig, "collection_interval: 1s", "collection_interval: "+interval.String(), 1)
	require.NotEqual(t, attackConfig, text)
	a := startAttackedWith(t, text, "clocks")
	hierarchies, counter := countingHierarchies(t)
	ran := func(cgroup string) float64 {
		return counted(t, filepath.Join(hierarchies[0], cgroup, counter)).Seconds()
	}
	found := func(metric string, of ...string) float64 { return total(a.collections(t), metric, of...) }
	a.takes(t, 1)
	rest := a.cpu(t)
	a.takes(t, 1)
	rest = a.cpu(t) - rest

	t.Setenv("HOSTILE", "storm")
	var ids [3]string
	for i := range ids {
		ids[i] = strings.Repeat("b"+strconv.Itoa(i), 32)
	}
	var storm []*process
	for range 2 * runtime.NumCPU() {
		storm = append(storm, startIn(t, "docker/"+ids[0], hostile))
	}
	signal := func(s syscall.Signal) {
		for _, p := range storm {
			require.NoError(t, p.cmd.Process.Signal(s))
		}
	}
	forker, burner := startIn(t, "docker/"+ids[1], load, "fork", "1"), startIn(t, "docker/"+ids[2], load, "burn", "5", "1")
	signal(unix.SIGSTOP)
	a.takesAfter(t, time.Now()) // the first reading of a counter may lack some CPU time
	used, claimed := -ran("docker/"+ids[0]), -found("container.cpu.time", "container.id="+ids[0])
	allUsed, allClaimed := -ran("/"), -found("process.cpu.time")
	exits, cost := -forks(t), -a.cpu(t)
	signal(unix.SIGCONT)
	a.takes(t, 2)
	exits, cost = (exits+forks(t))/2, (cost+a.cpu(t))/2
	signal(unix.SIGKILL)
	forker.waitDone(t)
	burner.waitDone(t)
	a.takesAfter(t, time.Now())
	used, claimed = used+ran("docker/"+ids[0]), claimed+found("container.cpu.time", "container.id="+ids[0])
	allUsed, allClaimed = allUsed+ran("/"), allClaimed+found("process.cpu.time")
	t.Logf("%d exits in each interval of %v; a collection took %v of CPU time, and %v before", exits, interval, cost, rest)
	t.Logf("%.2f of %.2f s of the storm were found, %.2f of %.2f s of all processes", claimed, used, allClaimed, allUsed)
	assert.Greater(t, exits, pids*5/4)
	assert.InEpsilon(t, used, claimed, 0.02)
	assert.Less(t, allClaimed, 1.02*allUsed)
	assert.Less(t, cost, rest+50*time.Millisecond)
	for _, id := range ids[1:] {
		assert.InDelta(t, ran("docker/"+id), found("container.cpu.time", "container.id="+id), 0.1)
	}
	a.requireBalance(t)
}

// limitPIDs limits PIDs to values below a number until the test ends.
func limitPIDs(t *testing.T, most int) {
	t.Helper()
	const file = "/proc/sys/kernel/pid_max"
	before := fileText(t, file)
	if n, err := strconv.Atoi(strings.TrimSpace(before)); err == nil && n <= most {
		return
	}
	require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(most)), 0))
	t.Cleanup(func() { assert.NoError(t, os.WriteFile(file, []byte(before), 0)) })
}

// forks returns the number of processes and threads that the machine has started.
func forks(t *testing.T) (n int) {
	t.Helper()
	_, rest, found := strings.Cut(fileText(t, "/proc/stat"), "\nprocesses ")
	require.True(t, found)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(line)
	require.NoError(t, err)
	return n
}

// If a runtime's system call filter refuses BPF, the receiver uses CPU clocks or procfs and logs
// the reason.
func TestAttackBPFRefused(t *testing.T) {
	need(t)
	hostile := build(t, "hostile")
	t.Setenv("HOSTILE", "deny-bpf")
	a := attack(t, "auto", hostile)
	assert.Regexp(t, `"source":"(clocks|procfs)"`, fileText(t, a.log))
	assert.Contains(t, fileText(t, a.log), "operation not permitted")
	load := startIn(t, "docker/"+strings.Repeat("7", 64), build(t, "load"), "burn", "50", "1")
	load.waitDone(t)
	a.takes(t, 2)
	assert.InDelta(t, 1, total(a.requireBalance(t), "container.cpu.time", "container.id="+strings.Repeat("7", 64)), 0.1)
}

// Containers are measured on machines with only cgroup v1, and with only cgroup v2.
func TestAttackCgroupVersions(t *testing.T) {
	sources(t, func(t *testing.T, source string) {
		unshare := program(t, "unshare", "util-linux")
		views := map[string]string{
			"v1": `umount -R /sys/fs/cgroup && mount -t tmpfs cgroups /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpuacct /sys/fs/cgroup/cpu &&
				mount -t cgroup -o cpuacct cgroup /sys/fs/cgroup/cpuacct && mount -t cgroup -o cpu cgroup /sys/fs/cgroup/cpu`,
			"v2": `umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup`,
		}
		for version, mount := range views {
			t.Run(version, func(t *testing.T) {
				check := exec.Command(unshare, "--mount", "--propagation", "private", "sh", "-c", mount)
				if out, err := check.CombinedOutput(); err != nil {
					t.Skipf("lacks cgroups of %s: %s", version, out)
				}
				a := attack(t, source, unshare, "--mount", "--propagation", "private", "sh", "-c", mount+` && exec "$0" "$@"`)
				id := strings.Repeat(version[1:], 64)
				burn := startIn(t, "docker/"+id, build(t, "load"), "burn", "40", "1")
				burn.waitDone(t)
				fork := startIn(t, "docker/"+strings.Repeat("c", 64), build(t, "load"), "fork", "0.5")
				fork.waitDone(t)
				a.takes(t, 2)
				all := a.requireBalance(t)
				assert.InDelta(t, 1, total(all, "container.cpu.time", "container.id="+id), 0.1)
				assert.InDelta(t, 0.55, total(all, "container.cpu.time", "container.id="+strings.Repeat("c", 64)), 0.2, "short-lived children")
			})
		}
	}, "clocks")
}
