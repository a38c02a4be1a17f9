// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package command

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// Group is the group of a command and its descendants. Only Linux has groups.
type Group struct{}

// Process is a command that was started.
type Process struct{}

var errLinux = errors.New("commands are measured on Linux only")

// Attach fails.
func Attach(Options, int) (*Group, error) { return nil, errLinux }

// New fails.
func New(Options) (*Group, error) { return nil, errLinux }

func (*Group) Used() (units.CPUTime, error)                { return 0, errLinux }
func (*Group) Processes(func(int32)) error                 { return errLinux }
func (*Group) Args() []string                              { return nil }
func (*Group) AwaitEnd(context.Context) bool               { return true }
func (*Group) Counted() (used units.CPUTime, at time.Time) { return 0, time.Time{} }
func (*Group) End()                                        {}
func (*Group) Source() cpu.Source                          { return nil }
func (*Group) NamedSource(cpu.Source) cpu.Source           { return nil }
func (*Group) Method() Method                              { return "" }
func (*Group) Rejected() error                             { return errLinux }
func (*Group) Lost() error                                 { return nil }
func (*Group) Path() string                                { return "" }
func (*Group) Start(Command) (*Process, error)             { return nil, errLinux }
func (*Group) Leftover() ([]Left, error)                   { return nil, errLinux }
func (*Group) Close() error                                { return nil }
func (*Process) PID() int                                  { return 0 }
func (*Process) AwaitEnd() error                           { return errLinux }
func (*Process) Wait() (Status, error)                     { return Status{}, errLinux }
func (*Process) Signal(os.Signal) error                    { return errLinux }
func (*Process) Relay() (stop func())                      { return func() {} }
