// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import "math"

// The structures and constants of NVIDIA's public header nvml.h:
// https://docs.nvidia.com/deploy/nvml-api/. A test compares their sizes and offsets with the layout
// of a C compiler.

const (
	initNoGPUs = 1 // NVML_INIT_FLAG_NO_GPUS: initialization succeeds without a GPU

	textSize = 96 // NVML_DEVICE_UUID_V2_BUFFER_SIZE, NVML_DEVICE_NAME_V2_BUFFER_SIZE

	fieldPowerAverage = 185 // NVML_FI_DEV_POWER_AVERAGE: mW, mean over 1 s; Ampere (not GA100) and later
	fieldPowerInstant = 186 // NVML_FI_DEV_POWER_INSTANT: mW

	scopeModule = 1 // NVML_POWER_SCOPE_MODULE; NVML_POWER_SCOPE_GPU is 0

	notAvailable = math.MaxUint64 // NVML_VALUE_NOT_AVAILABLE as an unsigned number

	valueDouble = 0 // NVML_VALUE_TYPE_DOUBLE; all other types are integers

	samplesGPUUtilization = 1 // NVML_GPU_UTILIZATION_SAMPLES

	gpmVersion      = 1  // NVML_GPM_METRICS_GET_VERSION
	gpmMetrics      = 98 // NVML_GPM_METRIC_MAX in the first version; NVML reads metricCount entries
	gpmGraphicsUtil = 1  // NVML_GPM_METRIC_GRAPHICS_UTIL

	profiles = 16 // an upper bound of NVML_GPU_INSTANCE_PROFILE_COUNT
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
	sm, _, encoder, decoder uint32 // the field without a name is memUtil
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

// Sizes of an entry in a list of processes. The header defines nvmlProcessInfo_t. Drivers around
// 535 write nvmlProcessDetail_v1_t and others nvmlProcessInfo_v1_t, without indicating the type:
// https://github.com/XuehaiPan/nvitop/pull/79, https://github.com/XuehaiPan/nvitop/pull/226
const (
	processSizeV1     = 16 // pid and usedGpuMemory, which is at offset 8 in all versions
	processSize       = 24 // and gpuInstanceId, computeInstanceId
	processSizeDetail = 32 // and usedGpuCcProtectedMemory
)
