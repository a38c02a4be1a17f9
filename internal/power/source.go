// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Source reads the raw counters and powers of the hardware of one meter. Direct converts a Source
// that always responds immediately to a Meter. Poll converts a Source that may be slow, such as a
// BMC, a web page or a chip on a slow bus. The methods of a Source are never called concurrently.
type Source interface {
	// Answer reads the hardware. It returns soon after ctx is done. The Answer is valid until the
	// next call. If the Source is polled, only the field At of the sample is set.
	//
	// The error is the reason why no zone could be read. The error of a single zone is in its
	// Shown. If the machine has no zone, the error is fs.ErrNotExist or ErrNoZones, and a later
	// call searches again. The text of an error must not change while its cause is the same,
	// because each new text is logged. If the error is not nil, Direct uses the Answer, and Poll
	// does not.
	Answer(ctx context.Context, s Sample) (Answer, error)
	// Close closes files and connections. Answer is not called after Close.
	Close() error
}

// Answer holds all zones of a Source.
type Answer struct {
	Shown []Shown
	// Every is the time from the start of this poll to the start of the next. 0 selects
	// PollOptions.Every. Direct ignores Every.
	Every time.Duration
	// Warning is the reason for degraded operation, or nil. The same reason always has the same
	// text.
	Warning error
}

// Shown is one reading of the hardware of a zone: a counter, a power or an error. A zone may have
// counters in some readings and powers in others.
type Shown struct {
	// Zone is the zone. A zone has the same pointer in each Answer. A new pointer with the same ID
	// replaces the zone, and its total starts at 0.
	Zone *Zone
	// At is the time of the reading, with a monotonic clock reading. If it is zero, the time is the
	// time of the sample, or the end of the poll. If it equals the previous At, the reading is not
	// new.
	At  time.Time
	Err error // the reason why the zone could not be read, ErrUnmeasured, or nil

	// Counter is the raw energy counter of the hardware in µJ.
	Counter units.Energy
	// Range is the energy in µJ after which the counter wraps to 0. It is 0 if the counter never
	// wraps, or if the range is not available.
	Range units.Energy
	// Transient marks a counter that starts when this process opens it, such as a perf event.
	// Counter does not wrap, because the kernel extends the hardware counter, whose range is Range.
	Transient bool
	// Epoch identifies a series of totals from a hypervisor. A new epoch means that the totals
	// restarted. It is empty for other counters.
	Epoch string

	// IsPower reports whether the reading is a power instead of a counter.
	IsPower bool
	// Power is the mean power in µW over the duration Average before At. If Average is 0, it is the
	// power at the time At.
	Power   int64
	Average time.Duration
}

// direct is the Meter that Direct returns.
type direct struct {
	name     string
	source   Source
	accounts accounts
	readings []Reading
	closed   bool
}

// Direct returns a meter that calls Source.Answer in each Read. An unchanged counter means that no
// energy was used until this Read. The name is the prefix of errors.
func Direct(name string, source Source) Meter {
	return &direct{name: name, source: source, accounts: accounts{longestGap: minLongestGap}}
}

// Read returns the zones of an Answer, in the same order. It allocates only for new zones.
func (d *direct) Read(ctx context.Context, s Sample) ([]Reading, error) {
	if d.closed {
		return nil, fmt.Errorf("%s meter: %w", d.name, fs.ErrClosed)
	}
	answer, err := d.source.Answer(ctx, s)
	d.readings = d.readings[:0]
	for i := range answer.Shown {
		d.readings = append(d.readings, d.accounts.take(&answer.Shown[i], s.At).read())
	}
	return d.readings, cmp.Or(err, answer.Warning)
}

// Close closes the Source. After Close, Read returns fs.ErrClosed, and Close has no effect.
func (d *direct) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	return d.source.Close()
}
