// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// device implements Device.
type device struct {
	*library
	handle handle
	slice  *slice // nil for a whole GPU

	// Reused buffers. NVML writes instants, entries and bytes.
	instants     []sample
	utilizations []Utilization
	entries      []processSample
	samples      []Sample
	bytes        []byte
}

// slice is a GPU instance of MIG. NVML lists one MIG device for each compute instance in it;
// handles contains all of them.
type slice struct {
	gpu      handle
	instance uint32
	handles  []handle
}

func (d *device) UUID() (string, error) {
	return text(func(to *byte, size uint32) Return { return d.uuid(d.handle, to, size) })
}

func (d *device) Name() (string, error) {
	return text(func(to *byte, size uint32) Return { return d.name(d.handle, to, size) })
}

func (d *device) PCIAddress() (string, error) {
	var info pciInfo
	if ret := d.pci(d.handle, &info); ret != Success {
		return "", ret
	}
	return sysfsAddress(cString(info.busID[:]))
}

// sysfsAddress converts a PCI address of NVML, which has a domain of eight digits, to the kernel's
// notation with four digits.
func sysfsAddress(busID string) (string, error) {
	domain, rest, found := strings.Cut(strings.ToLower(busID), ":")
	number, err := strconv.ParseUint(domain, 16, 32)
	if !found || err != nil {
		return "", fmt.Errorf("NVML returned %q, which is not a PCI address", busID)
	}
	return fmt.Sprintf("%04x:%s", number, rest), nil
}

func (d *device) TotalEnergy() (uint64, error) {
	var millijoules uint64
	ret := d.totalEnergy(d.handle, &millijoules)
	return millijoules, ret.err()
}

func (d *device) Power() (milliwatts uint32, averaged bool, err error) {
	values := [...]fieldValue{
		{field: fieldPowerAverage}, {field: fieldPowerInstant},
		{field: fieldPowerAverage, scope: scopeModule}, {field: fieldPowerInstant, scope: scopeModule},
	}
	if d.fieldValues(d.handle, int32(len(values)), &values[0]) == Success {
		for i := range values {
			if v := &values[i]; v.ret == Success && v.valueType != valueDouble {
				return binary.NativeEndian.Uint32(v.value[:]), v.field == fieldPowerAverage, nil
			}
		}
	}
	ret := d.powerUsage(d.handle, &milliwatts)
	return milliwatts, false, ret.err()
}

func (d *device) MeasuresModule() bool {
	values := [...]fieldValue{{field: fieldPowerInstant}, {field: fieldPowerInstant, scope: scopeModule}}
	ret := d.fieldValues(d.handle, int32(len(values)), &values[0])
	return ret == Success && values[0].ret.missing() && values[1].ret == Success
}

func (d *device) PowerLimit() (uint32, error) {
	var least, most uint32
	ret := d.powerLimits(d.handle, &least, &most)
	return most, ret.err()
}

func (d *device) Utilization() (uint32, error) {
	var rates utilizationRates
	ret := d.utilization(d.handle, &rates)
	return rates.gpu, ret.err()
}

// Sizes of the buffers for lists, in entries. Observed drivers keep 100 samples, so the first size
// is usually sufficient.
const (
	firstBuffer   = 128
	largestBuffer = 1 << 16
)

// read calls function with the size of the buffer to fill, and again with larger sizes until the
// list fits. It at least doubles the size, because a list may grow between two calls. It returns
// the number of entries.
func read(size int, function func(size int, count *uint32) Return) (int, Return) {
	for size = max(size, firstBuffer); ; {
		count := uint32(size)
		switch ret := function(size, &count); {
		case ret == Success:
			return min(int(count), size), Success
		case ret == NotFound: // the list is empty
			return 0, Success
		case ret != InsufficientSize || size >= largestBuffer:
			return 0, ret
		}
		size = min(max(2*size, int(count)), largestBuffer)
	}
}

func (d *device) UtilizationSamples(since uint64) ([]Utilization, error) {
	var valueType uint32
	count, ret := read(len(d.instants), func(size int, count *uint32) Return {
		d.instants = slices.Grow(d.instants[:0], size)[:size]
		ret := d.deviceSamples(d.handle, samplesGPUUtilization, since, &valueType, count, &d.instants[0])
		if ret == Success && int(*count) == size { // the list may be longer
			return InsufficientSize
		}
		return ret
	})
	if ret != Success {
		return nil, ret
	}
	if count > 0 && valueType == valueDouble {
		return nil, errValueType
	}
	d.utilizations = d.utilizations[:0]
	for _, s := range d.instants[:count] {
		percent := binary.NativeEndian.Uint32(s.value[:])
		d.utilizations = append(d.utilizations, Utilization{Timestamp: s.timestamp, Percent: percent})
	}
	return d.utilizations, nil
}

var errValueType = errors.New("NVML returned utilization samples that are not integers")

func (d *device) ProcessUtilization(since uint64) ([]Sample, error) {
	count, ret := read(len(d.entries), func(size int, count *uint32) Return {
		d.entries = slices.Grow(d.entries[:0], size)[:size]
		return d.processSamples(d.handle, &d.entries[0], count, since)
	})
	if ret != Success {
		return nil, ret
	}
	d.samples = d.samples[:0]
	for _, s := range d.entries[:count] {
		d.samples = append(d.samples, Sample{
			PID: s.pid, Timestamp: s.timestamp, SM: s.sm, Encoder: s.encoder, Decoder: s.decoder,
		})
	}
	return d.samples, nil
}

func (d *device) Processes() ([]Process, error) {
	var all []Process
	result := NotSupported // unless one of the lists is supported
	for _, h := range d.handles() {
		for _, lists := range [][]listOf{{d.computeV3, d.computeV2}, {d.graphicsV3, d.graphicsV2}, {d.mpsV3}} {
			switch some, ret := d.list(h, lists); {
			case ret == Success:
				result = Success
				all = append(all, some...)
			case !ret.missing():
				return nil, ret
			case result != Success:
				result = ret
			}
		}
	}
	// A process that computes and renders is in several lists. Keep the entry with the most memory.
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(b.Memory, a.Memory)) })
	return slices.CompactFunc(all, func(a, b Process) bool { return a.PID == b.PID }), result.err()
}

// list calls the first of the functions that the driver has, and returns the processes.
func (d *device) list(h handle, functions []listOf) ([]Process, Return) {
	for _, function := range functions {
		count, ret := read(len(d.bytes)/processSizeDetail, func(size int, count *uint32) Return {
			size *= processSizeDetail
			d.bytes = slices.Grow(d.bytes[:0], size)[:size]
			for i := range d.bytes {
				d.bytes[i] = untouched
			}
			return function(h, count, &d.bytes[0])
		})
		switch ret {
		case Success:
			return decodeProcesses(d.bytes, count), Success
		case FunctionNotFound:
			continue
		default:
			return nil, ret
		}
	}
	return nil, FunctionNotFound
}

// untouched marks the bytes of a buffer that NVML did not write. NVML never writes it as the last
// byte of an entry, which is the most significant byte of an amount of memory or of an instance ID.
const untouched = 0xa5

// decodeProcesses reads count entries. It infers the size of an entry from the number of bytes that
// were written.
func decodeProcesses(entries []byte, count int) []Process {
	written := len(entries)
	for written > 0 && entries[written-1] == untouched {
		written--
	}
	size := processSizeDetail
	for _, smaller := range []int{processSize, processSizeV1} {
		if count*smaller >= written {
			size = smaller
		}
	}
	processes := make([]Process, count)
	for i := range processes {
		entry := entries[i*size:]
		processes[i] = Process{PID: binary.NativeEndian.Uint32(entry), Memory: binary.NativeEndian.Uint64(entry[8:])}
		if processes[i].Memory == notAvailable {
			processes[i].Memory = 0
		}
	}
	return processes
}
