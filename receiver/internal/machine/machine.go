// SPDX-License-Identifier: Apache-2.0

// Package machine holds the functions that read the machine for a receiver, so that they can be
// replaced.
package machine

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// Machine holds the functions that read the machine for a receiver. The receiver itself reads only
// files below root_path. Tests, simulators and embedding programs replace functions before they pass
// the Machine to a receiver. GPU libraries are extensions, which the collector provides.
type Machine struct {
	// Now returns the time of a measurement.
	Now func() time.Time
	// NewMetronome returns a metronome that beats at the end of each window.
	NewMetronome func(window time.Duration) windows.Metronome
	// Clocks returns the time since boot, with time in suspend, and the time in suspend alone. Both are
	// 0 if the clocks cannot be read.
	Clocks func() (boot, suspended time.Duration)
	// ReadCPUs returns the logical CPUs of the machine whose root directory is root.
	ReadCPUs func(root string) ([]divide.CPU, error)
	// OpenCPU opens the CPU time source. rejected is the reason why a preferred source is not used.
	OpenCPU func(cpu.Options) (reader *cpu.Reader, rejected, err error)
	// OpenWeigher opens the Weigher of an attribution weight. It returns an error if the machine cannot
	// measure the weight.
	OpenWeigher func(window.Key, *window.KeyOptions) (window.Weigher, error)
	// FindHardware returns the hardware events that the machine with this root directory can count
	// for each process, or the reason why it cannot count them.
	FindHardware func(root string) (*perfevent.Hardware, error)
	// OpenMeters opens the meters, and the sources of GPU usage that meters have.
	OpenMeters func(context.Context, *config.Config, component.Host, component.TelemetrySettings) (*power.Set, error)
	// OpenStorage returns the storage of the state.
	OpenStorage state.Opener
}

// Local returns the machine on which the program runs.
func Local() Machine {
	return Machine{
		Now: time.Now, NewMetronome: windows.NewMetronome, Clocks: kernelClocks,
		ReadCPUs: divide.ReadCPUs, OpenCPU: cpu.OpenReader, OpenWeigher: window.OpenWeigher, FindHardware: perfevent.FindHardware,
		OpenMeters: meters.Open, OpenStorage: state.OpenStorage,
	}
}
