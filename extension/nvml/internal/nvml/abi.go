// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import "math"

// The structures and constants of NVIDIA's public header nvml.h: https://docs.nvidia.com/deploy/nvml-api/. A test
// compares the sizes and offsets with those of a C compiler.

const (
	initNoGPUs = 1 // NVML_INIT_FLAG_NO_GPUS: no GPU is no error

	textSize = 96 // at least the buffers that NVML asks for a UUID and a name

	fieldPowerAverage = 185 // NVML_FI_DEV_POWER_AVERAGE: mW, over a second; Ampere and later, but not GA100
	fieldPowerInstant = 186 // NVML_FI_DEV_POWER_INSTANT: mW

	scopeModule = 1 // NVML_POWER_SCOPE_MODULE; NVML_POWER_SCOPE_GPU is 0

	notAvailable = math.MaxUint64 // NVML_VALUE_NOT_AVAILABLE as an unsigned number

	valueDouble = 0 // NVML_VALUE_TYPE_DOUBLE; the others are integers

	samplesGPUUtilization = 1 // NVML_GPU_UTILIZATION_SAMPLES

	gpmVersion      = 1  // NVML_GPM_METRICS_GET_VERSION
	gpmMetrics      = 98 // NVML_GPM_METRIC_MAX of the first header with it; NVML reads as many as the structure says
	gpmGraphicsUtil = 1  // NVML_GPM_METRIC_GRAPHICS_UTIL

	profiles = 16 // more than there are GPU instance profiles (NVML_GPU_INSTANCE_PROFILE_COUNT)
)

// pciInfo is nvmlPciInfo_t.
type pciInfo struct {
	_     [16]byte // busIdLegacy
	_     [5]uint32
	busID [32]byte // "00000000:65:00.0"
}

// utilizationRates is nvmlUtilization_t.
type utilizationRates struct {
	gpu uint32 // percent
	_   uint32 // memory
}

// sample is nvmlSample_t.
type sample struct {
	timestamp uint64
	value     [8]byte // nvmlValue_t
}

// processSample is nvmlProcessUtilizationSample_t.
type processSample struct {
	pid                     uint32
	timestamp               uint64
	sm, _, encoder, decoder uint32 // the second is the memory's
}

// fieldValue is nvmlFieldValue_t.
type fieldValue struct {
	field, scope uint32
	_            [2]int64 // timestamp, latencyUsec
	valueType    uint32
	ret          Return
	value        [8]byte // nvmlValue_t
}

// attributes is nvmlDeviceAttributes_t.
type attributes struct {
	multiprocessors uint32
	_               [7]uint32
	_               uint64
}

// profileInfo is nvmlGpuInstanceProfileInfo_t.
type profileInfo struct {
	_               [4]uint32 // id, isP2pSupported, sliceCount, instanceCount
	multiprocessors uint32
	_               [5]uint32
	_               uint64
}

// gpmMetric is nvmlGpmMetric_t.
type gpmMetric struct {
	id    uint32
	ret   Return
	value float64
	_     [3]uintptr // names and unit
}

// gpmGet is nvmlGpmMetricsGet_t.
type gpmGet struct {
	version, metricCount uint32
	sample1, sample2     handle
	metrics              [gpmMetrics]gpmMetric
}

// The size of an entry in a list of processes. The header says processSize (nvmlProcessInfo_t), but drivers around
// 535 write nvmlProcessDetail_v1_t, and others write nvmlProcessInfo_v1_t, without indicating it:
// https://github.com/XuehaiPan/nvitop/pull/79, https://github.com/XuehaiPan/nvitop/pull/226
const (
	processSizeV1     = 16 // pid and usedGpuMemory, which is at offset 8 in all versions
	processSize       = 24 // pid, usedGpuMemory, gpuInstanceId, computeInstanceId
	processSizeDetail = 32 // the same, and usedGpuCcProtectedMemory
)
