// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Sensor is asked for the power or energy of zones, and may take long to answer: a BMC, a web page, a chip on a slow bus. A
// Poller makes a Meter of it. One goroutine uses it.
type Sensor interface {
	// Poll asks once. It returns soon after ctx is done. The values are valid until the next call.
	//
	// The error tells what kept all zones from being read; the error of one zone is in its Value. Where there is nothing to
	// read, the error is fs.ErrNotExist or ErrNoZones, and a later call looks again.
	Poll(ctx context.Context) ([]Value, error)
	// Close releases what the sensor holds open. No Poll follows.
	Close() error
}

// Value is what a Sensor answered about one zone: an energy, a power or an error.
type Value struct {
	zone    *Zone
	at      time.Time
	isPower bool
	energy  units.Energy
	power   int64 // in µW
	average time.Duration
	err     error
}

// EnergyValue returns a value of an energy counter, which may be reset and never wraps. The zone's pointer must be the same
// in each Poll; another one with the same ID takes its place, with a total of its own.
func EnergyValue(z *Zone, counter units.Energy, at time.Time) Value {
	return Value{zone: z, energy: counter, at: at}
}

// PowerValue returns a power in microwatts, averaged over the time before at, 0 where it is the power of that moment.
func PowerValue(z *Zone, microwatts int64, average time.Duration, at time.Time) Value {
	return Value{zone: z, isPower: true, power: microwatts, average: average, at: at}
}

// FailedValue returns why a zone could not be read.
func FailedValue(z *Zone, err error) Value { return Value{zone: z, err: err} }

// PollOptions say how a Sensor is asked.
type PollOptions struct {
	Name string // of the meter, for errors
	// Every is the time from the start of one poll to the start of the next.
	Every time.Duration
	// Timeout is how long one poll may take. 0 means a minute.
	Timeout time.Duration
	// LongestGap is how far two readings of power may be apart to be integrated. 0 means the larger of two minutes and three
	// times Every.
	LongestGap time.Duration
}

// Poller reads a Sensor on its own goroutine, so that it delays nobody, and integrates powers. It implements Meter.
//
// A Poller starts with the first Read and ends with Close. While a poll fails, zones keep their totals and their readings
// have its error; polls that fail are repeated less and less often, up to every five minutes.
type Poller struct {
	sensor  Sensor
	options PollOptions
	stop    context.CancelFunc // nil before the first Read
	done    chan struct{}
	closed  bool

	readings []Reading

	mu    sync.Mutex // of what follows
	zones []*polled
	err   error // what the last poll failed with
	began time.Time
}

// polled is a zone of a Poller.
type polled struct {
	reading    Reading
	counter    *Counter
	integrator *Integrator
}

const maxBackoff = 5 * time.Minute

// NewPoller returns a meter that asks the sensor. It touches nothing.
func NewPoller(sensor Sensor, options PollOptions) *Poller {
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	if options.LongestGap == 0 {
		options.LongestGap = max(2*time.Minute, 3*options.Every)
	}
	return &Poller{sensor: sensor, options: options, done: make(chan struct{})}
}

// Read returns what the last polls found. It returns no zones and no error before the first one has ended.
func (p *Poller) Read(context.Context, Sample) ([]Reading, error) {
	switch {
	case p.closed:
		return nil, fmt.Errorf("%s meter: %w", p.options.Name, fs.ErrClosed)
	case p.stop == nil:
		ctx, stop := context.WithCancel(context.Background())
		p.stop = stop
		go p.run(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readings = p.readings[:0]
	for _, z := range p.zones {
		p.readings = append(p.readings, z.reading)
		z.reading.Event = NoEvent
	}
	return p.readings, p.err
}

// run polls until ctx is done.
func (p *Poller) run(ctx context.Context) {
	defer close(p.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		if p.poll(ctx) {
			failures = 0
		} else {
			failures++
		}
		timer.Reset(time.Until(began.Add(p.pause(failures))))
	}
}

// pause returns the time between the starts of two polls after so many that failed.
func (p *Poller) pause(failures int) time.Duration {
	pause := p.options.Every
	for range failures {
		if pause >= maxBackoff {
			break
		}
		pause = min(2*pause, maxBackoff)
	}
	return pause
}

// poll asks once and reports whether there was an answer.
func (p *Poller) poll(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	values, err := p.sensor.Poll(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	for _, z := range p.zones {
		z.reading.Err = err
		if err == nil {
			z.reading.Err = errNoValue
		}
	}
	for i := range values {
		p.take(&values[i])
	}
	return err == nil
}

var errNoValue = errors.New("the sensor no longer reports this zone")

// take adds a value to its zone.
func (p *Poller) take(v *Value) {
	z := p.zone(v.zone)
	r := &z.reading
	r.Err = v.err
	if v.err != nil {
		return
	}
	var energy units.Energy
	var event Event
	if v.isPower {
		energy, event = z.integrator.Add(v.power, v.average, v.at)
		r.Unmeasured = z.integrator.Unmeasured()
	} else {
		energy, event = z.counter.Add(v.energy, v.at)
	}
	if event == Rejected {
		r.Err = fmt.Errorf("%d mW is impossible", v.power/1000)
	}
	if r.Event == NoEvent { // else the one before was not read yet
		r.Event = event
	}
	// A counter that has not moved has nothing new: its zone waits until it moves.
	if v.isPower && event != Rejected || energy > 0 || event != NoEvent && event != Rejected {
		r.At = v.at
	}
	r.Total = units.AddSaturating(r.Total, energy)
}

// zone returns what is known of a zone. Another zone of the same ID gives way to it: the sensor reads it in another way.
func (p *Poller) zone(zone *Zone) *polled {
	i := slices.IndexFunc(p.zones, func(z *polled) bool { return z.reading.Zone.ID == zone.ID })
	if i >= 0 && p.zones[i].reading.Zone == zone {
		return p.zones[i]
	}
	z := &polled{
		reading: Reading{Zone: zone}, counter: NewCounter(zone.MaxWatts, 0),
		integrator: NewIntegrator(zone.MaxWatts, p.options.LongestGap),
	}
	if i >= 0 {
		p.zones[i] = z
	} else {
		p.zones = append(p.zones, z)
	}
	return z
}

// Close ends the polls and closes the sensor. It may be called again; Read may not.
func (p *Poller) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if p.stop != nil {
		p.stop()
		<-p.done
	}
	return p.sensor.Close()
}
