// SPDX-License-Identifier: Apache-2.0

package library

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// polled is the power.Source of one library. Its poller's goroutine calls the library.
type polled struct {
	Library
	root   string
	poller *power.Poller

	// The poller's goroutine uses these fields.
	reader    gpulibrary.Reader // nil before the first poll
	broken    error             // once the library has panicked
	begun     bool
	elsewhere error // the reason if PIDs cannot be looked up
	cgroups   *cgroups
	shown     []power.Shown

	mu      sync.Mutex // guards the fields below
	devices []*device
	unknown error // names the GPUs whose users cannot be read
}

func newPolled(l Library, o Options) *polled {
	p := &polled{Library: l, root: o.Root, cgroups: newCgroups(o.Root)}
	p.poller = power.Poll(p, power.PollOptions{
		Name: l.Name, Every: o.Every, Timeout: timeout, MaxBackoff: maxBackoff, MaxUnchanged: standsStill,
	})
	return p
}

// Answer polls the library once. It implements power.Source.
func (p *polled) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	var found []gpulibrary.Device
	err := p.call(func() (err error) {
		if p.reader == nil {
			p.reader = p.Open()
		}
		found, err = p.reader.Poll(ctx)
		return err
	})
	if err != nil {
		return power.Answer{}, err
	}
	now := time.Now()
	if !p.begun {
		p.begun, p.elsewhere = true, checkPIDs(p.root)
	}
	kernfs.OffMainThread(func() { p.cgroups.read(found) }) // a user can block these reads (dev/kernel-reads.md)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = p.shown[:0]
	for i := range found {
		p.take(found[:i], found[i], now)
	}
	p.unknown = p.explain()
	if len(p.devices) == 0 {
		return power.Answer{}, fmt.Errorf("%s: no GPU: %w", p.Name, power.ErrNoZones)
	}
	return power.Answer{Shown: p.shown}, nil
}

// call calls the library. A panic of the library is an error, and the library is not called again,
// because it may hold its locks forever. A panic on a goroutine of the library, or a fault in its C
// code, ends the collector.
func (p *polled) call(f func() error) (err error) {
	if p.broken != nil {
		return p.broken
	}
	defer func() {
		if r := recover(); r != nil {
			p.broken = fmt.Errorf("%s panicked and is not used again: %v", p.Name, r)
			err = p.broken
		}
	}()
	if err := f(); err != nil {
		return p.named(err)
	}
	return nil
}

// named adds the library's name to an error.
func (p *polled) named(err error) error {
	if errors.Is(err, fs.ErrPermission) { // not wrapped, because advice about the files of energy counters would be wrong
		return errors.New(p.Name + ": " + err.Error())
	}
	return fmt.Errorf("%s: %w", p.Name, err)
}

// take adds a device of a poll that ended at now. before are the devices of the same poll that were
// added earlier.
func (p *polled) take(before []gpulibrary.Device, found gpulibrary.Device, now time.Time) {
	if slices.ContainsFunc(before, func(o gpulibrary.Device) bool { return o.ID == found.ID || address(&o) == address(&found) }) {
		return
	}
	if found.At.IsZero() {
		found.At = now
	}
	found.UsageErr = cmp.Or(found.UsageErr, p.elsewhere)
	d := p.device(&found)
	isCounted := d.take(&found, p.cgroups)
	if found.Err != nil {
		p.shown = append(p.shown, power.Shown{Zone: &d.zone, Err: p.named(found.Err)})
		return
	}
	p.shown = append(p.shown, d.show(&found, isCounted))
}

// address returns the address that names the GPU's domain.
func address(d *gpulibrary.Device) string { return cmp.Or(d.PCIAddress, d.ID) }

// device returns the state of a GPU, and creates it for a new GPU. A GPU whose address changed is a
// new GPU.
func (p *polled) device(found *gpulibrary.Device) *device {
	domain := units.GPU(address(found))
	i := slices.IndexFunc(p.devices, func(d *device) bool { return d.zone.ID == found.ID || d.zone.Domain == domain })
	if i >= 0 && p.devices[i].zone.ID == found.ID && p.devices[i].zone.Domain == domain {
		return p.devices[i]
	}
	d := &device{zone: power.Zone{
		ID: found.ID, Name: found.Name, Vendor: found.Vendor, Kind: power.GPU, Method: power.Measured, Domain: domain, MaxWatts: found.MaxWatts,
	}}
	if found.Module {
		d.zone.Name += ", derived from its module"
		d.zone.Includes = socketOf(p.root, found.PCIAddress)
	}
	if i >= 0 {
		p.devices[i] = d
	} else {
		p.devices = append(p.devices, d)
	}
	return d
}

// returned records the time until which the energy of each GPU was returned.
func (p *polled) returned(readings []power.Reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range readings {
		r := &readings[i]
		for _, d := range p.devices {
			if &d.zone == r.Zone {
				d.returned = r.At
			}
		}
	}
}

// explain returns an error that lists the GPUs whose users cannot be read, and the reasons. GPUs
// with the same reason are reported together. A GPU whose energy cannot be read either is omitted,
// because its zone reports the reason.
func (p *polled) explain() (all error) {
	for i, d := range p.devices {
		same := func(o *device) bool { return o.unknown != nil && o.unknown.Error() == d.unknown.Error() }
		if d.unknown == nil || slices.ContainsFunc(p.devices[:i], same) {
			continue
		}
		var ids []string
		for _, o := range p.devices[i:] {
			if same(o) {
				ids = append(ids, o.zone.ID)
			}
		}
		all = joined(all, fmt.Errorf("%s: cannot read the users of %s, whose energy is unattributed: %w", p.Name, strings.Join(ids, ", "), d.unknown))
	}
	return all
}

// Close closes the library. It implements power.Source.
func (p *polled) Close() error {
	err := p.cgroups.close()
	if p.reader == nil || p.broken != nil {
		return err
	}
	return errors.Join(p.call(p.reader.Close), err)
}

var errElsewhere = errors.New("the collector is in another PID namespace than the /proc below root_path: run it in the host's " +
	"(hostPID: true on Kubernetes, --pid=host with Docker)")

// checkPIDs returns an error if the PIDs in /proc below root are not PIDs of the collector's PID
// namespace, which libraries report. It accepts a recorded tree, which does not contain this
// process.
func checkPIDs(root string) error {
	self := filepath.Join(root, "proc", "self")
	pid, err := os.Readlink(self)
	if err != nil {
		if _, err := os.Lstat(self); err != nil {
			return nil
		}
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return errElsewhere
	}
	return nil
}
