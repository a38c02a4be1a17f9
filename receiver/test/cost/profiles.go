// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"time"
)

// withTracefs runs a command in a mount namespace of its own, with tracefs, which the profiler needs.
var withTracefs = []string{"unshare", "--mount", "sh", "-ec", `
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
exec "$0" "$@"`}

// ifProfiles returns a collector if it has the profiler, as that of make build-profiles.
func ifProfiles(collector string) string {
	found, _ := exec.Command(collector, "components").Output() // a missing one fails in other scenarios
	if !bytes.Contains(found, []byte("profiling")) {
		return ""
	}
	return collector
}

// profilers returns collectors with the receiver, with the profiler, with both, and with the processor
// that divides energy among samples. They send to nowhere. Without a collector that has all of them the
// scenario is left out.
func profilers(p programs) (variants []variant, _ error) {
	if p.profiles == "" {
		return nil, nil
	}
	const metrics, profiles = "metrics: {receivers: [energy], exporters: [otlp_http]}", "profiles: {receivers: [profiling], exporters: [otlp_http]}"
	for _, v := range []struct{ name, pipelines string }{
		{"receiver", metrics},
		{"profiler", profiles},
		{"receiver and profiler", metrics + ", " + profiles},
		{"energyprofile", metrics + ", profiles: {receivers: [profiling], processors: [energyprofile], exporters: [otlp_http]}"},
	} {
		config := fmt.Sprintf(`yaml:
receivers: {energy: {model: {idle_power: 40, max_power: 120}}, profiling: {samples_per_second: 20}}
processors: {energyprofile: }
exporters: {otlp_http: {endpoint: 'http://%s'}}
service: {pipelines: {%s}, telemetry: {metrics: {level: none}, logs: {level: error}}}
`, sinkAddress, v.pipelines)
		command := append(append([]string{}, withTracefs...), p.profiles, "--feature-gates=service.profilesSupport", "--config", config)
		variants = append(variants, variant{name: v.name, interval: 10 * time.Second, isCollector: true, command: command})
	}
	return variants, nil
}
