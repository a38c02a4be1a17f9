// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"bytes"
	"fmt"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// Online lists the CPUs that are online (Documentation/admin-guide/cputopology.rst). It is not safe
// for concurrent use.
type Online struct {
	dir     *kernfs.Dir // sys/devices/system/cpu
	buf     []byte
	text    []byte // content of the file that cpus was parsed from
	cpus    []int
	checked time.Duration
}

// NewOnline returns the list of the machine whose root directory is at root. It does not access the
// machine.
func NewOnline(root string) *Online {
	return &Online{dir: kernfs.New(filepath.Join(root, "sys/devices/system/cpu")), buf: make([]byte, 4096)}
}

// CPUs returns the numbers of the CPUs as of the last Read or Refresh that succeeded, in ascending
// order. The caller must not change the slice.
func (o *Online) CPUs() []int { return o.cpus }

// Read reads the list. changed reports whether it differs from the list before. An error leaves the
// list as it was.
func (o *Online) Read() (changed bool, err error) {
	b, err := o.dir.Read("online", o.buf)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", filepath.Join(o.dir.Path(), "online"), err)
	}
	if bytes.Equal(b, o.text) {
		return false, nil
	}
	text, cpus := bytes.Clone(b), []int(nil)
	if err := kernfs.ParseList(text, func(cpu int) { cpus = append(cpus, cpu) }); err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Join(o.dir.Path(), "online"), err)
	}
	o.text, o.cpus = text, cpus
	return true, nil
}

// refreshAfter is how often Refresh reads the list, however short the intervals are.
const refreshAfter = time.Second

// Refresh is Read at most once a second, without errors. now is the time since any fixed moment.
func (o *Online) Refresh(now time.Duration) (changed bool) {
	if now >= o.checked && now-o.checked < refreshAfter {
		return false
	}
	o.checked = now
	changed, _ = o.Read() // the next call reads what this one cannot
	return changed
}

// forget makes the next read report a change.
func (o *Online) forget() { o.text = nil }

// Close closes the directory that the list is read from.
func (o *Online) Close() error { return o.dir.Close() }
