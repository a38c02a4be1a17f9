// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// need skips a test unless `make integration` started it as root.
func need(t *testing.T) {
	t.Helper()
	if os.Getenv("INTEGRATION") == "" {
		t.Skip("lacks INTEGRATION=1 in the environment: `make integration` sets it")
	}
	if os.Geteuid() != 0 {
		t.Skip("lacks root")
	}
}

// program returns the path of a program, or skips the test if it is missing.
func program(t *testing.T, name, aptPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("lacks %s: apt-get install %s", name, aptPackage)
	}
	return path
}

// cache returns the directory for files that are downloaded or built once.
func cache(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../build/integration")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}

// built returns a program that a target of make writes below build/, or the program that an
// environment variable names.
func built(t *testing.T, target, program, variable string) string {
	t.Helper()
	path := cmp.Or(os.Getenv(variable), filepath.Join("../../../build", program))
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("lacks %s: make %s", path, target)
	}
	return path
}

func collectorBinary(t *testing.T) string {
	t.Helper()
	return built(t, "build", "otelcol-energy", "INTEGRATION_COLLECTOR")
}

func kubernetesBinary(t *testing.T) string {
	t.Helper()
	return built(t, "build-kubernetes", "kubernetes/otelcol-energy", "INTEGRATION_KUBERNETES")
}

func gpuCollectorBinary(t *testing.T) string {
	t.Helper()
	return built(t, "build-gpu", "gpu/otelcol-energy", "INTEGRATION_GPU")
}

func profilesCollector(t *testing.T) string {
	t.Helper()
	return built(t, "build-profiles", "profiles/otelcol-energy", "INTEGRATION_PROFILES")
}

func energyBinary(t *testing.T) string {
	t.Helper()
	return built(t, "build", "energy", "INTEGRATION_ENERGY")
}

// build compiles a program of this directory statically.
func build(t *testing.T, name string) string {
	t.Helper()
	return buildFor(t, runtime.GOARCH, name)
}

// buildFor compiles a program of this directory statically for an architecture.
func buildFor(t *testing.T, processor, name string) string {
	t.Helper()
	return compiled(t, processor, "go", "build", "./"+name)
}

// buildTests compiles the tests of a package statically. path is the package's path in the module.
func buildTests(t *testing.T, path string) string {
	t.Helper()
	return compiled(t, runtime.GOARCH, "go", "test", "-c", "../../../"+path)
}

// compiled runs a go command that compiles a package, the last argument, and returns the path of
// the program.
func compiled(t *testing.T, processor string, args ...string) string {
	t.Helper()
	last := len(args) - 1
	out := filepath.Join(t.TempDir(), filepath.Base(args[last]))
	cmd := exec.Command(args[0], slices.Concat(args[1:last], []string{"-trimpath", "-ldflags=-s -w", "-o", out}, args[last:])...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+processor)
	run(t, cmd)
	return out
}

// run runs a command and returns its output.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s\n%s", cmd, out)
	return string(out)
}
