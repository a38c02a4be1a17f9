// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// openMimir returns how one Mimir is started, with all of its parts. Resource attributes become labels as the
// shipped configuration of Prometheus has it.
func openMimir(flags ...string) func(t *testing.T, dir string) (backend, error) {
	return func(t *testing.T, dir string) (backend, error) { return startMimir(t, dir, flags...) }
}

func startMimir(t *testing.T, dir string, flags ...string) (backend, error) {
	binary, err := program(t, "mimir", "mimir")
	if err != nil {
		return nil, err
	}
	promoted, err := promotedAttributes()
	if err != nil {
		return nil, err
	}
	config, err := filepath.Abs("mimir/mimir.yaml")
	if err != nil {
		return nil, err
	}
	endpoint, grpc, gossip := freeEndpoint(t), freeEndpoint(t), freeEndpoint(t)
	cmd := exec.Command(binary, append(flags, "-config.file="+config, "-config.expand-env=true")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PORT="+portOf(endpoint), "GRPC_PORT="+portOf(grpc), "GOSSIP_PORT="+portOf(gossip), "PROMOTED="+promoted)
	address := "http://" + endpoint
	p := &prometheus{api: address + "/prometheus/api/v1", otlp: address + "/otlp/v1/metrics"}
	return p, start(t, cmd, filepath.Join(dir, "log"), address+"/ready")
}

func portOf(endpoint string) string { return endpoint[strings.LastIndexByte(endpoint, ':')+1:] }

var (
	promoteList  = regexp.MustCompile(`(?m)^  promote_resource_attributes:\n((?:    .*\n)+)`)
	promotedItem = regexp.MustCompile(`(?m)^    - ([a-z0-9._]+)`)
)

// promotedAttributes returns those of the shipped configuration of Prometheus, separated by commas.
func promotedAttributes() (string, error) {
	text, err := os.ReadFile("../../../deploy/prometheus/prometheus.yaml")
	if err != nil {
		return "", err
	}
	list := promoteList.FindSubmatch(text)
	if list == nil {
		return "", fmt.Errorf("no promote_resource_attributes")
	}
	var names []string
	for _, item := range promotedItem.FindAllSubmatch(list[1], -1) {
		names = append(names, string(item[1]))
	}
	return strings.Join(names, ","), nil
}
