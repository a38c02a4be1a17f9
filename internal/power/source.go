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

// Source provides what the hardware of one meter shows: counters and powers as they were read.
// Direct makes a Meter of a Source that answers at once, Poll of a Source that may take long, such
// as a BMC, a web page or a chip on a slow bus. One goroutine at a time uses a Source.
type Source interface {
	// Answer reads the hardware at the moment of the sample, which is all of the sample that a
	// polled Source gets. It returns soon after ctx is done. The Answer is valid until the next
	// call.
	//
	// The error reports why no zone could be read; the error of one zone is in its Shown. If there
	// is nothing to read, the error is fs.ErrNotExist or ErrNoZones, and a later call looks again.
	// While a state lasts, so does the text of its error: a changed text is logged again. Direct
	// uses the Answer next to an error, Poll does not.
	Answer(ctx context.Context, s Sample) (Answer, error)
	// Close releases what the Source holds open. No Answer follows.
	Close() error
}

// Answer holds all zones of a Source.
type Answer struct {
	Shown []Shown
	// Every is the time from the start of this Answer to the start of the next. 0 means
	// PollOptions.Every. Direct ignores it.
	Every time.Duration
	// Warning is the reason for a degraded mode of operation, or nil. Its text changes only with
	// the reason.
	Warning error
}

// Shown is what the hardware of one zone shows: a counter, a power or an error. A zone may show
// counters and powers by turns.
type Shown struct {
	// Zone has the same pointer in each Answer. Another pointer with the same ID takes its place,
	// with a total of its own.
	Zone *Zone
	// At is when the hardware was read, with a monotonic clock reading. The zero time is the moment
	// of the sample, or the end of a poll. A zone with the same At as before shows nothing new.
	At  time.Time
	Err error // why the zone could not be read

	// Counter is an energy that the hardware adds up, and that may be reset.
	Counter units.Energy
	// Range is the energy after which the hardware's counter begins at 0 again, 0 if it never does
	// or the range is not known.
	Range units.Energy
	// Transient marks a counter that only this process has. The kernel extends the hardware's
	// counter, so that Counter does not wrap.
	Transient bool
	// Epoch identifies a series of totals that a hypervisor reports. It is empty for other
	// counters.
	Epoch string

	// IsPower marks a power in place of a counter.
	IsPower bool
	// Power is a power in µW, the mean over the time Average before At. An Average of 0 stands for
	// the power of that moment.
	Power   int64
	Average time.Duration
}

// direct is the Meter of a Source that answers at once.
type direct struct {
	name     string
	source   Source
	accounts accounts
	readings []Reading
	closed   bool
}

// Direct returns a meter that asks the Source in each Read. A counter that stands still counts no
// energy until the moment of the Read. The name is for errors.
func Direct(name string, source Source) Meter {
	return &direct{name: name, source: source, accounts: accounts{longestGap: minLongestGap}}
}

// Read returns the zones of an Answer, in its order. It allocates nothing but for new zones.
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

// Close closes the Source. It may be called again; Read may not.
func (d *direct) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	return d.source.Close()
}
