// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// NewClock returns a meter that weighs CPU time by the clock rate of the CPU where it was used, to the power of exponent
// (1 to 3). The rate is that of APERF over MPERF (Intel SDM volume 3, 16.2; AMD64 APM volume 2, 17.3), the average
// since the last interval, where the kernel allows reading them; else what cpufreq tells below root
// (Documentation/admin-guide/pm/cpufreq.rst), the rate at that moment. Why the former was not taken is in rejected; where
// there is neither that is the error.
func NewClock(root string, exponent int) (m *ByRate, rejected, err error) {
	counted, rejected := openRatios(root)
	if rejected == nil {
		return newByRate(&clock{rates: counted, exponent: exponent}), nil, nil
	}
	files := newCPUFreq(root)
	if err := files.probe(); err != nil {
		return nil, nil, fmt.Errorf("the kernel tells no clock rates: %w; %w", rejected, err)
	}
	return newByRate(&clock{rates: files, exponent: exponent}), rejected, nil
}

var errNoCPUFreq = errors.New("there is no cpufreq driver")

// clock is the work of clock cycles, or of powers of them.
type clock struct {
	rates    rates
	exponent int
	now      time.Time
	pass     uint64
	cpus     []lastRate // by number
}

// rates tells how fast CPUs are. Only the proportions of what it tells count.
type rates interface {
	// read returns the rate of a CPU since it was read last, or at this moment, in units of 1/one; 0 for one
	// that is not known yet.
	read(cpu int32) (uint64, error)
	name() string
	close() error
}

type lastRate struct {
	pass  uint64 // in which it was read last, or failed
	rate  uint64
	err   error     // why there is none, until there is
	retry time.Time // a CPU that cannot be read is left alone until then
}

const (
	// maxCPUs bounds what a kernel may number.
	maxCPUs = 1 << 16
	// retryAfter is how long a CPU that cannot be read is left alone, and rememberFor for how long that is told though
	// nobody runs there any more.
	retryAfter  = 10 * time.Second
	rememberFor = 10 * time.Minute
)

func (c *clock) begin(now time.Time, _ []Share) {
	c.pass++
	c.now = now
}

func (*clock) forget() {}

func (c *clock) rate(s *Share) (uint64, bool) {
	if s.CPU == 0 || s.LastCPU < 0 || s.LastCPU >= maxCPUs {
		return 0, false
	}
	for int(s.LastCPU) >= len(c.cpus) {
		c.cpus = append(c.cpus, lastRate{})
	}
	last := &c.cpus[s.LastCPU]
	if last.pass != c.pass && !c.now.Before(last.retry) {
		last.pass = c.pass
		rate, err := c.rates.read(s.LastCPU)
		last.err = err
		if err != nil {
			last.rate, last.retry = 0, c.now.Add(retryAfter)
		} else {
			last.rate = power(rate, c.exponent)
		}
	}
	return last.rate, last.rate > 0
}

// power is rate to the power of n, as far as it can be expressed.
func power(rate uint64, n int) uint64 {
	p := rate
	for range n - 1 {
		p = units.MulDiv(p, rate, one)
	}
	return p
}

// trouble tells nothing of CPUs that may be offline as long as any other can be read, and not which CPUs fail.
func (c *clock) trouble() error {
	var offline, failed error
	readable := false
	for i := range c.cpus {
		switch last := &c.cpus[i]; {
		case last.pass == 0, last.err != nil && c.now.Sub(last.retry) >= rememberFor:
		case last.err == nil:
			readable = true
		case isOffline(last.err):
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

// lesser returns the error whose text comes first, so that of many that fail the same one is told each time.
func lesser(a, b error) error {
	if a == nil || b != nil && b.Error() < a.Error() {
		return b
	}
	return a
}

// isOffline says whether an error is what is to be expected of a CPU that is offline: perf events have no such device,
// and cpufreq no such file, or one that is busy where it was open before (drivers/cpufreq/cpufreq.c, show).
func isOffline(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EBUSY) ||
		errors.Is(err, fs.ErrNotExist)
}

func (c *clock) name() string { return c.rates.name() }
func (c *clock) close() error { return c.rates.close() }

// cpufreq reads the files of the kernel's cpufreq subsystem.
type cpufreq struct {
	dir   string
	files map[int32]*os.File
	buf   [32]byte
}

func newCPUFreq(root string) *cpufreq {
	return &cpufreq{dir: filepath.Join(root, "sys/devices/system/cpu"), files: map[int32]*os.File{}}
}

func (*cpufreq) name() string { return "clock rate by cpufreq" }

// probe says whether any CPU tells its rate: the first may be offline.
func (c *cpufreq) probe() error {
	found, _ := filepath.Glob(filepath.Join(c.dir, "cpu[0-9]*/cpufreq/scaling_cur_freq"))
	failed := errNoCPUFreq
	for _, name := range found {
		number := filepath.Base(filepath.Dir(filepath.Dir(name)))
		cpu, err := strconv.ParseInt(strings.TrimPrefix(number, "cpu"), 10, 32)
		if err == nil {
			_, err = c.read(int32(cpu))
		}
		if err == nil {
			return nil
		}
		failed = err
	}
	return failed
}

func (c *cpufreq) read(cpu int32) (uint64, error) {
	f, ok := c.files[cpu]
	if !ok {
		var err error
		f, err = os.Open(filepath.Join(c.dir, "cpu"+strconv.Itoa(int(cpu)), "cpufreq/scaling_cur_freq"))
		if err != nil {
			return 0, withoutPath(err)
		}
		c.files[cpu] = f
	}
	n, err := readAgain(f, c.buf[:])
	text, err := kernfs.Result(f.Name(), c.buf[:n], err)
	if err == nil {
		var rate uint64
		if rate, err = parseKHz(text); err == nil {
			return rate, nil
		}
		err = fmt.Errorf("scaling_cur_freq: %w", err)
	}
	delete(c.files, cpu) // it may have been taken offline, and be another file when it returns
	return 0, errors.Join(err, f.Close())
}

// withoutPath returns why an operation failed, but not with which file.
func withoutPath(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}

var errNoRate = errors.New("no clock rate")

// parseKHz reads a clock rate in kHz, 1 GHz being 1. A line without its end may be cut short.
func parseKHz(text []byte) (uint64, error) {
	digits, whole := bytes.CutSuffix(text, []byte{'\n'})
	if !whole || len(digits) == 0 {
		return 0, errNoRate
	}
	var khz uint64
	for _, d := range digits {
		if d < '0' || d > '9' || khz > math.MaxUint32 {
			return 0, errNoRate
		}
		khz = 10*khz + uint64(d-'0')
	}
	if khz == 0 || khz > math.MaxUint32 {
		return 0, errNoRate
	}
	return units.MulDiv(khz, one, 1_000_000), nil
}

func (c *cpufreq) close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	clear(c.files)
	return errors.Join(errs...)
}
