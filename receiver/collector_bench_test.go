// SPDX-License-Identifier: Apache-2.0

//go:build linux

package energyreceiver

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

// BenchmarkCollector runs the built collector for twenty seconds and reports its share of one CPU and its resident
// memory. ns/op has no meaning here.
func BenchmarkCollector(b *testing.B) {
	binary := filepath.Join("..", "build", "otelcol-energy")
	if _, err := os.Stat(binary); err != nil {
		b.Skipf("%v: make build", err)
	}
	beside(b, func(b *testing.B) {
		for _, c := range []struct{ source, collection, window string }{
			{"procfs", "1s", "0s"}, {"bpf", "1s", "0s"}, {"bpf", "10s", "0s"}, {"bpf", "10s", "100ms"}, {"bpf", "10s", "10ms"},
		} {
			b.Run(fmt.Sprintf("%s/every=%s/window=%s", c.source, c.collection, c.window), func(b *testing.B) {
				config := fmt.Sprintf(`
receivers:
  energy: {collection_interval: %s, sampling_interval: %s, cpu_time: %s, meter: model, model: {idle_power: 40, max_power: 120}}
exporters:
  debug: {verbosity: basic}
service:
  pipelines: {metrics: {receivers: [energy], exporters: [debug]}}
  telemetry: {metrics: {level: none}, logs: {level: error}}
`, c.collection, c.window, c.source)
				for b.Loop() {
					cpu, rss := runCollector(b, binary, config)
					b.ReportMetric(100*cpu, "cpu-%")
					b.ReportMetric(rss/(1<<20), "RSS-MiB")
				}
			})
		}
	})
}

// runCollector returns the collector's CPU time as a share of the elapsed time after its start, and its memory at the
// end.
func runCollector(b *testing.B, binary, config string) (cpu, rss float64) {
	cmd := exec.Command(binary, "--config", "yaml:"+config)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(b, cmd.Start())
	stat := func() procfs.ProcStat {
		p, err := procfs.NewProc(cmd.Process.Pid)
		require.NoError(b, err, out.String())
		s, err := p.Stat()
		require.NoError(b, err, out.String())
		return s
	}
	const startUp, watched = 3 * time.Second, 20 * time.Second
	time.Sleep(startUp)
	before := stat()
	time.Sleep(watched)
	after := stat()
	require.NoError(b, cmd.Process.Signal(os.Interrupt))
	require.NoError(b, cmd.Wait(), out.String())
	return (after.CPUTime() - before.CPUTime()) / watched.Seconds(), float64(after.ResidentMemory())
}
