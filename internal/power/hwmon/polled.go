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
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Sensors are read at the interval over which they average, within these bounds, or every second if
// the driver reports no interval.
const (
	shortestEvery = 50 * time.Millisecond
	defaultEvery  = time.Second
	longestEvery  = time.Minute
	longestGap    = 3 * longestEvery
	// lead is more than reading a card takes.
	lead = 50 * time.Millisecond
)

// polledZone is a zone that a goroutine reads.
type polledZone struct {
	chip *polledChip
	target
}

// target describes the sensors that a goroutine reads for a zone.
type target struct {
	zone     *power.Zone
	paths    []string      // one file, or two whose product counts
	interval string        // file with the time in ms that a power is averaged over; empty if there is none
	isEnergy bool          // in µJ; else power in µW
	every    time.Duration // 0 means defaultEvery
}

// polledChip reads the polled zones of one chip. It is the power.Source of a power.Poller.
//
// A graphics card that is suspended is not read, because that would wake it: it counts as using
// nothing. A card that may suspend itself is read less often than it takes to do so, because each
// read counts as use.
type polledChip struct {
	driver, device string
	poller         *power.Poller
	next           atomic.Pointer[[]target] // what the meter found last
	vanished       atomic.Bool              // a file is no longer where it was

	// Of the goroutine:
	targets    *[]target // that zones were made from
	zones      []*zoneReader
	every      time.Duration
	open       func(string) (*os.File, error)
	pm         string      // folder of the device's power management
	isCard     bool        // a graphics card
	maySuspend bool        // it is a card that suspends itself
	status     kernfs.File // "suspended", "active"
	shown      []power.Shown
	buf        [32]byte
}

// newPolledChip returns the chip of a sensor. The usage of cards is read with each collection, so a
// poll precedes it.
func newPolledChip(f *input, open func(string) (*os.File, error)) *polledChip {
	c := f.chip
	p := &polledChip{driver: c.driver, device: c.device, open: open, pm: filepath.Join(c.path, "power")}
	p.status = kernfs.File{Path: filepath.Join(p.pm, "runtime_status"), Open: open}
	options := power.PollOptions{Name: "hwmon", LongestGap: longestGap, StandsStill: f.is.standsStill}
	if f.zone.Kind == power.GPU {
		options.Lead = lead
	}
	p.poller = power.Poll(p, options)
	return p
}

// Answer reads the zones, the next time after the shortest of their periods. It returns an error where all of them fail: firmware that cannot read its
// meter makes the kernel log something each time, so it is asked less and less often. Files that
// have vanished cost nothing to look for.
func (p *polledChip) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	p.update()
	p.shown = p.shown[:0]
	suspended, vanished := p.isSuspended(), false
	var failure error
	failed := 0
	for _, z := range p.zones {
		if err := ctx.Err(); err != nil {
			return power.Answer{Every: p.every}, err
		}
		v, err := z.poll(p.buf[:], suspended)
		if err != nil && p.sleeps() { // since a moment ago, or power/control was changed
			v, err = z.asleep(), nil
		}
		if err != nil {
			failed++
			failure = cmp.Or(failure, err)
			vanished = vanished || errors.Is(err, fs.ErrNotExist)
		}
		p.shown = append(p.shown, v)
	}
	p.vanished.Store(vanished)
	if failed > 0 && failed == len(p.zones) && !vanished {
		return power.Answer{Every: p.every}, failure
	}
	return power.Answer{Shown: p.shown, Every: p.every}, nil
}

// update takes over what the meter found since the last poll.
func (p *polledChip) update() {
	next := p.next.Load()
	if next == p.targets {
		return
	}
	p.targets = next
	before := make(map[*power.Zone]*zoneReader, len(p.zones))
	for _, z := range p.zones {
		before[z.zone] = z
	}
	p.zones, p.every = nil, longestEvery
	p.isCard = false
	for i := range *next {
		t := &(*next)[i]
		z := before[t.zone]
		delete(before, t.zone)
		if z == nil {
			z = new(zoneReader)
		}
		z.update(t, p.open)
		p.zones = append(p.zones, z)
		p.every = min(p.every, z.period())
		p.isCard = p.isCard || t.zone.Kind == power.GPU
	}
	for _, z := range before {
		z.close()
	}
	if p.maySuspend = p.isCard && p.text("control") == "auto"; p.maySuspend {
		delay, _ := kernfs.ParseUint([]byte(p.text("autosuspend_delay_ms"))) // fails where it never suspends
		p.every = max(p.every, min(2*milliseconds(delay), longestGap))
	}
}

// milliseconds returns a time of up to an hour.
func milliseconds(ms uint64) time.Duration {
	return min(time.Duration(min(ms, 1<<32))*time.Millisecond, time.Hour)
}

// text returns a file of the device's power management.
func (p *polledChip) text(name string) string {
	f := kernfs.File{Path: filepath.Join(p.pm, name), Open: p.open}
	defer func() { _ = f.Close() }()
	text, err := f.Read(p.buf[:])
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(text))
}

// isSuspended reports whether a read would wake the device.
func (p *polledChip) isSuspended() bool { return p.maySuspend && p.sleeps() }

// sleeps reports whether the device is a card that is suspended, or about to be
// (Documentation/ABI/testing/sysfs-devices-power). To ask does not wake it.
func (p *polledChip) sleeps() bool {
	if !p.isCard {
		return false
	}
	text, err := p.status.Read(p.buf[:])
	state := string(bytes.TrimSpace(text))
	return err == nil && (state == "suspended" || state == "suspending")
}

// Close closes the files.
func (p *polledChip) Close() error {
	for _, z := range p.zones {
		z.close()
	}
	return p.status.Close()
}

// zoneReader reads one zone.
type zoneReader struct {
	target
	files   []kernfs.File
	average time.Duration // 0 if it is not known
	last    power.Shown   // of the last good read
	good    bool          // the last read was
}

// update makes the zone read the target's files.
func (z *zoneReader) update(t *target, open func(string) (*os.File, error)) {
	same := len(z.files) == len(t.paths)
	for i := range z.files {
		same = same && z.files[i].Path == t.paths[i] && !z.files[i].Stale()
	}
	z.target = *t
	if !same {
		z.close()
		z.files = make([]kernfs.File, len(t.paths))
		for i, path := range t.paths {
			z.files[i] = kernfs.File{Path: path, Open: open}
		}
	}
	z.average = 0
	if t.interval == "" {
		return
	}
	f := kernfs.File{Path: t.interval, Open: open}
	defer func() { _ = f.Close() }()
	var buf [32]byte
	if text, err := f.Read(buf[:]); err == nil {
		ms, _ := kernfs.ParseUintLine(text) // some have none
		z.average = milliseconds(ms)
	}
}

// period returns how often the zone is read.
func (z *zoneReader) period() time.Duration {
	if z.average > 0 {
		return min(max(z.average, shortestEvery), longestEvery)
	}
	return cmp.Or(z.every, defaultEvery)
}

func (z *zoneReader) close() {
	for i := range z.files {
		_ = z.files[i].Close() // opened for reading: nothing can be lost
	}
}

// errBusy is the kernel's error while a sensor has no value yet: the next read may return one.
const errBusy = syscall.EAGAIN

// poll reads the zone, unless its device is suspended. A sensor that is busy once has nothing new.
func (z *zoneReader) poll(buf []byte, suspended bool) (power.Shown, error) {
	if suspended {
		return z.asleep(), nil
	}
	wasGood := z.good
	v, err := z.read(buf)
	switch {
	case err == nil:
		z.last, z.good = v, true
		return v, nil
	case errors.Is(err, errBusy) && wasGood:
		z.good = false
		return z.last, nil
	}
	z.good = false
	err = fmt.Errorf("hwmon zone %s: %w", z.zone.ID, err)
	return power.Shown{Zone: z.zone, Err: err}, err
}

// asleep is what the zone shows while the device is suspended: no power. What a counter has counted before,
// it shows afterwards, so that no time since its last reading is unmeasured.
func (z *zoneReader) asleep() power.Shown {
	var average time.Duration
	if z.isEnergy {
		average = math.MaxInt64
	}
	return power.Shown{Zone: z.zone, At: time.Now(), IsPower: true, Average: average}
}

// read reads the zone's files. Impossible powers are for the Poller to reject.
func (z *zoneReader) read(buf []byte) (power.Shown, error) {
	product, negative := uint64(1), false
	for i := range z.files {
		f := &z.files[i]
		text, err := f.Read(buf)
		if err != nil {
			return power.Shown{}, err
		}
		if !z.isEnergy && len(text) > 0 && text[0] == '-' {
			text, negative = text[1:], true
		}
		n, err := kernfs.ParseUintLine(text)
		if err != nil {
			_ = f.Close()
			return power.Shown{}, fmt.Errorf("%s: %w", f.Path, err)
		}
		high, low := bits.Mul64(product, n)
		if product = low; high != 0 {
			product = math.MaxUint64
		}
	}
	now := time.Now()
	if z.isEnergy {
		return power.Shown{Zone: z.zone, At: now, Counter: units.Energy(product)}, nil
	}
	microwatts := int64(min(product, math.MaxInt64))
	if negative {
		microwatts = -microwatts
	}
	return power.Shown{Zone: z.zone, At: now, IsPower: true, Power: microwatts, Average: z.average}, nil
}
