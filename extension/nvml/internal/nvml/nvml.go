// SPDX-License-Identifier: Apache-2.0

// Package nvml calls the part of NVIDIA's management library (NVML) that the extension needs.
package nvml

// Library is the loaded NVML. Its methods may hang, for example if a GPU has fallen off the bus. It
// is not safe for concurrent use. Errors of NVML have the type Return.
type Library interface {
	DeviceCount() (int, error)
	Device(index int) (Device, error)
	// Close shuts NVML down and unloads it.
	Close() error
}

// Device is a GPU or a slice of a GPU (MIG).
type Device interface {
	UUID() (string, error)
	Name() (string, error)
	PCIAddress() (string, error) // "0000:65:00.0"
	// TotalEnergy returns the energy since the driver was loaded, in mJ
	// (nvmlDeviceGetTotalEnergyConsumption, Volta and later).
	TotalEnergy() (uint64, error)
	// Power returns the power in mW. averaged reports whether it is the mean over a second instead
	// of the instantaneous power.
	Power() (milliwatts uint32, averaged bool, err error)
	// MeasuresModule reports whether the GPU's power and energy measure a module with a CPU socket.
	// This is the case if NVML supports the power scope of the module, but not the scope of the GPU.
	MeasuresModule() bool
	// PowerLimit returns the highest power limit that can be set, in mW.
	PowerLimit() (uint32, error)
	// Utilization returns the percentage of the driver's last sampling period during which a kernel
	// ran.
	Utilization() (uint32, error)
	// UtilizationSamples returns the samples of the graphics and compute engine that the driver has
	// taken after since, a timestamp in µs (nvmlDeviceGetSamples, NVML_GPU_UTILIZATION_SAMPLES). A
	// since of 0 selects all samples that the driver keeps. Without samples, for example of an idle
	// GPU, the result is empty and the error nil. The result is valid until the next call.
	UtilizationSamples(since uint64) ([]Utilization, error)
	// ProcessUtilization returns the usage of the GPU by process after since, a timestamp in µs
	// (nvmlDeviceGetProcessUtilization). Drivers sample the GPU about six times per second. They
	// return one entry per process: the mean over all samples after since, and the timestamp of the
	// last sample that includes the process. Without entries, the result is empty and the error
	// nil. The result is valid until the next call.
	ProcessUtilization(since uint64) ([]Sample, error)
	// Processes returns the compute, graphics and MPS processes that have the GPU open, each once,
	// ordered by PID.
	Processes() ([]Process, error)
	// MIG reports whether the GPU is divided into slices at present.
	MIG() (bool, error)
	// MIGDevices returns the slices of a GPU.
	MIGDevices() ([]Device, error)
	// Multiprocessors returns the number of streaming multiprocessors of a GPU or slice.
	Multiprocessors() (uint32, error)
	// GPMSample takes a sample of the performance monitors of a GPU or slice (Hopper and later).
	GPMSample() (GPMSample, error)
}

// Process is a process that has a GPU open (nvmlProcessInfo_t).
type Process struct {
	PID    uint32
	Memory uint64 // of the GPU, in bytes; 0 if it is not available
}

// Utilization is the utilization of a GPU in one sampling period of the driver (nvmlSample_t).
type Utilization struct {
	Timestamp uint64 // like Sample.Timestamp
	Percent   uint32 // of the period
}

// Sample is a process's utilization (nvmlProcessUtilizationSample_t).
type Sample struct {
	PID       uint32
	Timestamp uint64 // in µs: since the epoch with most drivers, since boot with others
	// Percentage of the time during which the process used each engine: streaming multiprocessors,
	// encoder, decoder.
	SM, Encoder, Decoder uint32
}

// GPMSample is a sample of performance monitors.
type GPMSample interface {
	// Activity returns the percentage of the time since an earlier sample during which any part of
	// the graphics or compute engine was busy (NVML_GPM_METRIC_GRAPHICS_UTIL). The samples must be
	// at least 100 ms apart.
	Activity(earlier GPMSample) (float64, error)
	// Free releases the sample.
	Free()
}
