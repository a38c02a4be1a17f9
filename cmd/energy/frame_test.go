// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// framesOf returns the frames of several readings of a collector, a second apart.
func framesOf(t *testing.T, f *framer, texts ...string) (frames []*top.Frame) {
	t.Helper()
	l := ledger{strict: f.fresh}
	at := time.Date(2026, 1, 2, 14, 3, 5, 0, time.UTC)
	for _, text := range texts {
		s := parseText(t, text)
		frames = append(frames, f.frame(s, l.add(s), at))
		at = at.Add(time.Second)
	}
	return frames
}

// energies returns the energies of a table's rows in joules, by name.
func energies(rows []top.Row) map[string]float64 {
	sums := map[string]float64{}
	for _, r := range rows {
		name, _, _ := strings.Cut(r.Text[top.Name], ":")
		sums[name] = r.Energy.Joules()
	}
	return sums
}

func TestEnergyIsSinceTheFirstReading(t *testing.T) {
	readings := []string{
		exposition(10, 1, map[string]float64{"a": 4, "b": 5}),
		exposition(16, 2, map[string]float64{"a": 5, "b": 7, "c": 2}), // c is new
		exposition(20, 2, map[string]float64{"b": 8, "c": 3}),         // a used 2 J more, ended, and its series was dropped
	}
	frames := framesOf(t, &framer{}, readings...)
	assert.Equal(t, map[string]float64{"a": 0, "b": 0, "unattributed": 0}, energies(frames[0].Tables[top.Processes]))
	assert.Equal(t, map[string]float64{"a": 1, "b": 2, "c": 2, "unattributed": 1}, energies(frames[1].Tables[top.Processes]))
	last := energies(frames[2].Tables[top.Processes])
	assert.Equal(t, map[string]float64{"b": 3, "c": 3, "ended": 3, "unattributed": 1}, last)
	sum := 0.0
	for _, joules := range last {
		sum += joules
	}
	assert.InDelta(t, 20-10, sum, 1e-9, "the rows add up to the active energy since then")
	assert.InDelta(t, 10, frames[2].Node.Joules(), 1e-9)
	assert.Equal(t, frames[0].At, frames[2].Since)
	for _, r := range frames[2].Tables[top.Processes] {
		if r.Text[top.Name] == "b" {
			assert.InDelta(t, 8, r.Total.Joules(), 1e-9)
		}
	}

	frames = framesOf(t, &framer{fresh: true}, readings...)
	assert.Equal(t, map[string]float64{"a": 4, "b": 5, "unattributed": 1}, energies(frames[0].Tables[top.Processes]), "nothing was before")
	assert.InDelta(t, 20, frames[2].Node.Joules(), 1e-9)
}

func TestACollectorThatBeganAnewIsShownFromItsBegin(t *testing.T) {
	frames := framesOf(t, &framer{},
		exposition(100, 1, map[string]float64{"a": 90, "b": 9}),
		exposition(5, 1, map[string]float64{"b": 4}),
		exposition(7, 1, map[string]float64{"b": 6}))
	assert.Equal(t, map[string]float64{"b": 4, "unattributed": 1}, energies(frames[1].Tables[top.Processes]))
	assert.Equal(t, map[string]float64{"b": 6, "unattributed": 1}, energies(frames[2].Tables[top.Processes]))
	assert.InDelta(t, 7, frames[2].Node.Joules(), 1e-9)
}

func TestSumsThatDoNotAddUpAreTold(t *testing.T) {
	frames := framesOf(t, &framer{fresh: true}, exposition(1, 1, map[string]float64{"a": 1}))
	assert.Contains(t, frames[0].Wrong, "the sum is wrong")
}

func TestAllKindsOfWorkloadsHaveTheirNames(t *testing.T) {
	const container, pod = "0123456789abcdef0123456789abcdef", "6f9619ff-8b86-4011-b42d-00c04fc964ff"
	text := fmt.Sprintf(`# TYPE system_power_watts gauge
system_power_watts{energy_zone="package",energy_state="active",energy_method="modeled",host_name="node-1"} 9
system_power_watts{energy_zone="gpu",energy_state="active",energy_method="measured"} 1
# TYPE process_power_watts gauge
process_power_watts{process_pid="7",process_executable_name="nginx",process_command_line="nginx -g off",container_id=%[1]q,k8s_pod_uid=%[2]q,energy_zone="package"} 4
process_power_watts{process_pid="7",process_executable_name="nginx",process_command_line="nginx -g off",container_id=%[1]q,k8s_pod_uid=%[2]q,energy_zone="gpu"} 1
process_power_watts{otel_metric_overflow="true",energy_zone="package"} 1
process_power_watts{process_pid="8",process_executable_name="other",energy_zone="package"} 1
# TYPE process_cpu_time_seconds_total counter
process_cpu_time_seconds_total{process_pid="7",process_executable_name="nginx",process_command_line="nginx -g off",container_id=%[1]q,k8s_pod_uid=%[2]q} 2.5
# TYPE container_power_watts gauge
container_power_watts{container_id=%[1]q,container_runtime_name="containerd",k8s_pod_uid=%[2]q,k8s_namespace_name="shop",k8s_pod_name="web-1",k8s_container_name="front",container_image_name="nginx",energy_zone="package"} 4
container_power_watts{otel_metric_overflow="true",energy_zone="package"} 2
container_power_watts{otel_metric_overflow="true",k8s_namespace_name="batch",k8s_container_name="job",energy_zone="package"} 1
# TYPE k8s_pod_power_watts gauge
k8s_pod_power_watts{k8s_pod_uid=%[2]q,k8s_pod_qos_class="Burstable",k8s_namespace_name="shop",k8s_pod_name="web-1",energy_zone="package"} 4
# TYPE vm_power_watts gauge
vm_power_watts{vm_id="8d3e4f62-7c2a-4c1e-9f10-000000000001",vm_name="build-1",vm_hypervisor="qemu",energy_zone="package"} 3
# TYPE systemd_unit_power_watts gauge
systemd_unit_power_watts{systemd_unit_name="nginx.service",energy_zone="package"} 4
# TYPE slurm_step_power_watts gauge
slurm_step_power_watts{slurm_job_id="31",slurm_step_id="0",energy_zone="package"} 1
slurm_step_power_watts{slurm_job_id="32",energy_zone="package"} 1
`, container, pod)
	f := framesOf(t, &framer{}, text)[0]
	assert.Equal(t, "node-1", f.Host)
	assert.InDelta(t, 10, f.Active, 1e-9)

	process := f.Tables[top.Processes][0]
	assert.Equal(t, int32(7), process.PID)
	assert.InDelta(t, 5, process.Power, 1e-9)
	assert.InDelta(t, 1, process.GPU, 1e-9)
	assert.Equal(t, 2500*time.Millisecond, process.CPUTime)
	for text, want := range map[top.Text]string{top.Name: "nginx", top.Arguments: "-g off", top.Container: "front", top.Pod: "shop/web-1", top.Image: "nginx"} {
		assert.Equal(t, want, process.Text[text])
	}
	pinned := map[bool]int{}
	for _, r := range f.Tables[top.Processes] {
		pinned[r.Pinned]++
	}
	assert.Equal(t, map[bool]int{false: 2, true: 2}, pinned, "a process may be called other: it has a PID")

	first := func(v top.View) [3]string {
		r := f.Tables[v][0]
		return [3]string{r.Text[top.Name], r.Text[top.ID], r.Text[top.Namespace]}
	}
	assert.Equal(t, [3]string{"front", "0123456789ab", "shop"}, first(top.Containers))
	assert.True(t, f.Tables[top.Containers][1].Pinned)
	group := f.Tables[top.Containers][2]
	assert.Equal(t, [2]string{"(others): job", "batch"}, [2]string{group.Text[top.Name], group.Text[top.Namespace]})
	assert.False(t, group.Pinned)
	for _, r := range f.Tables[top.Processes][1:] {
		assert.Empty(t, r.Text[top.Container], "it is in no container")
	}
	assert.Equal(t, [3]string{"web-1", pod, "shop"}, first(top.Pods))
	assert.Equal(t, [3]string{"build-1", "8d3e4f62-7c2a-4c1e-9f10-000000000001", ""}, first(top.VMs))
	assert.Equal(t, [3]string{"nginx.service", "", ""}, first(top.Units))
	assert.Equal(t, [3]string{"31.0", "", ""}, first(top.Jobs))
	assert.Equal(t, "32", f.Tables[top.Jobs][1].Text[top.Name])
}

// aProcess returns a row of this process, and its creation time by the clock of the metrics.
func aProcess(t *testing.T) (top.Row, time.Time) {
	t.Helper()
	boot, err := cpu.BootTime("/")
	require.NoError(t, err)
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	var ticks int64
	_, err = fmt.Sscan(strings.Fields(rest)[19], &ticks) // proc(5): starttime is the 22nd field
	require.NoError(t, err)
	return top.Row{PID: int32(os.Getpid()), CPUTime: -1}, boot.Add(time.Duration(ticks) * time.Duration(units.Tick))
}

func TestProcessesOfThisMachineAreDescribedFromTheirFiles(t *testing.T) {
	r, created := aProcess(t)
	newProcessFiles("/").describe(&r, identity.CreatedAt(created))
	me, err := user.Current()
	require.NoError(t, err)
	assert.Equal(t, me.Username, r.Text[top.User])
	assert.Equal(t, strings.Join(os.Args[1:], " "), r.Text[top.Arguments])
	assert.GreaterOrEqual(t, r.CPUTime, time.Duration(0))
}

func TestAProcessWithTheSameNumberIsNotDescribed(t *testing.T) {
	r, created := aProcess(t)
	untouched := r
	for _, other := range []string{created.Add(time.Minute).Format(time.RFC3339Nano), created.Add(-2 * time.Second).Format(time.RFC3339Nano), "", "yesterday"} {
		newProcessFiles("/").describe(&r, other)
		assert.Equal(t, untouched, r, other)
	}
	r.PID = 0
	newProcessFiles("/").describe(&r, created.Format(time.RFC3339Nano))
	assert.Equal(t, top.Row{CPUTime: -1}, r)
	var none *processFiles
	none.describe(&untouched, created.Format(time.RFC3339Nano))
	assert.Empty(t, untouched.Text[top.User])
	assert.Nil(t, newProcessFiles(t.TempDir()), "there is no /proc")
}

func TestArgumentsOfAProcess(t *testing.T) {
	for want, args := range map[string][]string{"-a b": {"/bin/x", "-a", "b"}, "worker process": {"nginx: worker process"}, "": {"x"}} {
		assert.Equal(t, want, argumentsOf(args))
	}
	assert.Empty(t, argumentsOf(nil))
}

func TestOnlyThisMachinesFilesAreReadForItsCollector(t *testing.T) {
	for endpoint, host := range map[string]string{
		"http://127.0.0.1:8889/metrics": "", "http://localhost:8889/metrics": "", "http://[::1]:1/": "", "http://node-7:8889/metrics": "node-7", "http://10.0.0.1/": "10.0.0.1",
	} {
		assert.Equal(t, host, hostOf(endpoint))
		o := onceOptions(endpoint)
		o.given = true
		from, err := open(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, host == "", from.files != nil, endpoint)
	}
}
