// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// NewClock returns what weighs CPU time by the clock rate of the CPU where it was used, to the
// power of exponent (1 to 3).
//
// The rate is APERF over MPERF, the average since the last interval (Intel SDM volume 3, 16.2;
// AMD64 APM volume 2, 17.3). If these cannot be read, rejected is why, and the rate is that of
// cpufreq at the moment, below root (Documentation/admin-guide/pm/cpufreq.rst). If neither can be
// read, err is why.
func NewClock(root string, exponent int) (m *ByRate, rejected, err error) {
	counted, rejected := openRatios(root)
	if rejected == nil {
		return newByRate(&clock{rates: counted, exponent: exponent}), nil, nil
	}
	files := newCPUFreq(root)
	if err := files.probe(); err != nil {
		return nil, nil, fmt.Errorf("the kernel exposes no clock rates: %w; %w", rejected, err)
	}
	return newByRate(&clock{rates: files, exponent: exponent}), rejected, nil
}

// CountsClocks returns why the clock rate of each CPU over an interval cannot be read, by APERF and
// MPERF, nil if it can be. cpufreq has the rate of a moment only.
func CountsClocks(root string) error {
	counted, err := openRatios(root)
	if err != nil {
		return fmt.Errorf("clock rates are not counted: %w", err)
	}
	return counted.close()
}

var errNoCPUFreq = errors.New("there is no cpufreq driver")

// clock measures the clock rate, or a power of it, of the CPU where time was used. Discounted time
// counts for less.
type clock struct {
	rates    rates
	exponent int
	now      time.Time
	pass     uint64
	cpus     []lastRate // by number
}

// rates reads the clock rates of CPUs. Only their proportions mean anything.
type rates interface {
	// read returns the rate of a CPU since it was read last, or at this moment, in units of 1/one.
	// It is 0 if it is not known yet.
	read(cpu int32) (uint64, error)
	name() string
	close() error
}

type lastRate struct {
	pass  uint64 // the interval in which it was read last, or failed
	rate  uint64
	err   error     // why there is none, until there is
	retry time.Time // a CPU that cannot be read is left alone until then
}

const (
	// maxCPUs bounds what a kernel may number.
	maxCPUs = 1 << 16
	// retryAfter is how long what cannot be read is left alone. rememberFor is how long a CPU is
	// reported that cannot be read and where no process runs any more.
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
	return units.MulDiv(last.rate, uint64(s.CPU-s.Discount), uint64(s.CPU)), last.rate > 0
}

// power returns rate to the power of n, or the largest value if that does not fit.
func power(rate uint64, n int) uint64 {
	p := rate
	for range n - 1 {
		p = units.MulDiv(p, rate, one)
	}
	return p
}

// trouble returns why CPUs cannot be read, without naming them. Errors that an offline CPU gives
// are ignored while any CPU can be read.
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

// lesser returns the error whose text comes first, so that of many errors the same one is reported
// each time.
func lesser(a, b error) error {
	if a == nil || b != nil && b.Error() < a.Error() {
		return b
	}
	return a
}

// isOffline reports whether an error is to be expected of a CPU that is offline: perf events have
// no such device, and cpufreq has no such file, or a busy one if it was open before
// (drivers/cpufreq/cpufreq.c, show).
func isOffline(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EBUSY) ||
		errors.Is(err, fs.ErrNotExist)
}

func (c *clock) name() string { return c.rates.name() }
func (c *clock) close() error { return c.rates.close() }

// cpufreq reads the files of the kernel's cpufreq subsystem. If any user can block opening them
// (kernfs.Search), they are opened together, and opening is retried while any file is not open.
type cpufreq struct {
	dir    string
	files  map[int32]*kernfs.File
	buf    [32]byte
	search kernfs.Search[map[int32]*os.File]
	opened time.Time // when search ended last
}

func newCPUFreq(root string) *cpufreq {
	dir := filepath.Join(root, "sys/devices/system/cpu")
	return &cpufreq{
		dir: dir, files: map[int32]*kernfs.File{},
		search: kernfs.Search[map[int32]*os.File]{Root: root, Dir: dir, Drop: closeAll},
	}
}

func (*cpufreq) name() string { return "clock rate by cpufreq" }

// probe returns an error unless any CPU shows its rate. The first may be offline.
func (c *cpufreq) probe() error {
	failed := errNoCPUFreq
	for cpu := range c.cpus() {
		_, err := c.read(cpu)
		if err == nil {
			return nil
		}
		failed = err
	}
	return failed
}

// cpus returns the CPUs that have a clock rate.
func (c *cpufreq) cpus() iter.Seq[int32] {
	if c.search.IsGuarded() {
		c.open()
		return slices.Values(slices.Sorted(maps.Keys(c.files)))
	}
	return c.find()
}

// find yields the CPUs that have a file.
func (c *cpufreq) find() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		found, _ := filepath.Glob(filepath.Join(c.dir, "cpu[0-9]*/cpufreq/scaling_cur_freq"))
		for _, name := range found {
			number := filepath.Base(filepath.Dir(filepath.Dir(name)))
			if cpu, err := strconv.ParseInt(strings.TrimPrefix(number, "cpu"), 10, 32); err == nil && !yield(int32(cpu)) {
				return
			}
		}
	}
}

func (c *cpufreq) path(cpu int32) string {
	return filepath.Join(c.dir, "cpu"+strconv.Itoa(int(cpu)), "cpufreq/scaling_cur_freq")
}

// open opens the files of all CPUs that are closed.
func (c *cpufreq) open() {
	found, ok := c.search.Run(func() map[int32]*os.File {
		files := map[int32]*os.File{}
		for cpu := range c.find() {
			if f, err := os.Open(c.path(cpu)); err == nil {
				files[cpu] = f
			}
		}
		return files
	})
	if !ok {
		return
	}
	c.opened = time.Now()
	for cpu, file := range found {
		f := c.files[cpu]
		if f == nil {
			f = &kernfs.File{Path: c.path(cpu)}
			c.files[cpu] = f
		}
		if !f.IsOpen() {
			f.Use(file)
			delete(found, cpu)
		}
	}
	closeAll(found)
}

func closeAll(files map[int32]*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was read from it
	}
}

// fileOf returns the file of a CPU.
func (c *cpufreq) fileOf(cpu int32) (*kernfs.File, error) {
	f := c.files[cpu]
	if f != nil && f.IsOpen() {
		return f, nil
	}
	if !c.search.IsGuarded() {
		if f == nil {
			f = &kernfs.File{Path: c.path(cpu)}
			c.files[cpu] = f
		}
		return f, nil
	}
	if c.search.Running() || time.Since(c.opened) >= retryAfter {
		c.open()
	}
	if f = c.files[cpu]; f != nil && f.IsOpen() {
		return f, nil
	}
	return nil, cmp.Or(c.search.Err(), fs.ErrNotExist)
}

func (c *cpufreq) read(cpu int32) (uint64, error) {
	f, err := c.fileOf(cpu)
	if err != nil {
		return 0, err
	}
	text, err := f.Read(c.buf[:])
	if err != nil {
		return 0, withoutPath(err)
	}
	rate, err := parseKHz(text)
	if err != nil {
		// The CPU may have been taken offline. Its file is another one when it returns.
		return 0, errors.Join(fmt.Errorf("scaling_cur_freq: %w", err), f.Close())
	}
	return rate, nil
}

// withoutPath returns why an operation on a file failed, without the file's name.
func withoutPath(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}

var errNoRate = errors.New("no clock rate")

// parseKHz reads a clock rate in kHz, and returns it in units of 1/one GHz.
func parseKHz(text []byte) (uint64, error) {
	khz, err := kernfs.ParseUintLine(text)
	if err != nil || khz == 0 || khz > math.MaxUint32 {
		return 0, errNoRate
	}
	return units.MulDiv(khz, one, 1_000_000), nil
}

func (c *cpufreq) close() error {
	c.search.Close()
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	clear(c.files)
	return errors.Join(errs...)
}
