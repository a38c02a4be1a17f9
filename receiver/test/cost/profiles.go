// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"time"
)

// withTracefs runs a command in a mount namespace with tracefs, which the profiler needs.
var withTracefs = []string{"unshare", "--mount", "sh", "-ec", `
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
exec "$0" "$@"`}

const (
	metricsPipeline        = "metrics: {receivers: [energy], exporters: [otlp_http]}"
	profilesPipeline       = "profiles: {receivers: [profiling], exporters: [otlp_http]}"
	energyprofilePipelines = metricsPipeline + ", profiles: {receivers: [profiling], processors: [energyprofile], exporters: [otlp_http]}"
)

// profiler returns the program of a row: a collector with the profiler, built by make
// build-profiles. It exports to a server that ignores the data.
func profiler(name, pipelines string) func(programs) (variant, error) {
	return func(p programs) (variant, error) {
		found, _ := exec.Command(p.collector, "components").Output() // if it fails, other scenarios fail
		if !bytes.Contains(found, []byte("profiling")) {
			return variant{}, errMissing
		}
		config := fmt.Sprintf(`yaml:
receivers: {energy: {model: {idle_power: 40, max_power: 120}}, profiling: {samples_per_second: 20}}
processors: {energyprofile: }
exporters: {otlp_http: {endpoint: 'http://%s'}}
service: {pipelines: {%s}, telemetry: {metrics: {level: none}, logs: {level: error}}}
`, sinkAddress, pipelines)
		command := append(append([]string{}, withTracefs...), p.collector, "--feature-gates=service.profilesSupport", "--config", config)
		return variant{name: name, interval: 10 * time.Second, command: command}, nil
	}
}
