// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

const (
	// discoverEvery is the sample time between two discoveries, and retryEvery while something fails.
	discoverEvery = 10 * time.Second
	retryEvery    = time.Second
	// longestPause is the longest time between two discoveries of a meter without zones.
	longestPause = time.Minute
)

// Discovery decides when a Source looks for zones: at first, after an Answer in which a zone began
// to fail, and every 10 s of sample time. The interval is a second while a zone fails. While there
// is no zone, it grows from a second to a minute: so a driver that is loaded during boot is found
// soon, and a machine without the meter is searched once a minute.
//
// Below a root directory with a sysfs, Find runs on another goroutine, because any user can block
// it (kernfs.Search). Run waits for it for up to a second once.
//
// Set the exported fields. A Discovery is not safe for concurrent use.
type Discovery struct {
	Meter string // its name, for errors
	// Search configures where Find looks.
	Search kernfs.Search[func() error]
	// Find looks for zones, and returns a function that takes the result over, which Run calls. The
	// error of that function is the reason why there is no zone. An Answer may run during Find, but
	// no other Find, and no function that a Find returned.
	Find func() (takeOver func() error)
	// Patience replaces the 10 s and the interval while there is no zone. 0 means neither.
	Patience time.Duration

	found   time.Time // sample time of the last discovery, zero before the first
	absent  time.Time // sample time of the first discovery in a row without a zone
	err     error     // of the last discovery
	due     bool      // a zone began to fail: discover in the next Run
	failing bool      // a zone could not be read in the last Answer
	failed  time.Time // sample time of the last such Answer
}

// Run discovers zones if that is due, and reports whether a discovery has ended. zones is the number
// of zones that were found before.
func (d *Discovery) Run(s Sample, zones int) bool {
	d.Search.Waits = s.Waits
	if !d.found.IsZero() && !d.due && s.At.Sub(d.found) < d.pause(zones) && !d.Search.Running() {
		return false
	}
	takeOver, ok := d.Search.Run(d.Find)
	if !ok {
		return false
	}
	d.due, d.err, d.found = false, takeOver(), s.At
	if d.err == nil || d.absent.IsZero() {
		d.absent = s.At
	}
	return true
}

// pause returns the sample time from the last discovery to the next. A discovery takes about a
// hundred system calls: too many at a hundred reads per second if a counter is not readable.
func (d *Discovery) pause(zones int) time.Duration {
	switch {
	case zones > 0 && (d.failing || d.err != nil):
		return retryEvery
	case zones == 0 && d.Patience == 0:
		return min(max(d.found.Sub(d.absent), retryEvery), longestPause)
	}
	return cmp.Or(d.Patience, discoverEvery)
}

// Note notes whether a zone could be read at the sample time, and whether one could not. It returns
// the error of the Answer: that of the last discovery if no zone could be read, and always an error
// while a discovery hangs.
func (d *Discovery) Note(at time.Time, good, failing bool) error {
	if d.failing = failing; failing {
		d.due = d.due || at.Sub(d.failed) >= retryEvery
		d.failed = at
	}
	if err := d.Search.Err(); err != nil {
		return fmt.Errorf("%s meter: %w", d.Meter, err)
	}
	if good {
		return nil
	}
	return d.err
}
