// SPDX-License-Identifier: Apache-2.0

// Package dividetest writes the files of the topology of a machine, for tests.
package dividetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// SysCPU is the directory of the CPUs.
const SysCPU = "sys/devices/system/cpu/"

// Put writes files below a root.
func Put(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// MachineOf returns the root of a machine whose CPUs are in these packages and dies.
func MachineOf(t testing.TB, cpus ...[2]string) (root string) {
	root = t.TempDir()
	Put(t, root, map[string]string{SysCPU + "online": fmt.Sprintf("0-%d\n", len(cpus)-1)})
	for i, c := range cpus {
		dir := fmt.Sprintf("%scpu%d/topology/", SysCPU, i)
		Put(t, root, map[string]string{dir + "physical_package_id": c[0] + "\n", dir + "die_id": c[1] + "\n"})
	}
	return root
}
