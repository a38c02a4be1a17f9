// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const uuid = "0a1b2c3d-0000-4000-8000-00000000000a"

var noon = time.Unix(1_800_000_000, 5)

// trees is a directory of trees.
type trees struct {
	*os.Root
	t    *testing.T
	path string
}

func newTrees(t *testing.T) *trees {
	path := t.TempDir()
	root, err := os.OpenRoot(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return &trees{root, t, path}
}

func (d *trees) open(id string) *tree {
	d.t.Helper()
	tree, _, err := openTree(d.Root, "vm1", id)
	require.NoError(d.t, err)
	return tree
}

// files returns the content of all files below the tree, by path.
func (d *trees) files() map[string]string {
	d.t.Helper()
	files := map[string]string{}
	vm := filepath.Join(d.path, "vm1")
	require.NoError(d.t, filepath.WalkDir(vm, func(path string, e fs.DirEntry, err error) error {
		require.NoError(d.t, err)
		if name := strings.TrimPrefix(path, vm+"/"); e.Type().IsRegular() {
			content, err := os.ReadFile(path)
			require.NoError(d.t, err)
			files[name] = string(content)
		}
		return nil
	}))
	return files
}

func zones(energies ...any) (zones []Zone) {
	for i := 0; i < len(energies); i += 2 {
		zones = append(zones, Zone{Kind: energies[i].(power.Kind), Energy: units.Energy(energies[i+1].(int))})
	}
	return zones
}

func TestATreeIsACompletePowercapTree(t *testing.T) {
	d := newTrees(t)
	tree := d.open(uuid)
	require.NoError(t, tree.write(d.Root, noon, zones(power.Package, 5, power.DRAM, 6, power.Platform, 7, power.Other, 8)))
	assert.Equal(t, map[string]string{
		"generation": "2\n", "update_time": "1800000000000000005\n", "epoch": tree.epoch + "\n", "vm_id": uuid + "\n",
		"intel-rapl:0/name": "package-0\n", "intel-rapl:0/energy_uj": "5\n",
		"intel-rapl:0/max_energy_range_uj":                "9223372036854775807\n",
		"intel-rapl:0/intel-rapl:0:0/name":                "dram\n",
		"intel-rapl:0/intel-rapl:0:0/energy_uj":           "6\n",
		"intel-rapl:0/intel-rapl:0:0/max_energy_range_uj": "9223372036854775807\n",
		"intel-rapl:1/name":                               "psys\n", "intel-rapl:1/energy_uj": "7\n",
		"intel-rapl:1/max_energy_range_uj": "9223372036854775807\n",
	}, d.files())
}

func TestATreeGoesOnAfterARestart(t *testing.T) {
	d := newTrees(t)
	before := d.open(uuid)
	require.NoError(t, before.write(d.Root, noon, zones(power.Package, 500, power.DRAM, 60)))
	after := d.open(uuid)
	require.NoError(t, after.write(d.Root, noon, zones(power.Package, 3, power.DRAM, 0)))
	files := d.files()
	assert.Equal(t, before.epoch+"\n", files["epoch"])
	assert.Equal(t, "4\n", files["generation"])
	assert.Equal(t, "503\n", files["intel-rapl:0/energy_uj"])
	assert.Equal(t, "60\n", files["intel-rapl:0/intel-rapl:0:0/energy_uj"])
}
