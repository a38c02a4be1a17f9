// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// Group is a group of open counters, which one system call reads together.
type Group struct {
	fds []int  // the leader first
	buf []byte // number of values, time enabled in ns, values (perf_event_open(2), PERF_FORMAT_GROUP)
}

// OpenGroup opens a counter for each of a PMU's events on a CPU, from 0. If it fails, no counter is
// open.
func OpenGroup(pmu uint32, configs []uint64, cpu int) (*Group, error) {
	if err := kernfs.FitCounters(len(configs)); err != nil {
		return nil, err
	}
	g := &Group{buf: make([]byte, 8*(2+len(configs)))}
	leader := -1
	for _, config := range configs {
		attr := unix.PerfEventAttr{
			Type: pmu, Config: config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Read_format: unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED,
		}
		fd, err := Open(&attr, -1, cpu, leader, 0)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.fds = append(g.fds, fd)
		leader = g.fds[0]
	}
	return g, nil
}

// Read reads all counters at once, in the order of their configs, and returns for how long they have
// counted, in ns. It does not allocate.
func (g *Group) Read(counts []uint64) (enabled uint64, err error) {
	if err := Read(g.fds[0], g.buf); err != nil {
		return 0, err
	}
	if binary.NativeEndian.Uint64(g.buf) != uint64(len(counts)) {
		return 0, ErrShort
	}
	for i := range counts {
		counts[i] = binary.NativeEndian.Uint64(g.buf[16+8*i:])
	}
	return binary.NativeEndian.Uint64(g.buf[8:]), nil
}

// Close closes the counters.
func (g *Group) Close() error {
	var errs []error
	for i := len(g.fds) - 1; i >= 0; i-- { // a leader that is closed first leaves its events to themselves
		errs = append(errs, Close(g.fds[i]))
	}
	return errors.Join(errs...)
}
