// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Publisher exports to the virtual machines of this host the energy that was attributed to them: it
// writes their trees on its own goroutine, and provides their reports to servers. Its methods may
// be called concurrently and do not wait for disk I/O.
//
// Trees and reports over vsock have separate epochs. The epoch of a tree continues in the next
// publisher. The epoch of reports over vsock starts with the publisher.
type Publisher struct {
	path string
	wake chan struct{} // holds one element while there may be something to write
	stop context.CancelFunc
	done chan struct{}
	// abandoned reports whether Close no longer waits.
	abandoned atomic.Bool

	mu       sync.Mutex          // guards the fields up to writing
	machines map[string]*machine // by ID
	round    uint64              // counts calls of Publish
	dirs     map[string]*machine // running machines by directory; nil if several need the same directory
	cids     map[uint32]*machine // running machines by context ID; nil if several have the same ID
	refused  error               // reasons in the last Publish why machines have no export, or nil
	writeErr error               // error of the last attempt to write the trees, or nil
	writing  time.Time           // start of the current attempt to write the trees, or zero

	// Of the goroutine.
	openTrees func(path string) (*os.Root, error)
	trees     map[string]*tree // by directory
}

// machine is a virtual machine that receives an export, or did recently.
type machine struct {
	id, want string // want is the directory that it should have, empty if there is no safe name
	cid      uint32
	hosts    bool // it belongs to the host: no user or container can choose its ID
	running  bool
	round    uint64    // number of the last Publish that had the machine
	seen     time.Time // time of this Publish
	start    time.Time // VM.Start

	epoch      string
	generation uint64
	at         time.Time
	zones      []machineZone

	dir     string // its current directory, or ""
	written uint64 // generation of its tree
}

// machineZone is the total of a zone.
type machineZone struct {
	Zone
	last  units.Energy // total in the last Publish that had the zone
	round uint64       // number of this Publish
}

// job is a report that is to be written to the tree of a machine.
type job struct {
	machine *machine
	dir     string
	report  Report
}

const (
	// keepStopped is the time that a machine stays in memory after it is no longer published. If it
	// is published again later, it continues from its tree.
	keepStopped = time.Hour
	// slowWrite is the time after which writing all trees counts as an error.
	slowWrite = 30 * time.Second
	// maxClose is the maximum time that Close waits for the disk.
	maxClose = 3 * time.Second
	// maxTrees is the number of directories above which only machines of the host get further
	// directories. Users and containers can have any number of machines, and directories are never
	// removed.
	maxTrees = 1000
	// mostNamed is the maximum number of virtual machines that an error names.
	mostNamed = 3
)

var (
	errSlow  = fmt.Errorf("writing the trees takes longer than %v", slowWrite)
	errHangs = errors.New("the last reports were not written, because the disk does not respond")
	errMany  = fmt.Errorf("there are %d directories already: remove directories of virtual machines that no longer exist", maxTrees)
)

// NewPublisher returns a publisher. Close ends it. The directory at path gets a directory for each
// virtual machine. Its parent must exist. If path is empty, no trees are written.
func NewPublisher(path string) *Publisher {
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{
		path: path, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
		machines: map[string]*machine{}, dirs: map[string]*machine{}, cids: map[uint32]*machine{},
		openTrees: openTrees, trees: map[string]*tree{},
	}
	if path == "" {
		close(p.done)
	} else {
		go p.run(ctx)
	}
	return p
}

// Publish adds the energy that was attributed to all virtual machines until the time at. vms has
// one VM per ID, and is not retained. A machine that vms does not contain has stopped. Reports that
// could not be written before are written again.
func (p *Publisher) Publish(vms []VM, at time.Time) {
	p.mu.Lock()
	now := time.Now()
	p.round++
	for i := range vms {
		p.take(&vms[i], at, now)
	}
	for id, m := range p.machines {
		m.running = m.running && m.round == p.round
		if now.Sub(m.seen) > keepStopped {
			delete(p.machines, id)
		}
	}
	p.refused = oneline.Join(p.assignDirs(), p.assignCIDs())
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take adds the energy that was attributed to a machine since the last Publish.
func (p *Publisher) take(vm *VM, at, now time.Time) {
	m := p.machines[vm.ID]
	if m == nil {
		m = &machine{id: vm.ID, hosts: !strings.Contains(vm.ID, "/"), epoch: rand.Text(), start: vm.Start}
		p.machines[m.id] = m
	} else if m.round == p.round {
		return
	}
	changed := m.add(vm, p.round)
	m.round, m.seen = p.round, now
	if vm.Ended && !m.running && !changed {
		return
	}
	m.running, m.cid, m.want = !vm.Ended, vm.CID, dirOf(vm)
	m.generation++
	m.at = at
}

// add adds the new energy of the totals, and reports whether there is any. PSys and Platform share
// a place, so only the kind that the machine had first is exported.
func (m *machine) add(vm *VM, round uint64) (changed bool) {
	if !m.start.Equal(vm.Start) {
		m.start = vm.Start
		for i := range m.zones {
			m.zones[i].last = 0
		}
	}
	for i := range vm.Zones {
		given := &vm.Zones[i]
		if !IsExported(given.Kind) {
			continue
		}
		j := slices.IndexFunc(m.zones, func(z machineZone) bool { return samePlace(z.Kind, given.Kind) })
		if j < 0 {
			j = len(m.zones)
			m.zones = append(m.zones, machineZone{Zone: Zone{Kind: given.Kind}})
		}
		z := &m.zones[j]
		if z.Kind != given.Kind {
			continue
		}
		if given.Energy < z.last {
			z.last = 0
		}
		changed = changed || given.Energy != z.last
		z.Energy = min(units.AddSaturating(z.Energy, given.Energy-z.last), maxEnergy)
		z.last, z.round = given.Energy, round
	}
	return changed
}

// report returns the totals of the zones that the last Publish with this machine contained.
func (m *machine) report() Report {
	r := Report{Epoch: m.epoch, Generation: m.generation, Time: m.at}
	for i := range m.zones {
		if m.zones[i].round == m.round {
			r.Zones = append(r.Zones, m.zones[i].Zone)
		}
	}
	return r
}

// dirOf returns the name of the directory of a machine, or "" if no name is safe. For a machine of
// the host, it is the name of the machine, or the ID if the name is not safe. Users and containers
// can choose any names for their machines, so the directory of such a machine is the ID with a plus
// sign for each slash. Machines of the host never have such a directory.
func dirOf(vm *VM) string {
	if strings.Contains(vm.ID, "/") {
		if dir := strings.ReplaceAll(vm.ID, "/", "+"); !strings.Contains(vm.ID, "+") && isSafeName(dir, 255, "._-@+") {
			return dir
		}
		return ""
	}
	for _, name := range [...]string{vm.Name, vm.ID} {
		if isSafeName(name, 64, "._-") {
			return name
		}
	}
	return ""
}

// isSafeName reports whether a name is safe for a directory: letters, digits and some other
// characters, a letter or digit first.
func isSafeName(s string, longest int, others string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || strings.IndexByte(others, c) < 0) {
			return false
		}
	}
	return s != "" && len(s) <= longest
}

// assign assigns each key to the running machine that should have it. A machine of the host takes
// precedence over a machine of a user or a container. A key that several machines should have is
// not assigned: a machine must not read the energy of another machine.
func assign[K comparable](owners map[K]*machine, machines map[string]*machine, keyOf func(*machine) K) {
	clear(owners)
	var noKey K
	for _, hosts := range [...]bool{true, false} {
		for _, m := range machines {
			key := keyOf(m)
			if !m.running || m.hosts != hosts || key == noKey {
				continue
			}
			other, taken := owners[key]
			switch {
			case !taken:
				owners[key] = m
			case other == nil || other.hosts == hosts:
				owners[key] = nil
			}
		}
	}
}

// assignDirs assigns the directories, and returns the machines without a directory.
func (p *Publisher) assignDirs() error {
	if p.path == "" {
		return nil
	}
	assign(p.dirs, p.machines, func(m *machine) string { return m.want })
	var refused refusals
	for _, m := range p.machines {
		_, taken := p.dirs[m.dir]
		switch {
		case !m.running && !taken: // its last energy may not be written yet
		case !m.running:
			m.dir = ""
		case m.want == "":
			m.dir = ""
			refused.add("virtual machine with the ID %.80q: neither its name nor its ID can be the name of a directory", m.id)
		case p.dirs[m.want] != m:
			m.dir = ""
			refused.add("virtual machine with the ID %.80q: another one has the same name, %q", m.id, m.want)
		default:
			m.dir = m.want
		}
	}
	return refused.err("no directory for")
}

// assignCIDs assigns the vsock context IDs, and returns the IDs that several machines should have.
// The kernel assigns each context ID once, but the arguments of a process can contain any ID.
func (p *Publisher) assignCIDs() error {
	assign(p.cids, p.machines, func(m *machine) uint32 { return m.cid })
	var refused refusals
	for cid, m := range p.cids {
		if m == nil {
			refused.add("vsock context ID %d", cid)
		}
	}
	return refused.err("several virtual machines have")
}

// Report returns the report for the machine with a vsock context ID. ok is false unless exactly one
// running machine has this ID.
func (p *Publisher) Report(cid uint32) (r Report, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.cids[cid]
	if m == nil {
		return Report{}, false
	}
	return m.report(), true
}

// Err returns the reasons why machines receive no export, or nil if all machines receive it. The
// same state always has the same text.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.writeErr
	if !p.writing.IsZero() && time.Since(p.writing) > slowWrite {
		err = fmt.Errorf("%s: %w", p.path, errSlow)
	}
	return oneline.Join(p.refused, err)
}

// Close writes the last reports and stops the publisher. It waits up to three seconds. If the disk
// does not respond in this time, Close returns an error, and no more files are written. After
// Close, Report returns the last reports.
func (p *Publisher) Close() error {
	p.stop()
	select {
	case <-p.done:
		return nil
	case <-time.After(maxClose):
		p.abandoned.Store(true)
		return fmt.Errorf("%s: %w", p.path, errHangs)
	}
}

// run writes trees until the publisher is closed.
func (p *Publisher) run(ctx context.Context) {
	defer close(p.done)
	for {
		select {
		case <-p.wake:
			p.writeTrees()
		case <-ctx.Done():
			p.writeTrees()
			return
		}
	}
}

// writeTrees writes the trees of all machines with a new generation.
func (p *Publisher) writeTrees() {
	err := p.do(p.collectJobs())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writeErr, p.writing = err, time.Time{}
}

// collectJobs returns the trees to write, and removes the trees of removed machines from memory.
func (p *Publisher) collectJobs() (jobs []job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = time.Now()
	for _, m := range p.machines {
		if m.dir != "" && m.written != m.generation {
			jobs = append(jobs, job{m, m.dir, m.report()})
		}
	}
	for dir, t := range p.trees {
		if p.machines[t.machine.id] != t.machine {
			delete(p.trees, dir)
		}
	}
	return jobs
}

func (p *Publisher) do(jobs []job) error {
	if len(jobs) == 0 {
		return nil
	}
	trees, err := p.openTrees(p.path)
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, cause(err))
	}
	defer func() { _ = trees.Close() }()
	var refused refusals
	var all error
	for i := range jobs {
		if p.abandoned.Load() {
			return nil
		}
		switch err := p.writeTree(trees, &jobs[i]); {
		case err == nil:
		case ofWholeDisk(err):
			all = fmt.Errorf("%s: %w", p.path, cause(err))
		default:
			refused.add("%s: %w", jobs[i].dir, err)
		}
	}
	return oneline.Join(all, refused.err(p.path+":"))
}

// writeTree writes the report and the counters of a job.
func (p *Publisher) writeTree(trees *os.Root, job *job) error {
	root, err := p.openDir(trees, job)
	if err != nil {
		return cause(err)
	}
	defer func() { _ = root.Close() }()
	t := p.trees[job.dir]
	if t == nil || t.machine != job.machine {
		if t, err = openTree(root, job.machine); err != nil {
			return fmt.Errorf("%s: %w", reportFile, cause(err))
		}
	}
	if err := t.writeReport(root, &job.report); err != nil {
		return err
	}
	// Set only after the report was written. Otherwise, if the write fails, the next attempt of the
	// previous machine reads its own report and adds its totals twice.
	p.trees[job.dir] = t
	if err := t.writeCounters(root); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	job.machine.written = job.report.Generation
	return nil
}

// openDir opens the directory of a machine, and makes it if it does not exist.
func (p *Publisher) openDir(trees *os.Root, job *job) (*os.Root, error) {
	root, err := openDirectory(trees, job.dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if !job.machine.hosts && isFull(trees) {
		return nil, errMany
	}
	if err := makeDirectory(trees, job.dir); err != nil {
		return nil, err
	}
	return openDirectory(trees, job.dir)
}

// isFull reports whether the number of trees has reached maxTrees, so only machines of the host get
// further trees.
func isFull(trees *os.Root) bool {
	dir, err := trees.Open(".")
	if err != nil {
		return true
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(maxTrees)
	return len(names) == maxTrees
}

// openTrees opens the directory of the trees. If it does not exist, openTrees creates it, but not
// its parent.
func openTrees(path string) (*os.Root, error) {
	root, err := openPath(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if err := os.Mkdir(path, 0o755); err != nil { //nolint:gosec // the users of hypervisors read it
		return nil, err
	}
	return os.OpenRoot(path)
}

// ofWholeDisk reports whether an error concerns the disk, not only one tree.
func ofWholeDisk(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
	}, func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// refusals are errors of single machines.
type refusals []error

func (r *refusals) add(format string, args ...any) { *r = append(*r, fmt.Errorf(format, args...)) }

// err returns the first refusals in a stable order, and the number of the others. It returns nil if
// there are no refusals.
func (r refusals) err(what string) error {
	if len(r) == 0 {
		return nil
	}
	slices.SortFunc(r, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	r = slices.CompactFunc(r, func(a, b error) bool { return a.Error() == b.Error() })
	texts := make([]string, 0, mostNamed)
	for _, err := range r[:min(len(r), mostNamed)] {
		texts = append(texts, err.Error())
	}
	more := ""
	if n := len(r) - mostNamed; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return fmt.Errorf("%s %s%s", what, strings.Join(texts, "; "), more)
}
