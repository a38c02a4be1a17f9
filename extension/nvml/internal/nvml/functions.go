// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"reflect"
	"unsafe"

	"github.com/ebitengine/purego"
)

// handle is NVML's handle of a device or of a GPM sample.
type handle uintptr

// Signatures that several functions share.
type (
	textOf   func(device handle, to *byte, size uint32) Return
	numberOf func(device handle, to *uint32) Return
	listOf   func(device handle, count *uint32, to *byte) Return
)

// functions holds the functions of the library. The tag of each field is the name of the symbol.
type functions struct {
	initWithFlags  func(flags uint32) Return                                                                   `nvml:"nvmlInitWithFlags"`
	initV2         func() Return                                                                               `nvml:"nvmlInit_v2"`
	shutdown       func() Return                                                                               `nvml:"nvmlShutdown"`
	deviceCount    func(to *uint32) Return                                                                     `nvml:"nvmlDeviceGetCount_v2"`
	deviceByIndex  func(index uint32, to *handle) Return                                                       `nvml:"nvmlDeviceGetHandleByIndex_v2"`
	uuid           textOf                                                                                      `nvml:"nvmlDeviceGetUUID"`
	name           textOf                                                                                      `nvml:"nvmlDeviceGetName"`
	pci            func(device handle, to *pciInfo) Return                                                     `nvml:"nvmlDeviceGetPciInfo_v3"`
	totalEnergy    func(device handle, to *uint64) Return                                                      `nvml:"nvmlDeviceGetTotalEnergyConsumption"`
	powerUsage     numberOf                                                                                    `nvml:"nvmlDeviceGetPowerUsage"`
	fieldValues    func(device handle, count int32, values *fieldValue) Return                                 `nvml:"nvmlDeviceGetFieldValues"`
	powerLimits    func(device handle, least, most *uint32) Return                                             `nvml:"nvmlDeviceGetPowerManagementLimitConstraints"`
	utilization    func(device handle, to *utilizationRates) Return                                            `nvml:"nvmlDeviceGetUtilizationRates"`
	deviceSamples  func(device handle, kind uint32, since uint64, valueType, count *uint32, to *sample) Return `nvml:"nvmlDeviceGetSamples"`
	processSamples func(device handle, to *processSample, count *uint32, since uint64) Return                  `nvml:"nvmlDeviceGetProcessUtilization"`
	computeV3      listOf                                                                                      `nvml:"nvmlDeviceGetComputeRunningProcesses_v3"`
	computeV2      listOf                                                                                      `nvml:"nvmlDeviceGetComputeRunningProcesses_v2"`
	graphicsV3     listOf                                                                                      `nvml:"nvmlDeviceGetGraphicsRunningProcesses_v3"`
	graphicsV2     listOf                                                                                      `nvml:"nvmlDeviceGetGraphicsRunningProcesses_v2"`
	mpsV3          listOf                                                                                      `nvml:"nvmlDeviceGetMPSComputeRunningProcesses_v3"`
	migMode        func(device handle, current, pending *uint32) Return                                        `nvml:"nvmlDeviceGetMigMode"`
	migCount       numberOf                                                                                    `nvml:"nvmlDeviceGetMaxMigDeviceCount"`
	migByIndex     func(device handle, index uint32, to *handle) Return                                        `nvml:"nvmlDeviceGetMigDeviceHandleByIndex"`
	gpuInstance    numberOf                                                                                    `nvml:"nvmlDeviceGetGpuInstanceId"`
	attributes     func(device handle, to *attributes) Return                                                  `nvml:"nvmlDeviceGetAttributes_v2"`
	profile        func(device handle, profile uint32, to *profileInfo) Return                                 `nvml:"nvmlDeviceGetGpuInstanceProfileInfo"`
	gpmAlloc       func(to *handle) Return                                                                     `nvml:"nvmlGpmSampleAlloc"`
	gpmFree        func(sample handle) Return                                                                  `nvml:"nvmlGpmSampleFree"`
	gpmSample      func(device, sample handle) Return                                                          `nvml:"nvmlGpmSampleGet"`
	gpmMIGSample   func(device handle, instance uint32, sample handle) Return                                  `nvml:"nvmlGpmMigSampleGet"`
	gpmMetrics     func(get *gpmGet) Return                                                                    `nvml:"nvmlGpmMetricsGet"`
}

// bind finds the functions in a loaded library. A function that the library lacks returns FunctionNotFound.
func (f *functions) bind(library uintptr) {
	notFound := func([]reflect.Value) []reflect.Value { return []reflect.Value{reflect.ValueOf(FunctionNotFound)} }
	fields := reflect.ValueOf(f).Elem()
	for i := range fields.NumField() {
		field := fields.Type().Field(i)
		function := reflect.NewAt(field.Type, unsafe.Pointer(fields.Field(i).UnsafeAddr())) // the field is not exported
		if address, err := purego.Dlsym(library, field.Tag.Get("nvml")); err == nil {
			purego.RegisterFunc(function.Interface(), address)
		} else {
			function.Elem().Set(reflect.MakeFunc(field.Type, notFound))
		}
	}
}
