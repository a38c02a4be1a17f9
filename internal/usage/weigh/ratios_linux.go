// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ratios reads the clock rate of each CPU from two counters of cycles. APERF counts at the actual
// rate, MPERF at a constant rate. Both stand still while the CPU sleeps.
//
// The kernel records the counters of each CPU at the scheduler's tick. If BPF cannot read these
// samples, and on CPUs without ticks (nohz_full), perf events read the counters. A perf event
// interrupts its CPU, which takes tens of microseconds. It is therefore read seldom, and the last
// rate of the CPU applies in between.
type ratios struct {
	pmu     uint32
	events  [2]uint64 // MPERF and APERF
	cpus    map[int32]*countedRatio
	samples samples     // nil if they cannot be read
	latest  [][2]uint64 // the samples of the interval, by CPU
	sampled []ratio     // by CPU
	at      time.Time   // the end of that interval
}

// samples reads the kernel's samples of MPERF and APERF by the number of the CPU.
type samples interface {
	Read() ([][2]uint64, error)
	Close() error
}

type ratio struct {
	last [2]uint64 // MPERF and APERF
	rate uint64
}

// countedRatio is the ratio of a CPU whose counters perf events read.
type countedRatio struct {
	ratio
	counters *perfevent.Group // MPERF and APERF
	at       time.Time        // of the last read
}

const (
	// material is the minimum CPU time on a CPU between two reads of its perf events. The reads
	// thus cost less than 0.5 % of the CPU time that they weigh.
	material = units.CPUTime(10 * time.Millisecond)
	// interruptAfter is the minimum time between two reads of perf events: about a second, because
	// windows of 1 s may begin early.
	interruptAfter = 900 * time.Millisecond
	// unsampled is the CPU time on a CPU without a new sample after which perf events are read
	// although samples are available.
	unsampled = units.CPUTime(time.Second)
)

// openRatios finds the counters below the target of /sys/bus/event_source/devices/msr
// (arch/x86/events/msr.c). It fails if neither samples nor the counters of the first CPU can be
// read. by describes how rates are read.
func openRatios(root string) (_ rates, by string, err error) {
	if err := perfevent.CheckKernel(root); err != nil {
		return nil, "", err
	}
	dir := filepath.Join(root, "sys/devices/msr")
	pmu, err := perfevent.ReadNumber(filepath.Join(dir, "type"), "")
	if err != nil {
		return nil, "", err
	}
	r := &ratios{pmu: uint32(pmu), cpus: map[int32]*countedRatio{}}
	for i, event := range []string{"mperf", "aperf"} {
		if r.events[i], err = perfevent.ReadNumber(filepath.Join(dir, "events", event), "event="); err != nil {
			return nil, "", err
		}
	}
	s, rejected := openSamples()
	if rejected == nil {
		rejected = r.useSamples(s)
	}
	if rejected == nil {
		return r, ", sampled by the scheduler", nil
	}
	if _, _, err := r.count(0, time.Now()); err != nil {
		return nil, "", err
	}
	return r, ", counted about once a second; rejected: " + oneline.Text(rejected), nil
}

// useSamples makes read use samples. Their current values are the baseline.
func (r *ratios) useSamples(s samples) error {
	baseline, err := s.Read()
	if err != nil {
		return errors.Join(err, s.Close())
	}
	r.samples, r.sampled = s, make([]ratio, len(baseline))
	for cpu := range baseline {
		r.sampled[cpu].advance(baseline[cpu])
	}
	return nil
}

// read implements rates.
func (r *ratios) read(cpu int32, now time.Time, ran units.CPUTime) (rate uint64, ok bool, err error) {
	r.readSamples(now)
	if int(cpu) < len(r.latest) {
		if s := &r.sampled[cpu]; s.advance(r.latest[cpu]) {
			return s.rate, true, nil
		}
	}
	if r.samples != nil && ran < unsampled {
		return 0, false, nil
	}
	if c := r.cpus[cpu]; c != nil && c.rate > 0 && (ran < material || now.Sub(c.at) < interruptAfter) {
		return 0, false, nil
	}
	return r.count(cpu, now)
}

// readSamples reads the samples once in an interval. If that fails, perf events replace them.
func (r *ratios) readSamples(now time.Time) {
	if r.samples == nil || r.at.Equal(now) {
		return
	}
	latest, err := r.samples.Read()
	if err != nil {
		_ = r.samples.Close() // it was only read from
		r.samples = nil
	}
	r.latest, r.at = latest, now
}

// count reads the rate of a CPU since the last call by perf events.
func (r *ratios) count(cpu int32, now time.Time) (rate uint64, ok bool, err error) {
	c := r.cpus[cpu]
	if c == nil {
		opened, err := perfevent.OpenGroup(r.pmu, r.events[:], int(cpu))
		if err != nil {
			return 0, false, fmt.Errorf("open MPERF and APERF: %w", err)
		}
		c = &countedRatio{counters: opened}
		r.cpus[cpu] = c
	}
	var counts [2]uint64
	if _, err := c.counters.Read(counts[:]); err != nil {
		delete(r.cpus, cpu)
		return 0, false, errors.Join(err, c.counters.Close())
	}
	c.advance(counts)
	c.at = now
	return c.rate, c.rate > 0, nil
}

// advance computes the rate since the last readings, and reports whether it could. The rate of a CPU
// that slept meanwhile stays.
func (c *ratio) advance(now [2]uint64) bool {
	mperf, aperf := units.Advance(c.last[0], now[0]), units.Advance(c.last[1], now[1])
	known := c.last != ([2]uint64{}) && mperf > 0
	if known {
		c.rate = units.MulDiv(aperf, one, mperf)
	}
	c.last = now
	return known
}

func (r *ratios) close() error {
	var errs []error
	if r.samples != nil {
		errs = append(errs, r.samples.Close())
	}
	for _, c := range r.cpus {
		errs = append(errs, c.counters.Close())
	}
	clear(r.cpus)
	return errors.Join(errs...)
}
