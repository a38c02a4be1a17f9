// SPDX-License-Identifier: Apache-2.0

package crowd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
)

// BenchmarkMemoryOfABurst runs the built collector, starts and ends many processes, and reports its
// resident memory in MiB: before, with them, and 90 s after. With a memory limit of 64 MiB it
// reports whether the collector survives. Ignore ns/op.
func BenchmarkMemoryOfABurst(b *testing.B) {
	binary := filepath.Join("..", "..", "..", "build", "otelcol-energy")
	if _, err := os.Stat(binary); err != nil {
		b.Skipf("%v: make build", err)
	}
	for _, c := range []struct {
		source    string
		processes int
		limited   bool
		env       string
	}{
		{source: "bpf", processes: 20_000},
		{source: "procfs", processes: 20_000},
		{"bpf", 10_000, true, "GOMEMLIMIT=48MiB"},
		{"bpf", 20_000, true, "GOMEMLIMIT=48MiB"},
		{"procfs", 20_000, true, "GOMEMLIMIT=48MiB"},
		{"bpf", 20_000, true, "GOMEMLIMIT=off"},
	} {
		b.Run(fmt.Sprintf("%s/processes=%d/limited=%t/%s", c.source, c.processes, c.limited, c.env), func(b *testing.B) {
			config := fmt.Sprintf(`
receivers:
  energy: {collection_interval: 1s, cpu_time: %s, meters: {use: []}, model: {idle_power: 40, max_power: 120}}
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 48, spike_limit_mib: 8}
exporters:
  debug: {verbosity: basic}
service:
  pipelines: {metrics: {receivers: [energy], processors: [%s], exporters: [debug]}}
  telemetry: {metrics: {level: none}, logs: {level: error}}
`, c.source, map[bool]string{true: "memory_limiter"}[c.limited])
			for b.Loop() {
				command := `exec "$0" "$@"`
				if c.limited {
					// The path is for cgroup v1.
					group := filepath.Join("/sys/fs/cgroup/memory", fmt.Sprint("energy-burst-", os.Getpid()))
					if err := os.Mkdir(group, 0o755); err != nil {
						b.Skip(err)
					}
					defer func() { require.NoError(b, os.Remove(group)) }()
					require.NoError(b, os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), fmt.Append(nil, 64<<20), 0o600))
					command = "echo $$ > " + group + "/cgroup.procs; " + command
				}
				cmd := exec.Command("sh", "-c", command, binary, "--config", "yaml:"+config)
				cmd.Env = append(os.Environ(), c.env)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				require.NoError(b, cmd.Start())
				p, err := procfs.NewProc(cmd.Process.Pid)
				require.NoError(b, err)
				report := func(name string, after time.Duration) {
					time.Sleep(after)
					s, err := p.Stat()
					require.NoError(b, err)
					if s.State != "Z" {
						b.ReportMetric(float64(s.ResidentMemory())/(1<<20), name)
					}
				}
				report("MiB-before", 10*time.Second)
				stop, err := Start(b.TempDir(), c.processes, 100)
				require.NoError(b, err)
				report("MiB-peak", 15*time.Second)
				require.NoError(b, stop())
				if !c.limited {
					report("MiB-after", 90*time.Second)
				}
				_ = cmd.Process.Signal(os.Interrupt)
				lives := 1.0
				if err := cmd.Wait(); err != nil {
					lives = 0
				}
				b.ReportMetric(lives, "lives")
			}
		})
	}
}
