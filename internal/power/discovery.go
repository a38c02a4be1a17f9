// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

const (
	// discoverEvery is the sample time between two discoveries. While a zone cannot be read, it is
	// retryEvery.
	discoverEvery = 10 * time.Second
	retryEvery    = time.Second
	// longestPause is the maximum sample time between two discoveries of a meter without zones.
	longestPause = time.Minute
)

// Discovery schedules the searches of a Source for zones. The first search is immediate. The next
// searches follow after an Answer with a zone that began to fail, and every 10 s of sample time:
//
//	a zone fails    every second
//	no zone         first every second, then less often, up to once a minute
//
// So a driver that is loaded during boot is found soon, and a machine without the meter is searched
// once a minute.
//
// If the root directory contains a sysfs, Find runs on a separate goroutine, because any user can
// block it (kernfs.Search). Run waits for the first Find that blocks, for up to a second.
//
// Set the exported fields before the first Run. A Discovery is not safe for concurrent use.
type Discovery struct {
	Meter string // name of the meter, for errors
	// Search configures the directory of the search and how Find runs.
	Search kernfs.Search[func() error]
	// Find searches for zones. It returns a function that applies the result, which Run calls. The
	// error of this function is the reason why there is no zone. An Answer may run concurrently with
	// Find. Another Find or a returned function may not.
	Find func() (takeOver func() error)
	// Patience replaces the interval of 10 s, and the interval without zones. 0 keeps the defaults.
	Patience time.Duration

	found   time.Time // sample time of the last discovery, zero before the first
	absent  time.Time // sample time of the first of the last discoveries that found no zone
	err     error     // error of the last discovery
	due     bool      // a zone began to fail, so the next Run discovers zones
	failing bool      // a zone could not be read in the last Answer
	failed  time.Time // sample time of the last Answer with a zone that could not be read
}

// Run discovers zones if a discovery is due, and reports whether a discovery has finished. zones is
// the current number of zones.
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

// pause returns the sample time from the last discovery to the next. A discovery takes about 100
// system calls, which is too many for each of a hundred reads per second.
func (d *Discovery) pause(zones int) time.Duration {
	switch {
	case zones > 0 && (d.failing || d.err != nil):
		return retryEvery
	case zones == 0 && d.Patience == 0:
		return min(max(d.found.Sub(d.absent), retryEvery), longestPause)
	}
	return cmp.Or(d.Patience, discoverEvery)
}

// Note records whether any zone was read at the sample time (good), and whether any zone could not
// be read (failing). It returns the error of the Answer. If no zone was read, this is the error of
// the last discovery. While a discovery hangs, Note always returns an error.
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
