// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hold makes an unprivileged process hold one of its locks until the test ends, by the program
// hold, and returns its PID. The process has the name of a hypervisor, so that its command line is
// read.
func hold(t *testing.T, lock string) (pid int) {
	t.Helper()
	var fuse unix.Stat_t
	if err := unix.Stat("/dev/fuse", &fuse); err != nil {
		t.Skipf("lacks /dev/fuse: %v", err)
	}
	dir, err := os.MkdirTemp("/dev", "hold-") // not mounted nodev
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	program, device, mount := filepath.Join(dir, "qemu-system-x86_64"), filepath.Join(dir, "fuse"), filepath.Join(dir, "mount")
	run(t, exec.Command(compiler(t), "-O1", "-Wall", "-Werror", "-o", program, "hold/hold.c"))
	require.NoError(t, unix.Mknod(device, unix.S_IFCHR, int(fuse.Rdev)))
	require.NoError(t, os.Chmod(device, 0o666)) // udev's mode; this machine's node is unchanged
	require.NoError(t, os.Mkdir(mount, 0o755))

	cmd := exec.Command(program, lock, device, mount)
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		t.Skipf("lacks FUSE for unprivileged users: %s", problem.String())
	}
	pid, err = strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return pid
}

func compiler(t *testing.T) string { return program(t, "cc", "gcc") }

// requireOnTime checks that at least 95 % of collections take place, and that the collector ends
// within 5 s.
func (a *attacked) requireOnTime(t *testing.T) {
	t.Helper()
	const seconds = 40
	began, before := time.Now(), len(a.collections(t))
	time.Sleep(seconds * time.Second) // the measurement
	due := int(time.Since(began).Seconds())
	assert.GreaterOrEqualf(t, len(a.collections(t))-before, due*95/100, "collections of %d, the log is in %s", due, a.log)
	require.NoError(t, a.cmd.Process.Signal(unix.SIGTERM))
	select {
	case <-a.ended:
	case <-time.After(5 * time.Second):
		t.Errorf("the collector did not end within 5 s, its log is in %s", a.log)
	}
}

// A process holds its mmap lock. Readers of its command line wait for the lock.
func TestAttackCommandLineBlocked(t *testing.T) {
	sources(t, func(t *testing.T, source string) {
		a := attack(t, source)
		pid := hold(t, "mmap")
		within(t, 10*time.Second, "the condition is reported, the log is in "+a.log, func() bool {
			return strings.Contains(fileText(t, a.log), `"condition":"unread processes"`)
		})
		assert.Contains(t, fileText(t, a.log), "user 65534 (1 process)")
		assert.FileExists(t, fmt.Sprintf("/proc/%d/stat", pid), "the process runs")
		a.requireOnTime(t)
	})
}

// A process holds the lock of its directory in /proc, so that files that are not open cannot be
// opened.
func TestAttackDirectoryBlocked(t *testing.T) {
	sources(t, func(t *testing.T, source string) {
		a := attack(t, source)
		hold(t, "proc")
		within(t, 10*time.Second, "the condition is reported, the log is in "+a.log, func() bool {
			return strings.Contains(fileText(t, a.log), `"condition":"unread processes"`)
		})
		a.requireOnTime(t)
	}, "clocks")
}

// Processes hold the locks of a cgroup's directories when the first process enters the cgroup.
func TestAttackCgroupBlocked(t *testing.T) {
	need(t)
	const container = "docker/abababababababababababababababababababababababababababababababab"
	var dirs []string
	for _, name := range []string{"cpuacct", "cpu", "memory", "unified", ""} {
		dir := filepath.Join("/sys/fs/cgroup", name, container)
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", name, "cgroup.procs")); err != nil {
			continue
		}
		outer := filepath.Dir(dir)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		t.Cleanup(func() {
			assert.NoError(t, os.Remove(dir))
			assert.NoError(t, os.Remove(outer))
		})
		dirs = append(dirs, dir)
	}
	a := attack(t, "procfs")
	var entries []*os.File // opened before their directories are locked
	for _, dir := range dirs {
		entry, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
		require.NoError(t, err)
		defer func() { assert.NoError(t, entry.Close()) }()
		entries = append(entries, entry)
	}
	for _, dir := range dirs {
		hold(t, dir)
	}
	// Until the holders have the locks.
	time.Sleep(100 * time.Millisecond)
	busy := exec.Command("nice", "-n", "19", "sh", "-c", "while :; do :; done") // without children
	require.NoError(t, busy.Start())
	defer func() {
		assert.NoError(t, busy.Process.Kill())
		_ = busy.Wait() // killed
	}()
	for _, entry := range entries {
		_, err := entry.WriteString(strconv.Itoa(busy.Process.Pid))
		require.NoError(t, err)
	}
	within(t, 20*time.Second, "the condition is reported, the log is in "+a.log, func() bool {
		return strings.Contains(fileText(t, a.log), `"condition":"unread cgroups"`)
	})
	a.requireOnTime(t)
}

// A process holds the lock of an epoll descriptor. The collector may trace the process, but may not
// read the links of its descriptors.
func TestAttackDescriptorBlocked(t *testing.T) {
	need(t)
	unshare, setpriv := program(t, "unshare", "util-linux"), program(t, "setpriv", "util-linux")
	gpu := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("25.5")) }))
	t.Cleanup(gpu.Close)
	root := t.TempDir()
	for _, dir := range []string{
		"proc", "sys/fs/cgroup", "sys/class/drm/renderD128", "sys/devices/pci0000:00/0000:00:02.0", "sys/bus/pci/devices",
		"sys/bus/pci/drivers/i915", "sys/devices/system/cpu",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for link, target := range map[string]string{
		"sys/class/drm/renderD128/device":            "../../../devices/pci0000:00/0000:00:02.0",
		"sys/bus/pci/devices/0000:00:02.0":           "../../../devices/pci0000:00/0000:00:02.0",
		"sys/devices/pci0000:00/0000:00:02.0/driver": "../../../bus/pci/drivers/i915",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}
	config := strings.NewReplacer("zones: [package]", "zones: [package, gpu]\n    root_path: "+root, "meters: {use: []}",
		`meters: {use: [], "http/0000:00:02.0": {endpoint: "`+gpu.URL+`", unit: W, zone: gpu, poll_interval: 1s, timeout: 500ms}}`).Replace(attackConfig)
	const dropped = "-dac_read_search,-dac_override"
	a := startAttackedWith(t, config, "procfs",
		unshare, "--mount", "--propagation", "private", "sh", "-c",
		`mount --rbind /proc `+root+`/proc && mount --rbind /sys/fs/cgroup `+root+`/sys/fs/cgroup && `+
			`exec `+setpriv+` --bounding-set `+dropped+` --inh-caps `+dropped+` "$0" "$@"`)
	a.takes(t, 2)
	hold(t, "epoll")
	a.requireOnTime(t)
	assert.Contains(t, fileText(t, a.log), "CAP_DAC_READ_SEARCH for processes of other users")
}

// A process holds the lock of powercap's directory of zones: while the collector runs, or from
// before its start. Any user with permission to list the directory can hold the lock. The directory
// is mounted on sysfs only in the collector's mount namespace, because the machine may have no
// zones. Without zones the receiver uses the model.
func TestAttackSensorDirectoryBlocked(t *testing.T) {
	need(t)
	unshare := program(t, "unshare", "util-linux")
	for _, c := range []struct {
		name, path string
		running    bool
	}{{"list", "powercap", true}, {"list-at-start", "powercap", false}, {"zone-at-start", "powercap/intel-rapl:0", false}} {
		t.Run(c.name, func(t *testing.T) {
			class, err := os.MkdirTemp("/dev", "class-") // readable for all users
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, os.RemoveAll(class)) })
			zone := filepath.Join(class, "powercap/intel-rapl:0")
			require.NoError(t, os.MkdirAll(zone, 0o755))
			require.NoError(t, os.Chmod(class, 0o755))
			for file, text := range map[string]string{"name": "package-0\n", "energy_uj": "1000\n", "max_energy_range_uj": "262143328850\n"} {
				require.NoError(t, os.WriteFile(filepath.Join(zone, file), []byte(text), 0o600))
			}
			lock := filepath.Join(class, c.path)
			config := strings.Replace(attackConfig, "    meters: {use: []}\n", "", 1)
			require.NotEqual(t, attackConfig, config)
			start := func() *attacked {
				a := startAttackedWith(t, config, "bpf", unshare, "--mount",
					"--propagation", "private", "sh", "-c", `mount --bind `+class+` /sys/class && exec "$0" "$@"`)
				a.takes(t, 2)
				return a
			}
			var a *attacked
			if c.running {
				a = start()
				hold(t, lock)
			} else {
				hold(t, lock)
				a = start()
			}
			within(t, 30*time.Second, "the condition is reported, the log is in "+a.log, func() bool {
				return strings.Contains(fileText(t, a.log), "looking for files in /sys/class/powercap hangs")
			})
			if c.running {
				require.NoError(t, os.WriteFile(filepath.Join(zone, "energy_uj"), []byte("5001000\n"), 0o600))
				within(t, 10*time.Second, "the zone is read, the log is in "+a.log, func() bool {
					return total(a.collections(t), "system.energy", "energy.zone=package") > 4.99
				})
			}
			a.requireOnTime(t)
		})
	}
}

// A process holds the lock of the collector's own directory in /proc, or of its directory of
// threads.
func TestAttackOwnDirectoryBlocked(t *testing.T) {
	for _, dir := range []string{"", "task"} {
		t.Run(filepath.Join("pid", dir), func(t *testing.T) {
			sources(t, func(t *testing.T, source string) {
				a := attack(t, source)
				hold(t, filepath.Join("/proc", strconv.Itoa(a.cmd.Process.Pid), dir))
				a.requireOnTime(t)
			})
		})
	}
}

// A process holds the lock of the directory that lists all processes. The collector has its own
// procfs: every listing of the machine's procfs waits for the lock.
func TestAttackProcessListBlocked(t *testing.T) {
	unshare := program(t, "unshare", "util-linux")
	sources(t, func(t *testing.T, source string) {
		proc, err := os.MkdirTemp("/dev", "proc-") // readable for all users
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, os.Remove(proc)) })
		require.NoError(t, os.Chmod(proc, 0o755))
		require.NoError(t, unix.Mount("proc", proc, "proc", 0, ""))
		t.Cleanup(func() { assert.NoError(t, unix.Unmount(proc, unix.MNT_DETACH)) })
		a := attack(t, source, unshare, "--mount", "--propagation", "private", "sh", "-c", `mount --bind `+proc+` /proc && exec "$0" "$@"`)
		a.takes(t, 2)
		hold(t, proc)
		if source == "procfs" {
			within(t, 30*time.Second, "the condition is reported, the log is in "+a.log, func() bool {
				return strings.Contains(fileText(t, a.log), "a process blocks the listing of /proc")
			})
		}
		container := strings.Repeat("f", 64)
		startUncached(t, container)
		a.requireOnTime(t)
		if source == "bpf" { // BPF provides the cgroup
			assert.Positive(t, total(a.collections(t), "container.energy", "container.id="+container))
		}
	}, "clocks")
}

// A user locks the directories of root's processes before the collector has identified them. They
// must not count as blocked by root.
func TestAttackOthersDirectoriesBlocked(t *testing.T) {
	need(t)
	a := attack(t, "bpf")
	for range 6 {
		sleep := exec.Command("sleep", "1000")
		require.NoError(t, sleep.Start())
		t.Cleanup(func() {
			assert.NoError(t, sleep.Process.Kill())
			_ = sleep.Wait() // killed
		})
		hold(t, filepath.Join("/proc", strconv.Itoa(sleep.Process.Pid)))
	}
	within(t, 20*time.Second, "the condition is reported, the log is in "+a.log, func() bool {
		return strings.Contains(fileText(t, a.log), ": unknown user (")
	})
	a.requireOnTime(t)
	assert.NotContains(t, fileText(t, a.log), "user 0 (")
}

// startUncached starts a process that uses CPU time in a container and then stops itself. It is not
// a Go program: Go's runtime reads /proc/self/cgroup, and then the kernel has the name in its
// cache.
func startUncached(t *testing.T, container string) (pid int) {
	t.Helper()
	p := startIn(t, "docker/"+container, "sh", "-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo done; kill -STOP $$")
	p.waitDone(t)
	return p.cmd.Process.Pid
}

// A user locks the directories of 42 processes of root before the collector has identified them,
// more than the total limit of 32. The energy of their container, and of a container that starts
// later, is still attributed to the containers, because BPF provides the cgroups.
func TestAttackContainersOfLockedDirectories(t *testing.T) {
	need(t)
	a := attack(t, "bpf")
	ids := []string{strings.Repeat("d", 64), strings.Repeat("e", 64)}
	used := map[string]float64{}
	start := func(id string) (pid int) {
		pid = startUncached(t, id)
		used[id] += processCPU(t, pid).Seconds()
		return pid
	}
	const batches, batch = 14, 3 // a scan waits for a few blocked reads
	for range batches {
		require.NoError(t, a.cmd.Process.Signal(unix.SIGSTOP))
		for range batch {
			hold(t, filepath.Join("/proc", strconv.Itoa(start(ids[0]))))
		}
		require.NoError(t, a.cmd.Process.Signal(unix.SIGCONT))
		a.takes(t, 2)
	}
	assert.Contains(t, fileText(t, a.log), ": unknown user (")
	for range 20 {
		start(ids[1])
	}
	a.requireOnTime(t)
	all := a.collections(t)
	for _, id := range ids {
		got := total(all, "container.cpu.time", "container.id="+id)
		assert.InDeltaf(t, used[id], got, 0.1+used[id]/5, "seconds of %s, the log is in %s", id, a.log)
		assert.Positive(t, total(all, "container.energy", "container.id="+id))
	}
}
