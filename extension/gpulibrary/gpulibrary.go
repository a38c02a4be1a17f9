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
	// Open returns a reader for one receiver. It does not access the machine.
	Open() Reader
}

// Reader reads the GPUs of a library. One goroutine at a time uses it.
type Reader interface {
	// Poll returns every GPU, with its energy and the processes that used it since the last Poll.
	// Poll may take long: the receiver calls it on a separate goroutine. Poll returns soon after
	// ctx is done if the library supports that. The devices are valid until the next call.
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
	// MaxWatts is an upper limit of the GPU's power, or 0 if the limit is not available.
	MaxWatts uint64
	// Module reports whether Energy and Power measure a module with the GPU and a CPU socket, as on
	// NVIDIA's Grace Hopper. The receiver subtracts the energy of the socket. Module does not change
	// during the life of the device.
	Module bool

	// At is when Energy or Power was read, with a monotonic clock reading.
	At time.Time
	// Energy is the GPU's energy counter in microjoules. It may be reset. It is used unless HasPower.
	Energy uint64
	// HasPower is set if the GPU has no usable energy counter. Then Power is its mean power in
	// microwatts over the time Average that ends at At. If Average is 0, Power is the power at At.
	HasPower bool
	Power    int64
	Average  time.Duration
	// Err is the reason if neither Energy nor Power could be read, otherwise nil.
	Err error

	// Elapsed is the time that Busy, Users and Unattributed cover: from the last poll that read
	// them to At. It is 0 at the first poll.
	Elapsed time.Duration
	// Busy is the part of Elapsed during which the GPU was active.
	Busy time.Duration
	// Assumed reports whether Busy is assumed, because the GPU does not report its activity.
	Assumed bool
	// Users lists the processes that used the GPU, and the processes that have it open without
	// using it.
	Users []User
	// Unattributed is the GPU time of processes that cannot be identified.
	Unattributed time.Duration
	// UsageErr is the reason if the users of the GPU could not be read, otherwise nil.
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
	// Last is when they last used the GPU, or zero if the time is not available.
	Last time.Time
}
