// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ratios reads the clock rate of each CPU from two counters of cycles. APERF counts at the actual
// rate, MPERF at a constant rate. Both stand still while the CPU sleeps.
type ratios struct {
	pmu    uint32
	events [2]uint64 // MPERF and APERF
	cpus   map[int32]*ratio
}

type ratio struct {
	counters *perfevent.Group // MPERF and APERF
	last     [2]uint64
	rate     uint64
}

// openRatios finds the counters below the target of /sys/bus/event_source/devices/msr
// (arch/x86/events/msr.c). It fails if the counters of the first CPU cannot be read.
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
	for i, event := range []string{"mperf", "aperf"} {
		if r.events[i], err = perfevent.ReadNumber(filepath.Join(dir, "events", event), "event="); err != nil {
			return nil, err
		}
	}
	if _, err := r.read(0); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *ratios) read(cpu int32) (uint64, error) {
	c, ok := r.cpus[cpu]
	if !ok {
		opened, err := perfevent.OpenGroup(r.pmu, r.events[:], int(cpu))
		if err != nil {
			return 0, fmt.Errorf("open MPERF and APERF: %w", err)
		}
		c = &ratio{counters: opened}
		r.cpus[cpu] = c
	}
	var now [2]uint64
	if _, err := c.counters.Read(now[:]); err != nil {
		delete(r.cpus, cpu)
		return 0, errors.Join(err, c.counters.Close())
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

func (r *ratios) close() error {
	var errs []error
	for _, c := range r.cpus {
		errs = append(errs, c.counters.Close())
	}
	clear(r.cpus)
	return errors.Join(errs...)
}
