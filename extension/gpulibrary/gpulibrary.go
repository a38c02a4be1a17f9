// SPDX-License-Identifier: Apache-2.0

// Package gpulibrary defines the interface between the energy receiver and an extension that reads
// GPUs by a vendor's library. The receiver finds the extension by its component ID, in its setting
// meters::gpu::extensions.
package gpulibrary

import (
	"context"
	"time"
)

// Extension is an extension of the collector that reads GPUs.
type Extension interface {
	// Open returns a reader for one receiver. It touches nothing of the machine.
	Open() Reader
}

// Reader reads the GPUs of a library. One goroutine at a time uses it.
type Reader interface {
	// Poll returns every GPU, with its energy and the processes that used it since the last Poll.
	// It may take long: the receiver waits for it on a goroutine of its own. It returns soon after
	// ctx is done where the library lets it. The devices are valid until the next call.
	//
	// The error reports why no GPU could be read; fs.ErrNotExist means that the library or its
	// driver is missing. While a state lasts, the text of its error stays the same. A later call
	// tries again.
	Poll(ctx context.Context) ([]Device, error)
	// Close releases the library. No Poll follows.
	Close() error
}

// Device is a GPU at the time of a poll.
type Device struct {
	ID     string // stable over restarts, such as NVML's UUID
	Name   string // of the product
	Vendor string // "NVIDIA"
	// PCIAddress is the GPU's directory in /sys/bus/pci/devices: "0000:65:00.0".
	PCIAddress string
	// MaxWatts is power that the GPU never exceeds, 0 where that is not known.
	MaxWatts uint64
	// Module reports whether Energy and Power measure a module with the GPU and a CPU socket, as on
	// NVIDIA's Grace Hopper. The receiver subtracts the energy of the socket. Module does not change
	// during the life of the device.
	Module bool

	// At is when Energy or Power was read, with a monotonic clock reading.
	At time.Time
	// Energy is the GPU's energy counter in microjoules. It may be reset. It is used unless HasPower.
	Energy uint64
	// HasPower reports whether the GPU has no energy counter that can be used. Power is its power
	// in microwatts then, the mean over the time Average that ends at At; an Average of 0 stands
	// for the power of that moment.
	HasPower bool
	Power    int64
	Average  time.Duration
	// Err is why neither is known, nil if one is.
	Err error

	// Elapsed is the time that Busy, Users and Unattributed cover: up to At, since the last poll
	// that knew them. It is 0 at the first poll.
	Elapsed time.Duration
	// Busy is how much of Elapsed the GPU worked.
	Busy time.Duration
	// Assumed reports whether Busy is assumed, because the GPU does not report its activity.
	Assumed bool
	// Users lists the processes that used the GPU, and the processes that have it open without
	// using it.
	Users []User
	// Unattributed is the GPU time of processes that cannot be named.
	Unattributed time.Duration
	// UsageErr is why the users of the GPU are not known, nil if they are.
	UsageErr error
}

// User is a process that used a GPU or has it open, or several such processes that cannot be
// distinguished.
type User struct {
	PIDs []int32 // as the kernel's first PID namespace numbers them; at least one
	// Used is the GPU time of all of them.
	Used time.Duration
	// Memory is the GPU memory in bytes that each process of PIDs holds, in the same order, or 0 if
	// the amount is not available. The receiver divides Used in proportion to Memory. Memory is
	// empty if Used must not be divided by memory.
	Memory []uint64
	// Last is when they last used the GPU, zero where that is not known.
	Last time.Time
}
