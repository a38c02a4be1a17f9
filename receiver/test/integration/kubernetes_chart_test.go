// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// One command installs the chart on a real API server, and its pod on a real kubelet sends metrics
// to a gateway. An upgrade changes the configuration.
func TestKubernetesChart(t *testing.T) {
	need(t)
	programs := kubernetesPrograms(t)
	helm := program(t, "helm", "none; make integration RUN=Kubernetes builds it")
	image := writeImage(t)
	k := startCluster(t, programs)
	k.importImage(t, image)
	k.importImage(t, loadImage(t))
	k.startNode(t)
	gateway := startGateway(t)

	renderer := filepath.Join(k.adapt(t, gateway.endpoint), "render.sh")
	require.NoError(t, os.WriteFile(renderer, []byte("#!/bin/sh\ncd \"${0%/*}\" && cat >all.yaml && exec "+programs+"/kubectl kustomize .\n"), 0o700))
	chart := func(command string, values ...string) {
		args := []string{command, "otelcol-energy", shipped(t, "chart"), "--kubeconfig", k.kubeconfig, "--post-renderer", renderer,
			"--set", "createNamespace=" + energySpace, "--set", "otlp.endpoint=" + gateway.endpoint, "--set", "otlp.insecure=true",
			"--set", "image.repository=otelcol-energy", "--set", "image.tag=0.1.0-dev"}
		run(t, exec.Command(helm, append(args, values...)...))
	}
	chart("install")
	first := k.waitRollout(t)
	gateway.waitFor(t, "metrics of the pod", func(all []emission) bool { return len(all) > 1 })

	chart("upgrade", "--set", "clusterName=east")
	require.NotEqual(t, first, k.waitRollout(t), "the controller replaces the pod")
	gateway.waitFor(t, "metrics with the cluster's name", func(all []emission) bool {
		last := all[len(all)-1]
		return len(last) > 0 && last[0].attributes["k8s.cluster.name"] == "east"
	})
	for _, p := range gateway.emissions(t)[len(gateway.emissions(t))-1] {
		require.Equal(t, "east", p.attributes["k8s.cluster.name"], "%s %v", p.metric, p.attributes)
	}
}
