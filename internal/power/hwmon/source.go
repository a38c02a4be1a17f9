// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Sensors are polled at the interval over which they average, within these bounds, or every second
// if the driver reports no interval.
const (
	shortestEvery = 50 * time.Millisecond
	defaultEvery  = time.Second
	longestEvery  = time.Minute
	longestGap    = 3 * longestEvery
	// lead is longer than a read of a card takes.
	lead = 50 * time.Millisecond
)

// source is the power.Source of the fast inputs of a chip, or of the other inputs.
//
// A suspended graphics card is not read, because a read would wake it. Its power counts as 0. If a
// card may suspend itself, the time between two reads is longer than its autosuspend delay, because
// each read restarts this delay.
type source struct {
	chip  *chip // the chip as first found; its directory may have changed since
	fast  bool
	meter power.Meter
	next  atomic.Pointer[[]*input] // of the last search, nil once the source has taken them
	lost  atomic.Bool              // a file is missing or closed, and a search may find it

	// The following fields are used by the goroutine that calls Answer.
	inputs     []*input
	every      time.Duration
	isCard     bool        // a graphics card
	maySuspend bool        // a graphics card that may suspend itself
	status     kernfs.File // "suspended", "active"
	shown      []power.Shown
	buf        [32]byte
}

// newSource returns the source of an input. Graphics cards are polled shortly before each
// collection, because the collection reads their usage.
func newSource(in *input) *source {
	s := &source{chip: in.chip, fast: in.fast()}
	if s.fast {
		s.meter = power.Direct("hwmon", s)
		return s
	}
	s.status.Path = filepath.Join(s.chip.path, "power/runtime_status")
	options := power.PollOptions{Name: "hwmon", Every: defaultEvery, LongestGap: longestGap, MaxUnchanged: in.is.maxUnchanged}
	if in.zone.Kind == power.GPU {
		options.Lead = lead
	}
	s.meter = power.Poll(s, options)
	return s
}

// Answer reads the inputs. If all reads fail, it returns an error, and the inputs are polled less
// often, because each failed read of an ACPI power meter writes to the kernel log. The search for
// missing files keeps its interval.
func (s *source) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	s.update()
	s.shown = s.shown[:0]
	suspended, lost := s.maySuspend && s.sleeps(), false
	var failure error
	for _, in := range s.inputs {
		if err := ctx.Err(); err != nil {
			return power.Answer{}, err
		}
		var shown power.Shown
		if !suspended {
			shown = in.show(s.buf[:])
		}
		if suspended || shown.Err != nil && s.sleeps() { // the card may have been suspended during the read
			shown = in.asleep()
		}
		failure = cmp.Or(failure, shown.Err)
		lost = lost || shown.Err != nil && (s.fast || errors.Is(shown.Err, fs.ErrNotExist))
		s.shown = append(s.shown, shown)
	}
	s.lost.Store(lost)
	answer := power.Answer{Every: s.every}
	if failure != nil && !lost && !slices.ContainsFunc(s.shown, func(shown power.Shown) bool { return shown.Err == nil }) {
		return answer, failure
	}
	answer.Shown = s.shown
	return answer, nil
}

// update takes the inputs of the last search. It closes all open files, because the files of a chip
// that was removed and added again return errors forever.
func (s *source) update() {
	next := s.next.Swap(nil)
	if next == nil {
		return
	}
	for _, in := range s.inputs {
		in.close()
	}
	s.every, s.isCard = longestEvery, false
	for _, in := range *next {
		if i := slices.IndexFunc(s.inputs, func(old *input) bool { return old.zone == in.zone }); i >= 0 {
			in.last = s.inputs[i].last
		}
		if in.averages() {
			in.period = s.milliseconds(in.chip.dir, in.name+"_average_interval") // some drivers lack it
		}
		s.every = min(s.every, in.every())
		s.isCard = s.isCard || in.zone.Kind == power.GPU
	}
	s.inputs = *next
	if s.maySuspend = s.isCard && string(s.text(s.chip.path, "power/control")) == "auto"; s.maySuspend {
		delay := s.milliseconds(s.chip.path, "power/autosuspend_delay_ms") // 0 if the card never suspends
		s.every = max(s.every, min(2*delay, longestGap))
	}
}

// text returns the text of a small file. The text is empty if the file cannot be read.
func (s *source) text(dir, name string) []byte {
	text, _ := kernfs.ReadSmall(filepath.Join(dir, name), s.buf[:])
	return bytes.TrimSpace(text)
}

// milliseconds returns the duration that a file contains, at most an hour, or 0 if the file cannot
// be read.
func (s *source) milliseconds(dir, name string) time.Duration {
	ms, _ := kernfs.ParseUint(s.text(dir, name))
	return min(time.Duration(min(ms, 1<<32))*time.Millisecond, time.Hour)
}

// sleeps reports whether the device is a graphics card that is suspended or suspending
// (Documentation/ABI/testing/sysfs-devices-power). Reading this state does not wake the card.
func (s *source) sleeps() bool {
	if !s.isCard {
		return false
	}
	text, err := s.status.Read(s.buf[:])
	state := string(bytes.TrimSpace(text))
	return err == nil && (state == "suspended" || state == "suspending")
}

// Close closes the files.
func (s *source) Close() error {
	for _, in := range s.inputs {
		in.close()
	}
	return s.status.Close()
}

// every returns the time between two polls of the input.
func (in *input) every() time.Duration {
	if in.period > 0 {
		return min(max(in.period, shortestEvery), longestEvery)
	}
	return cmp.Or(in.is.every, defaultEvery)
}

func (in *input) close() {
	for i := range in.files {
		_ = in.files[i].Close() // read only: no data can be lost
	}
}

// show reads the input. If a polled sensor has no value yet (EAGAIN), show repeats the last value
// once.
func (in *input) show(buf []byte) power.Shown {
	last := in.last
	shown, err := in.read(buf)
	in.last = shown
	switch {
	case err == nil:
		return shown
	case errors.Is(err, syscall.EAGAIN) && !last.At.IsZero():
		return last
	}
	in.failure = err
	return power.Shown{Zone: in.zone, Err: fmt.Errorf("hwmon zone %s: %w", in.zone.ID, err)}
}

// asleep returns the reading of a suspended card, a power of 0. For a counter, the power covers the
// whole time since the last reading, so no time is unmeasured. The next reading of the counter adds
// the energy from before the suspension.
func (in *input) asleep() power.Shown {
	shown := power.Shown{Zone: in.zone, At: time.Now(), IsPower: true}
	if in.isEnergy() {
		shown.Average = math.MaxInt64
	}
	return shown
}

// read reads the input's files. It also returns impossible powers, which power.Meter rejects.
func (in *input) read(buf []byte) (power.Shown, error) {
	product, negative := uint64(1), false
	for i := range in.files {
		f := &in.files[i]
		if in.fast() && !f.IsOpen() {
			return power.Shown{}, cmp.Or(in.failure, fs.ErrNotExist)
		}
		text, err := f.Read(buf)
		if err != nil {
			return power.Shown{}, err
		}
		if !in.isEnergy() && len(text) > 0 && text[0] == '-' {
			text, negative = text[1:], true
		}
		n, err := kernfs.ParseUintLine(text)
		if err != nil {
			return power.Shown{}, fmt.Errorf("%s: %w", f.Path, err)
		}
		high, low := bits.Mul64(product, n)
		if product = low; high != 0 {
			product = math.MaxUint64
		}
	}
	if in.isEnergy() {
		shown := power.Shown{Zone: in.zone, Counter: units.Energy(product), Range: in.is.wrapAt}
		if !in.fast() { // a fast input is read at the time of the sample
			shown.At = time.Now()
		}
		return shown, nil
	}
	microwatts := int64(min(product, math.MaxInt64))
	if negative {
		microwatts = -microwatts
	}
	return power.Shown{Zone: in.zone, At: time.Now(), IsPower: true, Power: microwatts, Average: in.period}, nil
}
