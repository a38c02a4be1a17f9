// SPDX-License-Identifier: Apache-2.0

// Package nvml calls the part of NVIDIA's management library (NVML) that the extension needs.
package nvml

// Library is the loaded library. Its methods may hang, for example if a GPU has fallen off the bus.
// One goroutine at a time uses it. Errors of NVML have the type Return.
type Library interface {
	DeviceCount() (int, error)
	Device(index int) (Device, error)
	// Close shuts NVML down and unloads it.
	Close() error
}

// Device is a GPU, or a MIG device: a slice of one.
type Device interface {
	UUID() (string, error)
	Name() (string, error)
	PCIAddress() (string, error) // "0000:65:00.0"
	// TotalEnergy returns the energy since the driver was loaded, in mJ
	// (nvmlDeviceGetTotalEnergyConsumption, Volta and later).
	TotalEnergy() (uint64, error)
	// Power returns the power in mW, and whether it is an average over a second or the power of the moment.
	Power() (milliwatts uint32, averaged bool, err error)
	// MeasuresModule reports whether the GPU's power and energy measure a module with a CPU socket.
	// This is the case if NVML supports the power scope of the module, but not the scope of the GPU.
	MeasuresModule() bool
	// PowerLimit returns the highest power limit that can be set, in mW.
	PowerLimit() (uint32, error)
	// Utilization returns the percent of the driver's last sample period in which a kernel ran.
	Utilization() (uint32, error)
	// UtilizationSamples returns how busy the graphics and compute engine was at each sampling of the
	// driver since a timestamp in µs, which is exclusive; 0 selects all samples that the driver has
	// kept (nvmlDeviceGetSamples, NVML_GPU_UTILIZATION_SAMPLES). If there are no samples, for example
	// of an idle GPU, the result is empty without an error. The slice is valid until the next call.
	UtilizationSamples(since uint64) ([]Utilization, error)
	// ProcessUtilization returns the usage of the GPU by process since a timestamp in µs, exclusive
	// (nvmlDeviceGetProcessUtilization). Drivers sample the GPU about six times per second, and return
	// one entry per process: the mean over all samples since the timestamp, and the timestamp of the
	// last sample in which the process ran. If there are no entries, the result is empty without an
	// error. The slice is valid until the next call.
	ProcessUtilization(since uint64) ([]Sample, error)
	// Processes returns the compute, graphics and MPS processes that have the GPU open, each once,
	// ordered by PID.
	Processes() ([]Process, error)
	// MIG reports whether the GPU is divided into slices at present.
	MIG() (bool, error)
	// MIGDevices returns the slices of a GPU.
	MIGDevices() ([]Device, error)
	// Multiprocessors returns how many streaming multiprocessors a GPU or slice has.
	Multiprocessors() (uint32, error)
	// GPMSample takes a sample of the GPU's performance monitors, of the slice for a MIG device (Hopper and later).
	GPMSample() (GPMSample, error)
}

// Process is a process that has a GPU open (nvmlProcessInfo_t).
type Process struct {
	PID    uint32
	Memory uint64 // of the GPU, in bytes; 0 if it is not available
}

// Utilization is how busy a GPU was at one sampling of the driver (nvmlSample_t).
type Utilization struct {
	Timestamp uint64 // like Sample.Timestamp
	Percent   uint32 // of the sample's period
}

// Sample is a process's utilization (nvmlProcessUtilizationSample_t).
type Sample struct {
	PID       uint32
	Timestamp uint64 // µs of a clock of the driver: since the epoch with most drivers, since boot with others
	// Percent of the time in which the process used each part: streaming multiprocessors, encoder, decoder.
	SM, Encoder, Decoder uint32
}

// GPMSample is a sample of performance monitors.
type GPMSample interface {
	// Activity returns the percent of time since an earlier sample in which any part of the graphics or compute engine was
	// busy (NVML_GPM_METRIC_GRAPHICS_UTIL). The samples must be 100 ms apart or more.
	Activity(earlier GPMSample) (float64, error)
	// Free releases the sample.
	Free()
}
