// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import "slices"

// handles returns NVML's handles of the device. A slice has one handle for each compute instance.
func (d *device) handles() []handle {
	if d.slice != nil {
		return d.slice.handles
	}
	return []handle{d.handle}
}

func (d *device) MIG() (bool, error) {
	var current, pending uint32
	ret := d.migMode(d.handle, &current, &pending)
	if ret.missing() {
		return false, nil
	}
	return current == 1, ret.err()
}

func (d *device) MIGDevices() ([]Device, error) {
	var count uint32
	if ret := d.migCount(d.handle, &count); ret != Success {
		return nil, ret
	}
	var devices []Device
	var found []*slice
	for i := range min(count, maxDevices) {
		var h handle
		var instance uint32
		ret := d.migByIndex(d.handle, i, &h)
		if ret == NotFound { // the indices have gaps
			continue
		}
		if ret == Success {
			ret = d.gpuInstance(h, &instance)
		}
		if ret != Success {
			return nil, ret
		}
		if j := slices.IndexFunc(found, func(s *slice) bool { return s.instance == instance }); j >= 0 {
			found[j].handles = append(found[j].handles, h)
			continue
		}
		s := &slice{gpu: d.handle, instance: instance, handles: []handle{h}}
		found = append(found, s)
		devices = append(devices, &device{library: d.library, handle: h, slice: s})
	}
	return devices, nil
}

func (d *device) Multiprocessors() (uint32, error) {
	if d.slice == nil {
		return d.largestProfile()
	}
	var sum uint32
	for _, h := range d.slice.handles {
		var a attributes
		if ret := d.attributes(h, &a); ret != Success {
			return 0, ret
		}
		sum += a.multiprocessors
	}
	return sum, nil
}

// largestProfile returns the number of multiprocessors of the largest slice that the GPU can have,
// which is the number that all slices can use together.
func (d *device) largestProfile() (uint32, error) {
	var most uint32
	ret := NotSupported
	for p := range uint32(profiles) {
		var info profileInfo
		switch r := d.profile(d.handle, p, &info); {
		case r == Success:
			ret, most = Success, max(most, info.multiprocessors)
		case ret != Success && r != InvalidArgument: // InvalidArgument: a profile that the driver lacks
			ret = r
		}
	}
	return most, ret.err()
}

func (d *device) GPMSample() (GPMSample, error) {
	var h handle
	if ret := d.gpmAlloc(&h); ret != Success {
		return nil, ret
	}
	s := &gpmSample{library: d.library, handle: h}
	var ret Return
	if d.slice != nil {
		ret = d.gpmMIGSample(d.slice.gpu, d.slice.instance, h)
	} else {
		ret = d.gpmSample(d.handle, h)
	}
	if ret != Success {
		s.Free()
		return nil, ret
	}
	return s, nil
}

// gpmSample is a sample in NVML's memory.
type gpmSample struct {
	*library
	handle handle // 0 after Free
}

func (s *gpmSample) Activity(earlier GPMSample) (float64, error) {
	before, ok := earlier.(*gpmSample)
	if !ok || before.handle == 0 || s.handle == 0 {
		return 0, InvalidArgument
	}
	get := gpmGet{version: gpmVersion, metricCount: 1, sample1: before.handle, sample2: s.handle}
	get.metrics[0].id = gpmGraphicsUtil
	if ret := s.gpmMetrics(&get); ret != Success {
		return 0, ret
	}
	return get.metrics[0].value, get.metrics[0].ret.err()
}

func (s *gpmSample) Free() {
	if s.handle != 0 {
		_ = s.gpmFree(s.handle) // after an error, the sample leaks
		s.handle = 0
	}
}
