// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ebitengine/purego"
)

// Open loads and initializes NVML. The name is a path, or a file name that the dynamic loader
// searches for, such as "libnvidia-ml.so.1". The error is fs.ErrNotExist if the library is missing
// or the driver is not loaded.
func Open(name string) (Library, error) {
	loaded, err := load(name)
	if err != nil {
		return nil, err
	}
	l := &library{loaded: loaded}
	l.bind(loaded)
	if err := l.initialize(); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: the collector must be allowed to open /dev/nvidiactl and the GPUs' devices", err)
		}
		return nil, errors.Join(fmt.Errorf("initialize %s: %w", name, err), purego.Dlclose(loaded))
	}
	return l, nil
}

// load loads a library without initializing it. The dynamic loader reports errors only as text.
func load(name string) (uintptr, error) {
	loaded, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err == nil {
		return loaded, nil
	}
	reason, found := strings.CutPrefix(err.Error(), name+": cannot open shared object file: ")
	switch {
	case found && reason == "No such file or directory":
		return 0, fmt.Errorf("no library %s: %w", name, fs.ErrNotExist)
	case found && reason == "Permission denied":
		return 0, fmt.Errorf("load %s: %w", name, fs.ErrPermission)
	default:
		return 0, fmt.Errorf("load %s: %w", name, err)
	}
}

// maxDevices is the maximum number of GPUs, and of MIG devices of a GPU, that are read.
const maxDevices = 256

type library struct {
	functions
	loaded uintptr
}

func (l *library) initialize() error {
	ret := l.initWithFlags(initNoGPUs)
	if ret == FunctionNotFound {
		ret = l.initV2()
	}
	return ret.err()
}

func (l *library) DeviceCount() (int, error) {
	var count uint32
	ret := l.deviceCount(&count)
	return int(min(count, maxDevices)), ret.err()
}

func (l *library) Device(index int) (Device, error) {
	var h handle
	if ret := l.deviceByIndex(uint32(index), &h); ret != Success {
		return nil, ret
	}
	return &device{library: l, handle: h}, nil
}

func (l *library) Close() error {
	return errors.Join(l.shutdown().err(), purego.Dlclose(l.loaded))
}

// text returns the string that a function writes to a buffer.
func text(function func(to *byte, size uint32) Return) (string, error) {
	var buffer [textSize]byte
	if ret := function(&buffer[0], textSize); ret != Success {
		return "", ret
	}
	return cString(buffer[:]), nil
}

func cString(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}
