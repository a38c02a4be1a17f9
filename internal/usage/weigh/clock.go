// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// NewClock weighs CPU time by the clock rate of the CPU that ran the process, to the power of
// exponent (1 to 3).
//
// The rate is APERF over MPERF, the average since the last interval (Intel SDM volume 3, 16.2;
// AMD64 APM volume 2, 17.3). NewClock fails if the machine has no such counters, the kernel does
// not allow reading them, or the files below root belong to another kernel.
func NewClock(root string, exponent int) (*ByRate, error) {
	counted, by, err := openRatios(root)
	if err != nil {
		return nil, fmt.Errorf("clock rates are not counted: %w", err)
	}
	return newByRate(&clock{rates: counted, by: by, exponent: exponent}), nil
}

// clock measures the clock rate, or a power of it, of the CPU that ran a process. Discounted time
// counts for less.
type clock struct {
	stateless
	rates    rates
	by       string // how rates are read, as part of the name
	exponent int
	now      time.Time
	cpus     []lastRate // by number
}

// rates reads the clock rates of CPUs. Only their proportions mean anything.
type rates interface {
	// read returns the rate of a CPU since its last read, in units of 1/one. ran is the CPU time on
	// that CPU since then. ok is false if the rate is not available, or if reading it
	// now would cost too much.
	read(cpu int32, now time.Time, ran units.CPUTime) (rate uint64, ok bool, err error)
	close() error
}

type lastRate struct {
	ran   units.CPUTime // since the rate was last read
	rate  uint64
	tried bool      // to read the rate
	err   error     // of the last attempt
	retry time.Time // of the next attempt after an error
}

const (
	// maxCPUs is above the numbers of all CPUs of a kernel.
	maxCPUs = 1 << 16
	// retryAfter is the time between two attempts to read a counter that fails. rememberFor is how
	// long an unreadable CPU is reported if no process runs there any more.
	retryAfter  = 10 * time.Second
	rememberFor = 10 * time.Minute
)

// begin reads the rates of the CPUs on which shares ran.
func (c *clock) begin(now time.Time, shares []*Share) {
	c.now = now
	for _, s := range shares {
		if s.CPU == 0 || s.LastCPU < 0 || s.LastCPU >= maxCPUs {
			continue
		}
		for int(s.LastCPU) >= len(c.cpus) {
			c.cpus = append(c.cpus, lastRate{})
		}
		last := &c.cpus[s.LastCPU]
		last.ran = units.CPUTime(units.AddSaturating(uint64(last.ran), uint64(s.CPU)))
	}
	for i := range c.cpus {
		last := &c.cpus[i]
		if last.ran == 0 || now.Before(last.retry) {
			continue
		}
		rate, ok, err := c.rates.read(int32(i), now, last.ran)
		last.tried, last.err = true, err
		switch {
		case err != nil:
			last.rate, last.ran, last.retry = 0, 0, now.Add(retryAfter)
		case ok:
			last.rate, last.ran = power(rate, c.exponent), 0
		}
	}
}

func (c *clock) rate(s *Share) (uint64, bool) {
	if s.CPU == 0 || s.LastCPU < 0 || s.LastCPU >= maxCPUs {
		return 0, false
	}
	rate := c.cpus[s.LastCPU].rate
	return units.MulDiv(rate, uint64(s.CPU-s.Discount), uint64(s.CPU)), rate > 0
}

// power returns rate to the power of n, or the largest value if that does not fit.
func power(rate uint64, n int) uint64 {
	p := rate
	for range n - 1 {
		p = units.MulDiv(p, rate, one)
	}
	return p
}

// Err returns why CPUs cannot be read, without naming them. Errors that an offline CPU gives
// are ignored while any CPU can be read.
func (c *clock) Err() error {
	var offline, failed error
	readable := false
	for i := range c.cpus {
		switch last := &c.cpus[i]; {
		case !last.tried, last.err != nil && c.now.Sub(last.retry) >= rememberFor:
		case last.err == nil:
			readable = true
		case errors.Is(last.err, syscall.ENODEV): // as of all perf events of an offline CPU
			offline = lesser(offline, last.err)
		default:
			failed = lesser(failed, last.err)
		}
	}
	if failed != nil || readable {
		return failed
	}
	return offline
}

// lesser returns the error whose text sorts first, so that the same one of many errors is reported
// each time.
func lesser(a, b error) error {
	if a == nil || b != nil && b.Error() < a.Error() {
		return b
	}
	return a
}

func (c *clock) name() string { return "clock rate by APERF and MPERF" + c.by }

// Close closes the counters.
func (c *clock) Close() error { return c.rates.close() }
