// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/stall"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// Options say what a Source reads.
type Options struct {
	// Root is the root directory of the host: "/", or where it is mounted in a container.
	Root string
}

// Source reads which processes used the GPUs of DRM drivers. It implements gpu.Source. Where there
// are none, it looks for them once a minute and does nothing else.
type Source struct {
	root string
	// files guards reads of files of processes.
	files  *stall.Guard[*files]
	cached *kernfs.Dir // reads sizes of descriptor lists that were looked up before
	kfd    kfd

	devices    []*device         // by name
	nodes      map[string]string // the device of each node: renderD128
	discovered time.Time
	search     kernfs.Search[discovered]
	self       int32 // PID of the process that reads, 0 where it is not known

	clients   []*client
	due       []*client // scratch of readClients
	kept      int       // texts of clients that stay open
	byKey     map[key]*client
	unsorted  bool // the clients are
	anyLost   bool
	processes processes
	look      look
	looked    []int32 // scratch of lookAtLost
	// firstActive is where in Table.Active the next Read starts, and nextRow the row that was swept
	// last.
	firstActive, nextRow int

	last  time.Time // of the last Read
	reads uint64    // the number of Reads with GPUs

	numbers bool // the kernel shows the number of a process's descriptors

	entries func(size int64) int64 // in a directory of another file system than /proc, for tests

	info   fdinfo
	text   []byte
	target []byte // scratch of open

	usage []gpu.Usage
	users []gpu.User
	pids  []int32
	errs  []error // scratch of trouble
}

// findEvery is how often GPUs are looked for.
const findEvery = time.Minute

// What Read returns. The texts must not change from Read to Read.
var (
	errDenied = errors.New("the descriptors of some processes cannot be read, so their GPU usage is unknown: reading them requires " +
		"CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH for processes of other users, and permission of security modules such as AppArmor")
	errHidden = errors.New("KFD does not show the users of a GPU: its files in /sys/class/kfd/kfd/proc may not be read, " +
		"or the GPU has neither cu_occupancy nor gpu_busy_percent")
)

// New returns a source. It looks at no GPU and no other process.
func New(options Options) *Source {
	return &Source{
		root:   options.Root,
		files:  guardFiles(stall.Options[*files]{Root: options.Root}),
		cached: kernfs.NewCached(filepath.Join(options.Root, "proc")),
		search: kernfs.Search[discovered]{
			Root: options.Root, Dir: filepath.Join(options.Root, "sys/class/drm"), Drop: discovered.drop,
		},
		nodes: map[string]string{},
		byKey: map[key]*client{},
		self:  selfOf(options.Root),
	}
}

// selfOf returns the PID of this process below a root, 0 where it is not known, as in a simulation.
func selfOf(root string) int32 {
	self, _ := filepath.EvalSymlinks(filepath.Join(root, "proc/self"))
	pid, _ := strconv.ParseInt(filepath.Base(self), 10, 32)
	return int32(pid)
}

// Close implements gpu.Source.
func (s *Source) Close() error {
	s.search.Close()
	errs := []error{s.files.Close(), s.cached.Close()}
	for _, d := range s.devices {
		errs = append(errs, d.close())
	}
	for _, c := range s.clients {
		s.drop(c)
	}
	return errors.Join(errs...)
}

// Read implements gpu.Source. It allocates nothing while the same processes use the GPUs.
func (s *Source) Read(now time.Time, t *scan.Table) ([]gpu.Usage, error) {
	if s.discovered.IsZero() || now.Sub(s.discovered) >= findEvery || s.search.Running() {
		if found, ok := s.search.Run(s.discover); ok {
			s.takeOver(found)
			s.discovered = now
		}
	}
	if !slices.ContainsFunc(s.devices, (*device).reportsUsers) {
		return nil, s.search.Err()
	}
	if s.text == nil {
		s.text = make([]byte, 16<<10)
	}
	s.files.Begin(now)
	for _, d := range s.devices {
		d.begin(s.last, now, s.text)
	}
	s.reads++
	s.processes.follow(t, s.reads)
	s.readClients(now)
	s.find(now, t)
	s.estimateLost()
	s.sortClients()
	s.kfd.read(s)
	usage := s.report(now)
	s.last = now
	s.forgetLost()
	return usage, s.trouble()
}

// trouble returns what keeps some use of GPUs from being known.
func (s *Source) trouble() error {
	hidden := slices.ContainsFunc(s.devices, func(d *device) bool { return d.hidden })
	denied := s.processes.denied > 0 && (hidden || slices.ContainsFunc(s.devices, (*device).reported))
	errs := s.errs[:0]
	if err := s.search.Err(); err != nil {
		errs = append(errs, err)
	}
	if err := s.files.Err("GPU usage"); err != nil {
		errs = append(errs, err)
	}
	if denied {
		errs = append(errs, errDenied)
	}
	if hidden {
		errs = append(errs, errHidden)
	}
	if s.errs = errs; len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// report returns the usage of each GPU in the interval that ends now.
func (s *Source) report(now time.Time) []gpu.Usage {
	s.usage, s.users, s.pids = s.usage[:0], s.users[:0], s.pids[:0]
	next := 0 // client
	for _, d := range s.devices {
		first := len(s.users)
		for ; next < len(s.clients) && s.clients[next].device == d; next++ {
			switch c := s.clients[next]; {
			case !c.lost:
				s.use(first, c.pid, c.used, time.Time{})
			case c.used > 0: // its process may have exited, and another process may have its PID
				s.use(first, c.pid, c.used, s.last)
			}
		}
		s.useKFD(first, d)
		if d.present && !d.asleep {
			d.since = now
		}
		if !d.reported() {
			s.users = s.users[:first]
			continue
		}
		s.usage = append(s.usage, gpu.Usage{
			Domain: d.domain, Busy: d.busy(), Total: units.CPUTime(d.elapsed), UntilRead: true, Users: s.users[first:],
		})
	}
	return s.usage
}

// use adds the GPU time of a process to the users from first on, which are in the order of their PIDs.
// last is as in gpu.User.
func (s *Source) use(first int, pid int32, used units.CPUTime, last time.Time) {
	if n := len(s.users); n > first && s.users[n-1].PIDs[0] == pid && s.users[n-1].Last.Equal(last) {
		s.users[n-1].Used += used
		return
	}
	s.pids = append(s.pids, pid)
	s.users = append(s.users, gpu.User{PIDs: s.pids[len(s.pids)-1 : len(s.pids) : len(s.pids)], Used: used, Last: last})
}

// useKFD adds what processes used through KFD.
func (s *Source) useKFD(first int, d *device) {
	if !d.isKFD {
		return
	}
	known := len(s.users)
	for _, p := range s.kfd.processes {
		var used units.CPUTime
		for i, node := range s.kfd.nodes {
			if node.device == d {
				used += p.used[i]
			}
		}
		if len(d.unknown) == 1 && d.unknown[0] == p.pid {
			used += d.unknownUsed
		}
		if used == 0 {
			continue
		}
		for first < known && s.users[first].PIDs[0] < p.pid {
			first++
		}
		if first < known && s.users[first].PIDs[0] == p.pid {
			s.users[first].Used += used
		} else {
			s.use(known, p.pid, used, time.Time{})
		}
	}
	if len(d.unknown) > 1 && d.unknownUsed > 0 {
		s.users = append(s.users, gpu.User{PIDs: d.unknown, Used: d.unknownUsed})
	}
}
