// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"io/fs"
)

// Return is a return code of NVML (nvmlReturn_t). For errors.Is, the codes for a missing driver or
// library are fs.ErrNotExist, and the codes for a missing permission are fs.ErrPermission.
type Return uint32

// The return codes that callers distinguish.
const (
	Success          Return = 0
	Uninitialized    Return = 1
	InvalidArgument  Return = 2
	NotSupported     Return = 3
	NoPermission     Return = 4
	NotFound         Return = 6
	InsufficientSize Return = 7
	DriverNotLoaded  Return = 9
	Timeout          Return = 10
	LibraryNotFound  Return = 12
	FunctionNotFound Return = 13
	GPUIsLost        Return = 15
	ResetRequired    Return = 16
	OperatingSystem  Return = 17
	LibraryMismatch  Return = 18 // NVML and the kernel's driver have different versions
	NoData           Return = 21
	ArgumentVersion  Return = 25
	Unknown          Return = 999
)

var returnTexts = map[Return]string{
	Success:          "success",
	Uninitialized:    "NVML is not initialized",
	InvalidArgument:  "invalid argument",
	NotSupported:     "not supported",
	NoPermission:     "no permission",
	NotFound:         "not found",
	InsufficientSize: "insufficient size",
	DriverNotLoaded:  "the NVIDIA driver is not loaded",
	Timeout:          "timeout",
	LibraryNotFound:  "a library of the driver was not found",
	FunctionNotFound: "the driver's NVML is too old: a function is missing",
	GPUIsLost:        "the GPU has fallen off the bus",
	ResetRequired:    "the GPU must be reset",
	OperatingSystem:  "blocked by the operating system or a cgroup",
	LibraryMismatch:  "the NVML library and the kernel's driver have different versions: load the new driver, or reboot",
	NoData:           "no data",
	ArgumentVersion:  "the driver does not support this version of an argument",
	Unknown:          "internal error of the driver",

	// Codes that no caller distinguishes.
	8:  "the GPU's power cables are not attached",
	11: "the kernel has an interrupt issue with the GPU",
	20: "out of memory",
	23: "insufficient resources",
	27: "the system is not ready",
	28: "no GPU found",
	29: "invalid state",
}

func (r Return) Error() string {
	if text, ok := returnTexts[r]; ok {
		return text
	}
	return fmt.Sprintf("NVML error %d", uint32(r))
}

// Is supports errors.Is with fs.ErrNotExist and fs.ErrPermission.
func (r Return) Is(target error) bool {
	switch r {
	case DriverNotLoaded, LibraryNotFound:
		return target == fs.ErrNotExist
	case NoPermission, OperatingSystem:
		return target == fs.ErrPermission
	default:
		return false
	}
}

// err returns r, or nil if r is Success.
func (r Return) err() error {
	if r == Success {
		return nil
	}
	return r
}

// missing reports whether r means that the GPU or its driver lacks the function.
func (r Return) missing() bool { return r == NotSupported || r == FunctionNotFound }
