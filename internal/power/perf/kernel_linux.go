// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
)

// linux is the kernel that this process runs on.
type linux struct{}

func (linux) check(root string) error { return perfevent.CheckKernel(root) }

// open opens one group of events, so that one system call reads them all.
func (linux) open(pmu uint32, configs []uint64, cpu int) (counters, error) {
	if err := kernfs.FitCounters(len(configs)); err != nil {
		return nil, err
	}
	c := &groupCounters{buf: make([]byte, 8*(2+len(configs)))}
	leader := -1
	for _, config := range configs {
		attr := unix.PerfEventAttr{
			Type: pmu, Config: config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Read_format: unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED,
		}
		fd, err := perfevent.Open(&attr, -1, cpu, leader, 0)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.fds = append(c.fds, fd)
		leader = c.fds[0]
	}
	return c, nil
}

// groupCounters is a group of events whose leader comes first.
type groupCounters struct {
	fds []int
	buf []byte // number of values, time enabled in ns, values (perf_event_open(2), PERF_FORMAT_GROUP)
}

func (c *groupCounters) read(counts []uint64) (uint64, error) {
	if err := perfevent.Read(c.fds[0], c.buf); err != nil {
		return 0, err
	}
	if binary.NativeEndian.Uint64(c.buf) != uint64(len(counts)) {
		return 0, perfevent.ErrShort
	}
	for i := range counts {
		counts[i] = binary.NativeEndian.Uint64(c.buf[16+8*i:])
	}
	return binary.NativeEndian.Uint64(c.buf[8:]), nil
}

func (c *groupCounters) close() error {
	var errs []error
	for i := len(c.fds) - 1; i >= 0; i-- { // a leader that is closed first leaves its events to themselves
		errs = append(errs, perfevent.Close(c.fds[i]))
	}
	return errors.Join(errs...)
}
