// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSamplesSinceATimestamp(t *testing.T) {
	d, scripted := openDevice(t, `
clock 10000000
device 0:1:0.0
  sample 10 1000000 40 5 6 7
  sample 11 1000000 20 0 0 0
  sample 10 1166667 110 0 0 0
`)
	samples := since(t, d.ProcessUtilization, 0)
	assert.Equal(t, []Sample{
		{PID: 10, Timestamp: 1_000_000, SM: 40, Encoder: 6, Decoder: 7},
		{PID: 11, Timestamp: 1_000_000, SM: 20},
		{PID: 10, Timestamp: 1_166_667, SM: 110}, // as the driver reports it
	}, samples)
	assert.Equal(t, []Sample{{PID: 10, Timestamp: 1_166_667, SM: 110}}, since(t, d.ProcessUtilization, 1_000_000), "the timestamp is exclusive")
	assert.Empty(t, since(t, d.ProcessUtilization, 1_166_667))

	scripted.Script(t, "device 0:1:0.0\nmig on")
	_, err := d.ProcessUtilization(0)
	assert.Equal(t, NotSupported, err)
}

func TestSamplesOfTheGPU(t *testing.T) {
	d, scripted := openDevice(t, "device 0:1:0.0\ninstant 1000000 40\ninstant 1166667 110\ninstant 1333333 0")
	assert.Equal(t, []Utilization{{Timestamp: 1_166_667, Percent: 110}, {Timestamp: 1_333_333}}, since(t, d.UtilizationSamples, 1_000_000))
	assert.Empty(t, since(t, d.UtilizationSamples, 1_333_333))

	scripted.Script(t, "clock 1000000000\ndevice 0:1:0.0\nload 10 70\nbuffer 500")
	assert.Len(t, since(t, d.UtilizationSamples, 0), 500, "more than the first buffer, of which NVML fills as much as there is")

	scripted.Script(t, "device 0:1:0.0\nfail nvmlDeviceGetSamples 3")
	_, err := d.UtilizationSamples(0)
	assert.Equal(t, NotSupported, err)
}

func TestMoreSamplesThanTheBuffer(t *testing.T) {
	var script strings.Builder
	script.WriteString("device 0:1:0.0\nundersize 100\n")
	for i := range 900 {
		fmt.Fprintf(&script, "sample 10 %d 1 0 0 0\n", i+1)
	}
	d, scripted := openDevice(t, "trace\n"+script.String())
	scripted.Calls(t)
	samples := since(t, d.ProcessUtilization, 0)
	assert.Len(t, samples, 900)
	assert.Equal(t, uint64(900), samples[899].Timestamp)
	assert.Len(t, scripted.Calls(t), 3, "128, the 800 that it says, twice that")
	_ = since(t, d.ProcessUtilization, 0)
	assert.Len(t, scripted.Calls(t), 1, "the buffer is kept")

	scripted.Script(t, "device 0:1:0.0\nfail nvmlDeviceGetProcessUtilization 7")
	_, err := d.ProcessUtilization(0)
	assert.Equal(t, InsufficientSize, err, "a buffer that is never large enough")
}

func TestProcessesOfAllLists(t *testing.T) {
	for _, stride := range []int{processSizeV1, processSize, processSizeDetail} {
		t.Run(fmt.Sprint(stride), func(t *testing.T) {
			d, scripted := openDevice(t, fmt.Sprintf(`
device 0:1:0.0
  compute 10 4096
  compute 4000000000 18446744073709551615
  graphics 10 4096
  graphics 12 100
  mps 13 9223372036854775807
  stride %d
`, stride))
			assert.Equal(t, []Process{{10, 4096}, {12, 100}, {13, math.MaxInt64}, {PID: 4_000_000_000}}, result(t, d.Processes), "10 once")

			var many strings.Builder
			for i := range 300 {
				fmt.Fprintf(&many, "compute %d 1 5\n", i+1)
			}
			scripted.Script(t, fmt.Sprintf("device 0:1:0.0\nstride %d\nundersize 20\n%s", stride, &many))
			processes := result(t, d.Processes)
			require.Len(t, processes, 300)
			for i, p := range processes {
				require.Equal(t, uint32(i+1), p.PID)
			}
			scripted.Script(t, "device 0:1:0.0")
			assert.Empty(t, result(t, d.Processes))
		})
	}
}

func TestProcessesOfAnOlderDriver(t *testing.T) {
	const v3 = "nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetGraphicsRunningProcesses_v3 nvmlDeviceGetMPSComputeRunningProcesses_v3"
	const v2 = " nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses_v2"
	const script = "device 0:1:0.0\ncompute 10 1\ngraphics 11 1\nmps 12 1"
	d, scripted := openDevice(t, script, strings.Fields(v3)...)
	assert.Len(t, result(t, d.Processes), 2, "it does not list those of MPS")

	scripted.Script(t, script+"\nfail nvmlDeviceGetGraphicsRunningProcesses_v2 3")
	assert.Len(t, result(t, d.Processes), 1, "a GPU without graphics")

	scripted.Script(t, script+"\nfail nvmlDeviceGetGraphicsRunningProcesses_v2 15")
	_, err := d.Processes()
	assert.Equal(t, GPUIsLost, err)

	d, _ = openDevice(t, script, strings.Fields(v3+v2)...)
	_, err = d.Processes()
	assert.Equal(t, FunctionNotFound, err)
}

func TestSlices(t *testing.T) {
	d, _ := openDevice(t, `
clock 1000000
device 0:1:0.0
  mig on
  multiprocessors 98
  compute 10 1 3
  compute 11 1 4
  compute 12 1 4
  slice MIG-a 3 42
    activity 0 80 0
  slice MIG-b 4 14
  slice MIG-c 4 28
`)
	assert.True(t, result(t, d.MIG))
	assert.Equal(t, uint32(98), result(t, d.Multiprocessors), "of the largest profile")

	slices := result(t, d.MIGDevices)
	require.Len(t, slices, 2, "one for each GPU instance")
	for i, want := range []struct {
		uuid            string
		multiprocessors uint32
		processes       []Process
	}{{"MIG-a", 42, []Process{{10, 1}}}, {"MIG-b", 42, []Process{{11, 1}, {12, 1}}}} {
		assert.Equal(t, want.uuid, result(t, slices[i].UUID))
		assert.Equal(t, want.multiprocessors, result(t, slices[i].Multiprocessors), "of all compute instances")
		assert.Equal(t, want.processes, result(t, slices[i].Processes))
	}
}

func TestGPUsWithoutMIG(t *testing.T) {
	d, _ := openDevice(t, "device 0:1:0.0")
	assert.False(t, result(t, d.MIG))
	assert.Empty(t, result(t, d.MIGDevices))
	_, err := d.Multiprocessors()
	assert.Equal(t, NotSupported, err)

	d, _ = openDevice(t, "device 0:1:0.0\nmig off\nmultiprocessors 98", "nvmlDeviceGetMigMode")
	assert.False(t, result(t, d.MIG))
}

func TestActivityOfPerformanceMonitors(t *testing.T) {
	const script = "trace\nclock %d\ndevice 0:1:0.0\nactivity 0 25 0\nmig on\nslice MIG-a 3 42\nactivity 0 80 0\nslice MIG-b 4 42"
	d, scripted := openDevice(t, fmt.Sprintf(script, 1_000_000))
	slices := result(t, d.MIGDevices)
	var before, after [2]GPMSample
	for i, device := range []Device{d, slices[0]} {
		before[i] = result(t, device.GPMSample)
	}
	scripted.Script(t, fmt.Sprintf(script, 1_500_000))
	for i, device := range []Device{d, slices[0]} {
		after[i] = result(t, device.GPMSample)
	}
	for i, want := range []float64{25, 80} {
		percent, err := after[i].Activity(before[i])
		require.NoError(t, err)
		assert.InDelta(t, want, percent, 1e-9)
	}
	_, err := after[0].Activity(after[0])
	assert.Equal(t, NotSupported, err, "the error of the metric")
	_, err = slices[1].GPMSample()
	assert.Equal(t, NotSupported, err)

	for i := range before {
		before[i].Free()
		after[i].Free()
		after[i].Free()
	}
	_, err = after[0].Activity(before[0])
	assert.Equal(t, InvalidArgument, err, "of samples that are released")
	calls := strings.Join(scripted.Calls(t), "\n")
	assert.Equal(t, 5, strings.Count(calls, "nvmlGpmSampleAlloc"))
	assert.Equal(t, 5, strings.Count(calls, "nvmlGpmSampleFree"), "each once, that of the failure too")
}

// A count that no machine has would take minutes of calls.
func TestCountsThatCannotBeTrue(t *testing.T) {
	calls := 0
	wrong := func(count *uint32) Return { *count = math.MaxUint32; return Success }
	l := &library{functions: functions{
		deviceCount: wrong,
		migCount:    func(_ handle, count *uint32) Return { return wrong(count) },
		migByIndex:  func(handle, uint32, *handle) Return { calls++; return NotFound },
		processSamples: func(_ handle, _ *processSample, count *uint32, _ uint64) Return {
			return wrong(count)
		},
		deviceSamples: func(_ handle, _ uint32, _ uint64, valueType, count *uint32, _ *sample) Return {
			*valueType = valueDouble + 1
			return wrong(count)
		},
		computeV3:  func(_ handle, count *uint32, _ *byte) Return { return wrong(count) },
		graphicsV3: func(handle, *uint32, *byte) Return { return NotSupported },
		mpsV3:      func(handle, *uint32, *byte) Return { return NotSupported },
	}}
	d := &device{library: l}
	assert.Equal(t, maxDevices, result(t, l.DeviceCount))
	assert.Empty(t, result(t, d.MIGDevices))
	assert.Equal(t, maxDevices, calls)
	assert.Len(t, since(t, d.ProcessUtilization, 0), firstBuffer, "what fits in the buffer")
	assert.Len(t, since(t, d.UtilizationSamples, 0), firstBuffer)
	assert.Len(t, result(t, d.Processes), 1, "each PID once")
}
