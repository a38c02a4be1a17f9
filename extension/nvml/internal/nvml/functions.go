// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"reflect"

	"github.com/ebitengine/purego"
)

// handle is a device or a GPM sample of NVML's.
type handle uintptr

// Functions of the same shape.
type (
	textOf   func(device handle, to *byte, size uint32) Return
	numberOf func(device handle, to *uint32) Return
	listOf   func(device handle, count *uint32, to *byte) Return
)

// functions are the library's functions.
type functions struct {
	initWithFlags  func(flags uint32) Return
	initV2         func() Return
	shutdown       func() Return
	deviceCount    func(to *uint32) Return
	deviceByIndex  func(index uint32, to *handle) Return
	uuid, name     textOf
	pci            func(device handle, to *pciInfo) Return
	totalEnergy    func(device handle, to *uint64) Return
	powerUsage     numberOf
	fieldValues    func(device handle, count int32, values *fieldValue) Return
	powerLimits    func(device handle, least, most *uint32) Return
	utilization    func(device handle, to *utilizationRates) Return
	deviceSamples  func(device handle, kind uint32, since uint64, valueType, count *uint32, to *sample) Return
	processSamples func(device handle, to *processSample, count *uint32, since uint64) Return
	computeV3      listOf
	computeV2      listOf
	graphicsV3     listOf
	graphicsV2     listOf
	mpsV3          listOf
	migMode        func(device handle, current, pending *uint32) Return
	migCount       numberOf
	migByIndex     func(device handle, index uint32, to *handle) Return
	gpuInstance    numberOf
	attributes     func(device handle, to *attributes) Return
	profile        func(device handle, profile uint32, to *profileInfo) Return
	gpmAlloc       func(to *handle) Return
	gpmFree        func(sample handle) Return
	gpmSample      func(device, sample handle) Return
	gpmMIGSample   func(device handle, instance uint32, sample handle) Return
	gpmMetrics     func(get *gpmGet) Return
}

// bind finds the functions in a loaded library. One that it lacks returns FunctionNotFound.
func (f *functions) bind(library uintptr) {
	for symbol, to := range map[string]any{
		"nvmlInitWithFlags":                            &f.initWithFlags,
		"nvmlInit_v2":                                  &f.initV2,
		"nvmlShutdown":                                 &f.shutdown,
		"nvmlDeviceGetCount_v2":                        &f.deviceCount,
		"nvmlDeviceGetHandleByIndex_v2":                &f.deviceByIndex,
		"nvmlDeviceGetUUID":                            &f.uuid,
		"nvmlDeviceGetName":                            &f.name,
		"nvmlDeviceGetPciInfo_v3":                      &f.pci,
		"nvmlDeviceGetTotalEnergyConsumption":          &f.totalEnergy,
		"nvmlDeviceGetPowerUsage":                      &f.powerUsage,
		"nvmlDeviceGetFieldValues":                     &f.fieldValues,
		"nvmlDeviceGetPowerManagementLimitConstraints": &f.powerLimits,
		"nvmlDeviceGetUtilizationRates":                &f.utilization,
		"nvmlDeviceGetSamples":                         &f.deviceSamples,
		"nvmlDeviceGetProcessUtilization":              &f.processSamples,
		"nvmlDeviceGetComputeRunningProcesses_v3":      &f.computeV3,
		"nvmlDeviceGetComputeRunningProcesses_v2":      &f.computeV2,
		"nvmlDeviceGetGraphicsRunningProcesses_v3":     &f.graphicsV3,
		"nvmlDeviceGetGraphicsRunningProcesses_v2":     &f.graphicsV2,
		"nvmlDeviceGetMPSComputeRunningProcesses_v3":   &f.mpsV3,
		"nvmlDeviceGetMigMode":                         &f.migMode,
		"nvmlDeviceGetMaxMigDeviceCount":               &f.migCount,
		"nvmlDeviceGetMigDeviceHandleByIndex":          &f.migByIndex,
		"nvmlDeviceGetGpuInstanceId":                   &f.gpuInstance,
		"nvmlDeviceGetAttributes_v2":                   &f.attributes,
		"nvmlDeviceGetGpuInstanceProfileInfo":          &f.profile,
		"nvmlGpmSampleAlloc":                           &f.gpmAlloc,
		"nvmlGpmSampleFree":                            &f.gpmFree,
		"nvmlGpmSampleGet":                             &f.gpmSample,
		"nvmlGpmMigSampleGet":                          &f.gpmMIGSample,
		"nvmlGpmMetricsGet":                            &f.gpmMetrics,
	} {
		address, err := purego.Dlsym(library, symbol)
		if err == nil {
			purego.RegisterFunc(to, address)
			continue
		}
		function := reflect.ValueOf(to).Elem()
		function.Set(reflect.MakeFunc(function.Type(), functionNotFound))
	}
}

func functionNotFound([]reflect.Value) []reflect.Value {
	return []reflect.Value{reflect.ValueOf(FunctionNotFound)}
}
