// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// MinInterval is the shortest time between two measurements. Shorter ones would cost too much.
const MinInterval = 10 * time.Millisecond

// Options configure a measurement.
type Options struct {
	Command []string
	// PID, if it is not 0, is a process that is measured with its descendants, instead of a
	// command. It is measured until it ends, ctx ends, or For is over.
	PID int
	// For, if it is not 0, is the maximum duration of the measurement of PID.
	For time.Duration
	// Stdin, Stdout and Stderr are the files of the command. A nil file is closed.
	Stdin, Stdout, Stderr *os.File
	// Config is the configuration of the embedded receiver. It must be valid.
	Config *energyreceiver.Config
	// Extensions has the extensions that Config names, by their IDs.
	Extensions map[component.ID]component.Component
	// Interval is the time between two measurements, at least MinInterval.
	Interval time.Duration
	// Baseline is the duration of the measurement of the node's static power before the command
	// starts. 0 disables it.
	Baseline time.Duration
	// Before, if set, is the baseline of an earlier run, which replaces a new measurement.
	Before *Baseline
	// Wait is the maximum wait for meters that are read seldom: for their first answer before the
	// command starts, and for their outstanding energy after the command has ended. 0 disables
	// both.
	Wait time.Duration
	// NeedsEnergy prevents the start of the command if its energy cannot be measured or estimated.
	NeedsEnergy bool
	// Node also divides the energy of the whole machine; see By.
	Node bool
	// Say prints a message while Run waits. It may be nil.
	Say func(text string)
	// Progress, if it is not nil, is called after each measurement of the command with the energy that
	// the command has used until a time since its start.
	Progress func(elapsed time.Duration, used units.Energy)
	// Names requests the names of short-lived processes, which are available if BPF programs can be
	// loaded. Loading them delays the start of the command.
	Names bool
	// By selects the programs or containers of the machine as workloads if Node is set.
	By By
	// Profiler, if it is not nil, divides the energy among the command's functions.
	Profiler Profiler
}

// Profiler profiles a command while it runs.
type Profiler interface {
	// Begin is called right before the command starts. processes yields the command's processes.
	// receiver is the ID of the receiver that publishes their energy (package feed).
	Begin(receiver component.ID, processes func(yield func(pid int32)) error) error
	// End is called once the energy of the command is complete. It returns the profile of the
	// result, whose functions add up to Result.Used, and notes. ctx ends the wait for late samples.
	End(ctx context.Context, r *Result) (p *Profile, notes []string)
}
