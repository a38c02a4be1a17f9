// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvmltest"
)

// open loads a scripted library without the listed functions.
func open(t *testing.T, script string, without ...string) (Library, *nvmltest.Library) {
	t.Helper()
	scripted := nvmltest.New(t, without...)
	scripted.Script(t, script)
	library, err := Open(scripted.Path)
	require.NoError(t, err)
	t.Cleanup(func() {
		scripted.Script(t, "")
		assert.NoError(t, library.Close())
	})
	return library, scripted
}

// openDevice loads a library with one GPU.
func openDevice(t *testing.T, script string, without ...string) (Device, *nvmltest.Library) {
	t.Helper()
	library, scripted := open(t, script, without...)
	d, err := library.Device(0)
	require.NoError(t, err)
	return d, scripted
}

// result calls a function that must not fail.
func result[T any](t *testing.T, function func() (T, error)) T {
	t.Helper()
	value, err := function()
	require.NoError(t, err)
	return value
}

// since calls a function with a timestamp. It must not fail.
func since[T any](t *testing.T, function func(since uint64) (T, error), timestamp uint64) T {
	t.Helper()
	return result(t, func() (T, error) { return function(timestamp) })
}

func TestDevicesAreDescribed(t *testing.T) {
	library, _ := open(t, `
device 00000000:65:00.0
  uuid GPU-7a2d
  name NVIDIA A100-SXM4-80GB
device 0001000A:C1:00.0
  uuid GPU-9c11
  name NVIDIA H100
`)
	assert.Equal(t, 2, result(t, library.DeviceCount))

	for i, want := range []struct{ uuid, name, address string }{
		{"GPU-7a2d", "NVIDIA A100-SXM4-80GB", "0000:65:00.0"},
		{"GPU-9c11", "NVIDIA H100", "1000a:c1:00.0"},
	} {
		d, err := library.Device(i)
		require.NoError(t, err)
		assert.Equal(t, want, struct{ uuid, name, address string }{result(t, d.UUID), result(t, d.Name), result(t, d.PCIAddress)})
	}
	_, err := library.Device(2)
	assert.ErrorIs(t, err, GPUIsLost)
}

func TestEnergyGrowsWithTime(t *testing.T) {
	d, _ := openDevice(t, "clock 2000000\ndevice 0:1:0.0\nenergy 5000000000 300000 1000000\nlimit 700000\nutilization 42")
	assert.Equal(t, uint64(5_000_300_000), result(t, d.TotalEnergy), "300 W for a second, and more than 32 bits")
	assert.Equal(t, uint32(700_000), result(t, d.PowerLimit))
	assert.Equal(t, uint32(42), result(t, d.Utilization))
}

func TestPowerIsTheAverageWhereTheGPUHasIt(t *testing.T) {
	for _, test := range []struct {
		name, script string
		without      []string
		milliwatts   uint32
		averaged     bool
		err          error
	}{
		{"average", "average 250000\nmomentary 260000\npower 270000", nil, 250_000, true, nil},
		{"momentary", "momentary 260000\npower 270000", nil, 260_000, false, nil},
		{"module", "module 423000\npower 270000", nil, 423_000, true, nil},
		{"usage", "power 270000", nil, 270_000, false, nil},
		{"older driver", "average 250000\npower 270000", []string{"nvmlDeviceGetFieldValues"}, 270_000, false, nil},
		{"fields fail", "fail nvmlDeviceGetFieldValues 999\naverage 1\npower 270000", nil, 270_000, false, nil},
		{"none", "", nil, 0, false, NotSupported},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, _ := openDevice(t, "device 0:1:0.0\n"+test.script, test.without...)
			milliwatts, averaged, err := d.Power()
			assert.Equal(t, test.err, err)
			assert.Equal(t, test.milliwatts, milliwatts)
			assert.Equal(t, test.averaged, averaged)
		})
	}
}

func TestAGPUWithoutPowerOfItsOwnMeasuresItsModule(t *testing.T) {
	for _, test := range []struct {
		name, script string
		without      []string
		want         bool
	}{
		{"Grace Hopper", "module 423000\nenergy 5", nil, true},
		{"the GPU as well", "momentary 300000\nmodule 423000", nil, false},
		{"the GPU alone", "momentary 300000", nil, false},
		{"neither", "power 300000", nil, false},
		{"fields fail", "fail nvmlDeviceGetFieldValues 999\nmodule 423000", nil, false},
		{"older driver", "module 423000", []string{"nvmlDeviceGetFieldValues"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, _ := openDevice(t, "device 0:1:0.0\n"+test.script, test.without...)
			assert.Equal(t, test.want, d.MeasuresModule())
		})
	}
}

func TestSymbolsThatAnOlderDriverLacksAreNotFound(t *testing.T) {
	d, _ := openDevice(t, "device 0:1:0.0\nuuid GPU-1", "nvmlInitWithFlags", "nvmlDeviceGetTotalEnergyConsumption", "nvmlGpmSampleAlloc")
	_, err := d.TotalEnergy()
	assert.Equal(t, FunctionNotFound, err)
	_, err = d.GPMSample()
	assert.Equal(t, FunctionNotFound, err)
	assert.Equal(t, "GPU-1", result(t, d.UUID), "the rest works")
}

func TestMissingLibrary(t *testing.T) {
	for _, name := range []string{"libnvidia-ml-of-no-machine.so.1", filepath.Join(t.TempDir(), "libnvidia-ml.so.1")} {
		_, err := Open(name)
		assert.ErrorIs(t, err, fs.ErrNotExist)
		assert.EqualError(t, err, "no library "+name+": file does not exist")
	}
}

func TestFileThatIsNoLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600))
	_, err := Open(path)
	assert.ErrorContains(t, err, "load "+path+": ")
	assert.NotErrorIs(t, err, fs.ErrNotExist)
}

func TestLibraryOfAnotherKind(t *testing.T) {
	scripted := nvmltest.New(t, "nvmlInitWithFlags", "nvmlInit_v2")
	_, err := Open(scripted.Path)
	assert.ErrorIs(t, err, FunctionNotFound)
}

func TestInitializationFails(t *testing.T) {
	const devices = ": the collector must be allowed to open /dev/nvidiactl and the GPUs' devices"
	scripted := nvmltest.New(t)
	for _, test := range []struct {
		code   string
		ret    Return
		target error
		text   string
	}{
		{"9", DriverNotLoaded, fs.ErrNotExist, "the NVIDIA driver is not loaded"},
		{"4", NoPermission, fs.ErrPermission, "no permission" + devices},
		{"17", OperatingSystem, fs.ErrPermission, "blocked by the operating system or a cgroup" + devices},
		{"18", LibraryMismatch, LibraryMismatch,
			"the NVML library and the kernel's driver have different versions: load the new driver, or reboot"},
		{"30", Return(30), Return(30), "NVML error 30"},
	} {
		scripted.Script(t, "fail nvmlInitWithFlags "+test.code)
		_, err := Open(scripted.Path)
		assert.ErrorIs(t, err, test.ret)
		assert.ErrorIs(t, err, test.target)
		assert.EqualError(t, err, "initialize "+scripted.Path+": "+test.text)
	}
	scripted.Script(t, "")
	library, err := Open(scripted.Path)
	require.NoError(t, err, "it is tried again")
	require.NoError(t, library.Close())
}

func TestFailuresOfOneGPUAndOfAll(t *testing.T) {
	library, scripted := open(t, "device 0:1:0.0\nenergy 1\ndevice 0:2:0.0\nenergy 2\nfail * 15")
	first, err := library.Device(0)
	require.NoError(t, err)
	_, err = library.Device(1)
	assert.ErrorIs(t, err, GPUIsLost)
	_ = result(t, first.TotalEnergy)

	scripted.Script(t, "fail * 1\ndevice 0:1:0.0\nenergy 1")
	_, err = first.TotalEnergy()
	assert.ErrorIs(t, err, Uninitialized)
	_, err = library.DeviceCount()
	assert.ErrorIs(t, err, Uninitialized)
}
