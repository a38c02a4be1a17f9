// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvmltest"
)

// reader starts the extension with a library and opens a reader.
func reader(t *testing.T, path string) gpulibrary.Reader {
	t.Helper()
	factory := NewFactory()
	e, err := factory.Create(t.Context(), extensiontest.NewNopSettings(factory.Type()), &Config{Library: path})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	r := e.(gpulibrary.Extension).Open()
	t.Cleanup(func() {
		assert.NoError(t, r.Close())
		assert.NoError(t, e.Shutdown(t.Context()))
	})
	return r
}

func TestGPUsOfTheLibraryAreRead(t *testing.T) {
	scripted := nvmltest.New(t)
	scripted.Script(t, `
clock 1700000000000000
device 00000000:65:00.0
  uuid GPU-7a2d
  name NVIDIA A100-SXM4-80GB
  energy 123456
  limit 400000
  utilization 0
`)
	devices, err := reader(t, scripted.Path).Poll(t.Context())
	require.NoError(t, err)
	require.Len(t, devices, 1)
	d := devices[0]
	require.NoError(t, d.Err)
	assert.Equal(t, "GPU-7a2d", d.ID)
	assert.Equal(t, "NVIDIA A100-SXM4-80GB", d.Name)
	assert.Equal(t, "NVIDIA", d.Vendor)
	assert.Equal(t, "0000:65:00.0", d.PCIAddress)
	assert.Equal(t, uint64(123_456_000), d.Energy)
	assert.False(t, d.HasPower)
}

func TestMachineWithoutTheLibraryOrItsDriver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	r := reader(t, path)
	for range 2 {
		_, err := r.Poll(t.Context())
		require.ErrorIs(t, err, fs.ErrNotExist)
		assert.EqualError(t, err, "no library "+path+": file does not exist", "the text stays")
	}

	scripted := nvmltest.New(t)
	scripted.Script(t, "fail nvmlInitWithFlags 9")
	r = reader(t, scripted.Path)
	_, err := r.Poll(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)

	scripted.Script(t, "clock 1700000000000000\ndevice 0:1:0.0\nuuid GPU-1\nenergy 5")
	devices, err := r.Poll(t.Context())
	require.NoError(t, err, "the driver was loaded meanwhile")
	assert.Len(t, devices, 1)
}

// Several receivers name one extension, or those of a configuration before and after a change.
func TestReadersOfOneExtensionShareNothing(t *testing.T) {
	scripted := nvmltest.New(t)
	scripted.Script(t, "device 0:1:0.0\nuuid GPU-1\nenergy 5\nload 10 50\ncompute 10 1000000")
	e := &library{name: scripted.Path}
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for range 5 {
				r := e.Open()
				for range 20 {
					devices, err := r.Poll(t.Context())
					assert.NoError(t, err)
					assert.Len(t, devices, 1)
				}
				assert.NoError(t, r.Close())
			}
		})
	}
	readers.Wait()
}

// TestWithoutCgo repeats the tests as the collector is built: tests with the race detector use cgo.
func TestWithoutCgo(t *testing.T) {
	if os.Getenv("CGO_ENABLED") == "0" {
		t.Skip("the tests run without cgo already: CGO_ENABLED=0")
	}
	test := exec.Command("go", "test", ".", "./internal/nvml")
	test.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := test.CombinedOutput()
	assert.NoError(t, err, "%s", output)
}
