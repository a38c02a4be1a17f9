// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ratios reads the clock rate of each CPU from two counters of cycles that stand still while the
// CPU sleeps: APERF counts at the actual rate, MPERF at a constant one.
type ratios struct {
	pmu          uint32
	aperf, mperf uint64
	cpus         map[int32]*ratio
}

type ratio struct {
	fds  [2]int // of MPERF, which leads the group, and APERF
	last [2]uint64
	rate uint64
}

// openRatios finds the counters below the target of /sys/bus/event_source/devices/msr
// (arch/x86/events/msr.c). It fails if those of the first CPU cannot be read.
func openRatios(root string) (rates, error) {
	if err := perfevent.CheckKernel(root); err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "sys/devices/msr")
	pmu, err := perfevent.ReadNumber(filepath.Join(dir, "type"), "")
	if err != nil {
		return nil, err
	}
	r := &ratios{pmu: uint32(pmu), cpus: map[int32]*ratio{}}
	if r.aperf, err = perfevent.ReadNumber(filepath.Join(dir, "events/aperf"), "event="); err != nil {
		return nil, err
	}
	if r.mperf, err = perfevent.ReadNumber(filepath.Join(dir, "events/mperf"), "event="); err != nil {
		return nil, err
	}
	if _, err := r.read(0); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *ratios) read(cpu int32) (uint64, error) {
	c, ok := r.cpus[cpu]
	if !ok {
		opened, err := r.open(cpu)
		if err != nil {
			return 0, err
		}
		c = opened
		r.cpus[cpu] = c
	}
	var now [2]uint64
	err := readGroup(c.fds[0], &now)
	if err != nil {
		delete(r.cpus, cpu)
		return 0, errors.Join(err, c.close())
	}
	c.advance(now)
	return c.rate, nil
}

// advance computes the rate since the last readings. The rate of a CPU that slept meanwhile stays.
func (c *ratio) advance(now [2]uint64) {
	mperf, aperf := units.Advance(c.last[0], now[0]), units.Advance(c.last[1], now[1])
	if c.last != ([2]uint64{}) && mperf > 0 {
		c.rate = units.MulDiv(aperf, one, mperf)
	}
	c.last = now
}

func (r *ratios) open(cpu int32) (*ratio, error) {
	attr := unix.PerfEventAttr{Type: r.pmu, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Read_format: unix.PERF_FORMAT_GROUP}
	c := &ratio{}
	err := kernfs.FitCounters(len(c.fds))
	if err != nil {
		return nil, err
	}
	attr.Config = r.mperf
	if c.fds[0], err = perfevent.Open(&attr, -1, int(cpu), -1, 0); err != nil {
		return nil, fmt.Errorf("open MPERF: %w", err)
	}
	attr.Config = r.aperf
	if c.fds[1], err = perfevent.Open(&attr, -1, int(cpu), c.fds[0], 0); err != nil {
		return nil, fmt.Errorf("open APERF: %w", errors.Join(err, perfevent.Close(c.fds[0])))
	}
	return c, nil
}

// readGroup reads the values of a group of two counters (PERF_FORMAT_GROUP: their number, then each
// value).
func readGroup(fd int, values *[2]uint64) error {
	var buf [24]byte
	if err := perfevent.Read(fd, buf[:]); err != nil {
		return err
	}
	if binary.NativeEndian.Uint64(buf[:]) != 2 {
		return perfevent.ErrShort
	}
	values[0], values[1] = binary.NativeEndian.Uint64(buf[8:]), binary.NativeEndian.Uint64(buf[16:])
	return nil
}

func (c *ratio) close() error {
	return errors.Join(perfevent.Close(c.fds[1]), perfevent.Close(c.fds[0]))
}

func (r *ratios) close() error {
	var errs []error
	for _, c := range r.cpus {
		errs = append(errs, c.close())
	}
	clear(r.cpus)
	return errors.Join(errs...)
}
