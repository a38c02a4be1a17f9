// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Options configure a Source.
type Options struct {
	// Root is the root directory of the host: "/", or its mount point in a container.
	Root string
	// Waits bounds the waits for files that a user blocks. If it is nil, the Source has its own.
	Waits *kernfs.Waits
}

// Source reads which processes used the GPUs of DRM drivers. It implements gpu.Source. On a machine
// without such GPUs, it only looks for GPUs once a minute.
//
// A Source is not safe for concurrent use.
type Source struct {
	devices   devices
	reader    reader
	processes processes
	clients   clients
	finder    finder
	kfd       kfd
	last      time.Time // of the last Read

	// The results of Read.
	usage []gpu.Usage
	users []gpu.User
	pids  []int32
}

// The errors of Read. Their texts are constant, so that a condition does not change from Read to
// Read.
var (
	errDenied = errors.New("the descriptors of some processes cannot be read, so their GPU usage is unknown: reading them requires " +
		"CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH for processes of other users, and permission of security modules such as AppArmor")
	errHidden = errors.New("KFD does not show the users of a GPU: its files in /sys/class/kfd/kfd/proc may not be read, " +
		"or the GPU has neither cu_occupancy nor gpu_busy_percent")
)

// New returns a source. It does not read files of GPUs or of other processes.
func New(options Options) *Source {
	s := &Source{devices: newDevices(options), reader: newReader(options)}
	s.clients = clients{reader: &s.reader, byKey: map[key]*client{}, kept: kernfs.Allowance{Most: maxKept}}
	s.finder = finder{
		reader: &s.reader, devices: &s.devices, processes: &s.processes, clients: &s.clients, self: selfOf(options.Root),
	}
	s.kfd = kfd{reader: &s.reader, devices: &s.devices}
	return s
}

// Close implements gpu.Source.
func (s *Source) Close() error {
	err := errors.Join(s.reader.close(), s.devices.close())
	s.clients.close()
	return err
}

// Read implements gpu.Source. It does not allocate memory while the same processes use the GPUs.
func (s *Source) Read(now time.Time, t *proc.Table) ([]gpu.Usage, error) {
	if found, ok := s.devices.find(now); ok {
		s.kfd.takeOver(found)
	}
	if !slices.ContainsFunc(s.devices.list, (*device).mayReport) {
		return nil, s.devices.search.Err()
	}
	s.reader.guard.Begin(now)
	for _, d := range s.devices.list {
		d.begin(s.last, now, s.devices.buf)
	}
	s.processes.follow(t)
	s.clients.read(s.last, now, t)
	s.finder.find(s.last, now, t)
	s.clients.estimateLost()
	s.kfd.read()
	usage := s.report(now)
	s.last = now
	return usage, s.err()
}

// err returns the reasons if the usage is incomplete.
func (s *Source) err() error {
	hidden := slices.ContainsFunc(s.devices.list, func(d *device) bool { return d.compute.hidden })
	err := errors.Join(s.devices.search.Err(), s.reader.guard.Err("GPU usage"))
	if s.processes.denied > 0 && (hidden || slices.ContainsFunc(s.devices.list, (*device).reports)) {
		err = errors.Join(err, errDenied)
	}
	if hidden {
		err = errors.Join(err, errHidden)
	}
	return err
}

// report returns the usage of each GPU in the interval that ends now.
func (s *Source) report(now time.Time) []gpu.Usage {
	s.usage, s.users, s.pids = s.usage[:0], s.users[:0], s.pids[:0]
	s.clients.report()
	for _, d := range s.devices.list {
		if d.present && !d.asleep {
			d.since = now
		}
		if d.reports() {
			s.usage = append(s.usage, gpu.Usage{
				Domain: d.domain, Busy: d.busy(), Total: units.CPUTime(d.elapsed), UntilRead: true, Users: s.usersOf(d),
			})
		}
	}
	return s.usage
}

// usersOf returns the users of a GPU. A process is one user, and another one if it closed a client.
func (s *Source) usersOf(d *device) []gpu.User {
	first := len(s.users)
	slices.SortFunc(d.uses, func(a, b use) int { return cmp.Or(cmp.Compare(a.pid, b.pid), a.last.Compare(b.last)) })
	for _, u := range d.uses {
		if n := len(s.users); n > first && s.users[n-1].PIDs[0] == u.pid && s.users[n-1].Last.Equal(u.last) {
			s.users[n-1].Used += u.used
			continue
		}
		n := len(s.pids)
		s.pids = append(s.pids, u.pid)
		s.users = append(s.users, gpu.User{PIDs: s.pids[n : n+1 : n+1], Used: u.used, Last: u.last})
	}
	if c := &d.compute; c.used > 0 {
		s.users = append(s.users, gpu.User{PIDs: c.unknown, Used: c.used})
	}
	return s.users[first:]
}
