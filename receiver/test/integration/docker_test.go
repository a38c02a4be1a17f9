// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docker is a daemon that the test has started.
type docker struct {
	client, socket, data string
	http                 http.Client
}

// dockerContainer is a container of the test and its CPU time by its counters, in seconds.
type dockerContainer struct {
	name, parent, load, id string
	restarts               bool
	byStats, byCgroup      float64
}

const (
	podUID         = "5c1f7e0a-93b4-4a6d-8e21-b7d06f3c9a18"
	otherPodUID    = "e83b2d64-0f5c-47a9-9d1e-6a4c8b2f7035"
	burstableGroup = "/kubepods/burstable/pod" + podUID
)

// Containers with given loads, in Docker's own cgroups and in cgroups of Kubernetes, are compared
// with `docker stats` and the cgroups' counters.
func TestDockerContainers(t *testing.T) {
	need(t)
	d := startDocker(t)
	d.importLoad(t)
	collectors, bpfLacks := startCollectors(t, "names: {paths: {docker: "+d.data+"}}")

	containers := []*dockerContainer{
		{name: "alone", load: "burn 40 4"},
		{name: "in-a-pod", parent: burstableGroup, load: "burn 20 2"},
		{name: "beside-it", parent: burstableGroup, load: "burn 10 1"},
		{name: "besteffort", parent: "/kubepods/besteffort/pod" + otherPodUID, load: "burn 10 1"},
		{name: "forks", load: "fork 2"},
		{name: "forks-in-a-pod", parent: "/kubepods/besteffort/pod" + otherPodUID, load: "fork 1"},
		{name: "restarts", load: "burn 30 1", restarts: true},
	}
	for _, c := range containers {
		d.run(t, c)
	}
	for _, c := range containers {
		d.waitDone(t, c, 1)
		if c.restarts {
			d.count(t, c)
			d.command(t, "restart", c.name)
			d.waitDone(t, c, 2)
		}
	}
	for _, c := range containers {
		d.count(t, c) // the containers sleep, so the counters are final
	}
	for _, c := range collectors {
		c.emits(t, 2)
		c.stop(t)
	}

	for _, source := range []string{"procfs", "bpf"} {
		t.Run(source, func(t *testing.T) {
			if collectors[source] == nil {
				t.Skipf("lacks BPF: %s", bpfLacks)
			}
			emissions := readEmissions(t, collectors[source].out)
			requireBalance(t, emissions, "package")
			for _, c := range containers {
				c.testCPUTime(t, emissions, source)
			}
			var members []member
			for _, c := range containers {
				members = append(members, member{"container.cpu.time", "container.energy", "container.id=" + c.id})
			}
			requireSameRate(t, emissions, members)
			testPods(t, emissions, containers)
			testContainerNames(t, emissions, containers)
		})
	}
}

// testCPUTime compares a container's CPU time with its counters.
func (c *dockerContainer) testCPUTime(t *testing.T, emissions []emission, source string) {
	got := total(emissions, "container.cpu.time", "container.id="+c.id)
	energy := total(emissions, "container.energy", "container.id="+c.id)
	t.Logf("%s, %s (%s): docker stats %.4f s, cgroup %.4f s, reported %.4f s (%+.2f %%), %.3f J",
		source, c.name, c.load, c.byStats, c.byCgroup, got, 100*(got/c.byCgroup-1), energy)
	// While a container is created, it uses a few milliseconds outside its cgroup.
	const bound, created = 0.02, 0.03
	assert.InDelta(t, c.byCgroup, c.byStats, created, "%s: cgroup and docker stats", c.name)
	assert.InDelta(t, c.byCgroup, got, bound*c.byCgroup+created, "%s by %s", c.name, source)
}

// testPods checks that a pod has the energy of its containers, and is identified by its cgroup.
func testPods(t *testing.T, emissions []emission, containers []*dockerContainer) {
	for uid, class := range map[string]string{podUID: "Burstable", otherPodUID: "BestEffort"} {
		sum := 0.0
		for _, c := range containers {
			if strings.HasSuffix(c.parent, uid) {
				own := total(emissions, "container.energy", "container.id="+c.id)
				assert.InDelta(t, own, total(emissions, "container.energy", "container.id="+c.id, "k8s.pod.uid="+uid), 1e-9,
					"%s has the UID of its pod", c.name)
				sum += own
			}
		}
		require.Positive(t, sum)
		assert.InDelta(t, sum, total(emissions, "k8s.pod.energy", "k8s.pod.uid="+uid, "k8s.pod.qos_class="+class), 1e-4, uid)
	}
	for _, c := range containers {
		if c.parent == "" {
			assert.Positive(t, total(emissions, "container.energy", "container.id="+c.id, "container.runtime.name=docker"), c.name)
		}
	}
}

// testContainerNames checks that every point of a container, from the first one on, has the name
// and the image that Docker reports.
func testContainerNames(t *testing.T, emissions []emission, containers []*dockerContainer) {
	t.Helper()
	named := map[string]bool{}
	for _, e := range emissions {
		for _, p := range e {
			i := slices.IndexFunc(containers, func(c *dockerContainer) bool { return c.id == p.attributes["container.id"] })
			if i < 0 || !strings.HasPrefix(p.metric, "container.") {
				continue
			}
			require.Equal(t, containers[i].name, p.attributes["container.name"], "%s %v", p.metric, p.attributes)
			require.Equal(t, "load", p.attributes["container.image.name"], "%s %v", p.metric, p.attributes)
			named[containers[i].name] = true
		}
	}
	assert.Len(t, named, len(containers))
}

// startDocker starts a daemon that uses neither the network nor the state of another daemon. The
// daemon, its mounts and its cgroups are removed at the end of the test. Without Docker the test is
// skipped.
func startDocker(t *testing.T) *docker {
	t.Helper()
	d, lacks := tryDocker(t)
	if d == nil {
		t.Skip("lacks " + lacks)
	}
	return d
}

// tryDocker is startDocker, but returns the missing requirement instead of skipping the test.
func tryDocker(t *testing.T) (_ *docker, lacks string) {
	t.Helper()
	daemon, errDaemon := exec.LookPath("dockerd")
	client, errClient := exec.LookPath("docker")
	if err := errors.Join(errDaemon, errClient); err != nil {
		return nil, fmt.Sprintf("docker: apt-get install docker.io: %v", err)
	}
	dir, err := os.MkdirTemp("", "docker-") // short: the length of a socket's path is limited
	require.NoError(t, err)
	d := &docker{client: client, socket: filepath.Join(dir, "socket"), data: filepath.Join(dir, "data")}
	before := cgroupDirs(t)
	t.Cleanup(func() {
		removeCgroups(t, before)
		unmountBelow(t, dir)
		assert.NoError(t, os.RemoveAll(dir))
	})
	d.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}}
	t.Cleanup(d.http.CloseIdleConnections)
	log := filepath.Join(cache(t), "dockerd.log")
	ended := startDaemon(t, exec.Command(daemon, "--data-root", d.data, "--exec-root", filepath.Join(dir, "exec"),
		"-H", "unix://"+d.socket, "--pidfile", filepath.Join(dir, "pid"), "--iptables=false", "--ip6tables=false", "--bridge=none"), log)
	eventually(t, "dockerd answers", func() bool {
		select {
		case <-ended:
			lacks = "a machine that dockerd runs on: " + lastLine(log)
			return true
		default:
		}
		answer, err := d.http.Get("http://docker/_ping")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
	if lacks != "" {
		return nil, lacks
	}
	t.Cleanup(func() { // before the daemon ends
		if ids := strings.Fields(d.command(t, "ps", "-aq")); len(ids) > 0 {
			d.command(t, append([]string{"rm", "-f"}, ids...)...)
		}
	})
	return d, ""
}

func (d *docker) command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(d.client, append([]string{"-H", "unix://" + d.socket}, args...)...)
	out, err := cmd.Output()
	var said []byte
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		said = exit.Stderr
	}
	require.NoErrorf(t, err, "%s\n%s", cmd, said)
	return string(out)
}

// importLoad makes an image that contains only the load program.
func (d *docker) importLoad(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(build(t, "load"))
	require.NoError(t, err)
	var image bytes.Buffer
	archive := tar.NewWriter(&image)
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: "load", Mode: 0o755, Size: int64(len(content))}))
	_, err = archive.Write(content)
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	cmd := exec.Command(d.client, "-H", "unix://"+d.socket, "import", "--change", `ENTRYPOINT ["/load"]`, "-", "load:1")
	cmd.Stdin = &image
	run(t, cmd)
}

func (d *docker) run(t *testing.T, c *dockerContainer) {
	t.Helper()
	args := []string{"run", "--detach", "--network=none", "--name=" + c.name}
	if c.parent != "" {
		args = append(args, "--cgroup-parent="+c.parent)
	}
	args = append(args, "load:1")
	c.id = strings.TrimSpace(d.command(t, append(args, strings.Fields(c.load)...)...))
	require.Len(t, c.id, 64)
}

// waitDone waits until a container has used its CPU time for the n-th time.
func (d *docker) waitDone(t *testing.T, c *dockerContainer, n int) {
	t.Helper()
	eventually(t, c.name+" is done", func() bool {
		return strings.Count(d.command(t, "logs", c.name), "done") >= n
	})
}

// count adds the container's CPU time to its CPU time from before a restart.
func (d *docker) count(t *testing.T, c *dockerContainer) {
	t.Helper()
	var stats struct {
		CPU struct {
			Usage struct {
				Total uint64 `json:"total_usage"` // nanoseconds
			} `json:"cpu_usage"`
		} `json:"cpu_stats"`
	}
	eventually(t, "Docker reports the CPU time of "+c.name, func() bool {
		answer, err := d.http.Get("http://docker/containers/" + c.id + "/stats?stream=false&one-shot=true")
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&stats))
		return stats.CPU.Usage.Total > 0
	})
	c.byStats += float64(stats.CPU.Usage.Total) / 1e9
	c.byCgroup += cgroupUsage(t, strings.TrimSpace(d.command(t, "inspect", "--format={{.State.Pid}}", c.name)))
}

// cgroupUsage returns the CPU time of a process's cgroup by its counter, in seconds.
func cgroupUsage(t *testing.T, pid string) float64 {
	t.Helper()
	groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
	require.NoError(t, err)
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		if slices.Contains(strings.Split(controllers, ","), "cpuacct") {
			text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controllers, group, "cpuacct.usage"))
			require.NoError(t, err)
			nanoseconds, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
			require.NoError(t, err)
			return float64(nanoseconds) / 1e9
		}
	}
	_, group, found := strings.Cut(string(groups), "0::")
	require.True(t, found, "neither cpuacct nor a cgroup of version 2: %s", groups)
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", strings.TrimSpace(group), "cpu.stat"))
	require.NoError(t, err)
	var microseconds uint64
	_, err = fmt.Sscanf(string(text), "usage_usec %d", &microseconds)
	require.NoError(t, err)
	return float64(microseconds) / 1e6
}

// cgroupDirs lists the cgroups of all hierarchies that the daemons of these tests may leave.
func cgroupDirs(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, top := range []string{"docker", "kubepods", "machine"} {
		for _, pattern := range []string{"/sys/fs/cgroup/" + top, "/sys/fs/cgroup/*/" + top} {
			tops, err := filepath.Glob(pattern)
			require.NoError(t, err)
			for _, dir := range tops {
				_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
					if err == nil && entry.IsDir() {
						found[path] = true
					}
					return nil // another program removed it
				})
			}
		}
	}
	return found
}

// removeCgroups removes empty cgroups that did not exist before, and cgroups of these tests' pods
// that a killed run has left.
func removeCgroups(t *testing.T, before map[string]bool) {
	t.Helper()
	now := cgroupDirs(t)
	var dirs []string
	for dir := range now {
		if !before[dir] || strings.Contains(dir, podUID) || strings.Contains(dir, otherPodUID) {
			dirs = append(dirs, dir)
		}
	}
	slices.SortFunc(dirs, func(a, b string) int { return len(b) - len(a) }) // children first
	for _, dir := range dirs {
		_ = os.Remove(dir) // fails if another program uses it
	}
	for dir := range cgroupDirs(t) {
		for _, uid := range []string{podUID, otherPodUID} {
			assert.NotContains(t, dir, uid, "a cgroup is left")
		}
	}
}

// unmountBelow unmounts the mounts that a daemon has left below its directory.
func unmountBelow(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	lines := strings.Split(string(mounts), "\n")
	slices.Reverse(lines) // last mounted first
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			assert.NoError(t, exec.Command("umount", fields[1]).Run(), fields[1])
		}
	}
}
