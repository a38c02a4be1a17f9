// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// framesOf returns the frames of several readings of a collector, with rows by descending power.
func framesOf(t *testing.T, a *snapshot.Account, texts ...string) (frames []*top.Frame) {
	t.Helper()
	for _, text := range texts {
		s, err := snapshot.FromPrometheus(strings.NewReader(text))
		require.NoError(t, err)
		a.Add(s)
		f := frameOf(a, s, nil)
		requireRowsAddUp(t, f)
		for _, rows := range f.Tables {
			workloads := slices.IndexFunc(rows, func(r top.Row) bool { return strings.HasPrefix(r.Key, "exited") })
			slices.SortFunc(rows[:max(workloads, 0)], func(a, b top.Row) int { return cmp.Or(cmp.Compare(b.Power, a.Power), cmp.Compare(a.Key, b.Key)) })
		}
		frames = append(frames, f)
	}
	return frames
}

// requireRowsAddUp requires that the rows of each table add up to the active energy.
func requireRowsAddUp(t *testing.T, f *top.Frame) {
	t.Helper()
	var active units.Energy
	for _, z := range f.Zones {
		if z.Besides == "" {
			active += z.ActiveEnergy
		}
	}
	for view, rows := range f.Tables {
		if len(rows) == 0 || top.View(view) == top.GPUs {
			continue
		}
		var sum units.Energy
		for _, r := range rows {
			sum += r.Energy
		}
		require.Equal(t, active, sum, "view %d", view)
	}
}

// energies returns the energies of a table's rows in joules, by name.
func energies(rows []top.Row) map[string]float64 {
	sums := map[string]float64{}
	for _, r := range rows {
		if name, _, _ := strings.Cut(r.Text[top.Name], ":"); r.Energy > 0 {
			sums[name] += r.Energy.Joules()
		}
	}
	return sums
}

func TestEnergyIsSinceTheFirstReading(t *testing.T) {
	frames := framesOf(t, &snapshot.Account{},
		exposition(10, 1, map[string]float64{"a": 4, "b": 5}),
		exposition(16, 2, map[string]float64{"a": 5, "b": 7, "c": 2}), // c is new
		exposition(20, 2, map[string]float64{"b": 8, "c": 3}),         // a used 2 J more, exited, and its series was dropped
		exposition(7, 1, map[string]float64{"b": 6}),                  // the collector began again
	)
	assert.Empty(t, energies(frames[0].Tables[top.Processes]))
	assert.Equal(t, map[string]float64{"a": 1, "b": 2, "c": 2, "unattributed": 1}, energies(frames[1].Tables[top.Processes]))
	assert.Equal(t, map[string]float64{"b": 3, "c": 3, "exited": 1, "(missed)": 2, "unattributed": 1}, energies(frames[2].Tables[top.Processes]))
	assert.Equal(t, map[string]float64{"a": 1, "b": 3, "c": 3, "(missed)": 2, "unattributed": 1}, energies(frames[2].Tables[top.Programs]))
	assert.Equal(t, map[string]float64{"b": 9, "exited": 4, "(missed)": 2, "unattributed": 2}, energies(frames[3].Tables[top.Processes]))
	assert.InDelta(t, 17, frames[3].Node.Joules(), 1e-9)
}

// aBuild is a collector's metrics during a build: processes and programs of two users.
const aBuild = `# TYPE system_energy_joules_total counter
system_energy_joules_total{energy_state="active",energy_zone="package"} 100
# TYPE process_energy_joules_total counter
process_energy_joules_total{energy_zone="package",process_pid="7",process_creation_time="a",process_executable_name="cc1",process_executable_path="/cc1",process_owner="ann",systemd_unit_name="u",process_command_line="cc1 x.c"} 30
process_energy_joules_total{energy_zone="package",process_pid="8",process_creation_time="b",process_executable_name="cc1",process_executable_path="/cc1",process_owner="bob",systemd_unit_name="u"} 20
process_energy_joules_total{energy_zone="package",process_executable_name="cc1",process_owner="ann",systemd_unit_name="u"} 25
process_energy_joules_total{energy_zone="package",process_executable_name="cc1",process_owner="ann",otel_metric_overflow="true"} 1
process_energy_joules_total{energy_zone="package",process_descendants="true",process_executable_name="make",process_owner="ann",systemd_unit_name="u"} 14
process_energy_joules_total{energy_zone="package",process_owner="ann"} 4
process_energy_joules_total{energy_zone="package",otel_metric_overflow="true"} 6
`

// rowOf returns the row of a name and a user.
func rowOf(t *testing.T, rows []top.Row, name, user string) top.Row {
	t.Helper()
	for _, r := range rows {
		if r.Text[top.Name] == name && r.Text[top.User] == user {
			return r
		}
	}
	require.Fail(t, "there is no row", "%s of %s", name, user)
	return top.Row{}
}

func TestProgramsAndUsersAreSumsOfProcesses(t *testing.T) {
	f := framesOf(t, &snapshot.Account{FromZero: true}, aBuild)[0]
	programs, processes := f.Tables[top.Programs], f.Tables[top.Processes]
	cc1 := rowOf(t, slices.DeleteFunc(slices.Clone(programs), func(r top.Row) bool { return r.Text[top.Unit] == "" }), "cc1", "ann")
	assert.InDelta(t, 55, cc1.Energy.Joules(), 1e-9, "but not of several containers")
	assert.Equal(t, [2]string{"u", "cc1 x.c"}, [2]string{cc1.Text[top.Unit], cc1.Text[top.Command]})
	assert.InDelta(t, 20, rowOf(t, programs, "cc1", "bob").Energy.Joules(), 1e-9)
	assert.InDelta(t, 14, rowOf(t, programs, "make (descendants)", "ann").Energy.Joules(), 1e-9)
	assert.InDelta(t, 4, rowOf(t, programs, "(unnamed)", "ann").Energy.Joules(), 1e-9)
	assert.Equal(t, cc1.Program, rowOf(t, processes, "cc1", "ann").Program)
	of := 0
	for _, r := range processes {
		if r.Program == cc1.Program {
			of++
		}
	}
	assert.Equal(t, 2, of, "the process with a series of its own, and the others of the program")
	assert.Equal(t, map[string]float64{"ann": 74, "bob": 20, "(others)": 6}, energies(f.Tables[top.Users]))
}

func TestAllKindsOfWorkloadsHaveTheirNames(t *testing.T) {
	const container, pod = "0123456789abcdef0123456789abcdef", "6f9619ff-8b86-4011-b42d-00c04fc964ff"
	text := fmt.Sprintf(`# TYPE system_power_watts gauge
system_power_watts{energy_zone="package",energy_method="modeled",energy_state="active",host_name="node-1"} 9
system_power_watts{energy_zone="gpu",energy_method="measured",energy_state="active"} 1
# TYPE process_power_watts gauge
process_power_watts{process_pid="7",process_executable_name="nginx",process_command_line="nginx -g off",container_id=%[1]q,k8s_pod_uid=%[2]q,energy_zone="package",energy_method="modeled"} 4
process_power_watts{process_pid="7",process_executable_name="nginx",process_command_line="nginx -g off",container_id=%[1]q,k8s_pod_uid=%[2]q,energy_zone="gpu",energy_method="measured"} 1
process_power_watts{otel_metric_overflow="true",energy_zone="package",energy_method="modeled"} 1
process_power_watts{process_pid="8",process_executable_name="other",energy_zone="package",energy_method="modeled"} 1
# TYPE process_cpu_time_seconds_total counter
process_cpu_time_seconds_total{process_pid="7",process_executable_name="nginx",process_command_line="nginx -g off",container_id=%[1]q,k8s_pod_uid=%[2]q} 2.5
# TYPE container_power_watts gauge
container_power_watts{container_id=%[1]q,container_runtime_name="containerd",k8s_pod_uid=%[2]q,k8s_namespace_name="shop",k8s_pod_name="web-1",k8s_container_name="front",container_image_name="nginx",energy_zone="package",energy_method="modeled"} 4
container_power_watts{otel_metric_overflow="true",energy_zone="package",energy_method="modeled"} 2
container_power_watts{otel_metric_overflow="true",k8s_namespace_name="batch",k8s_container_name="job",energy_zone="package",energy_method="modeled"} 1
# TYPE k8s_pod_power_watts gauge
k8s_pod_power_watts{k8s_pod_uid=%[2]q,k8s_pod_qos_class="Burstable",k8s_namespace_name="shop",k8s_pod_name="web-1",energy_zone="package",energy_method="modeled"} 4
# TYPE vm_power_watts gauge
vm_power_watts{vm_id="8d3e4f62-7c2a-4c1e-9f10-000000000001",vm_name="build-1",vm_hypervisor="qemu",energy_zone="package",energy_method="modeled"} 3
# TYPE systemd_unit_power_watts gauge
systemd_unit_power_watts{systemd_unit_name="nginx.service",energy_zone="package",energy_method="modeled"} 4
# TYPE slurm_step_power_watts gauge
slurm_step_power_watts{slurm_job_id="31",slurm_step_id="0",energy_zone="package",energy_method="modeled"} 1
slurm_step_power_watts{slurm_job_id="32",energy_zone="package",energy_method="modeled"} 1
`, container, pod)
	f := framesOf(t, &snapshot.Account{}, text)[0]
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
	assert.Equal(t, map[bool]int{false: 2, true: 4}, pinned, "a process may be called other: it has a PID")

	first := func(v top.View) [3]string {
		r := f.Tables[v][0]
		return [3]string{r.Text[top.Name], r.Text[top.ID], r.Text[top.Namespace]}
	}
	assert.Equal(t, [3]string{"front", "0123456789ab", "shop"}, first(top.Containers))
	assert.True(t, f.Tables[top.Containers][1].Pinned, "(others)")
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
	r.Text[top.User] = "the real user"
	newProcessFiles("/").describe(&r, identity.CreatedAt(created))
	assert.Equal(t, "the real user", r.Text[top.User], "as in the table of programs")
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
	assert.Empty(t, untouched.Text)
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
		from, err := openSource(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, host == "", from.files != nil, endpoint)
	}
}
