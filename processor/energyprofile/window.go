// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/zone"
)

// maxProcesses is the maximum number of processes whose energy is kept by process. The energy of
// further processes is added to the energy of short-lived processes.
const maxProcesses = 100_000

// maxPath is the maximum length in bytes of the path of an executable. Longer paths are left out:
// with 4 KiB each, the names of many short processes would take 400 MiB, which any user of the
// machine could cause.
const maxPath = 512

// maxWindows is the maximum number of windows that are kept. When no profiles arrive, the oldest
// windows are merged into the balances of their processes, so that only their prices are lost.
const maxWindows = 1000

// maxRows is the maximum number of rows and parts of all windows that are kept, of up to 40 bytes
// each.
const maxRows = 1 << 20

// window is one attribution window of the receiver. Energies are in µJ.
type window struct {
	end time.Time
	// attributed is the time until which all meters have reported; see feed.Window.
	attributed time.Time
	totals
	methods  []string // of the active energy
	rows     []row
	packages int
	parts    []part // of the rows, by package
}

// totals holds energy without a process, in µJ. shortLived is the active energy of processes
// without a row.
type totals struct{ idle, unattributed, shortLived uint64 }

func (w *window) size() int { return len(w.rows) + len(w.parts) }

// row is the energy of a process in a window.
type row struct {
	process  *process
	cpuTime  time.Duration
	cpu, gpu uint64
}

// part is the part of row.cpuTime and row.cpu in a package.
type part struct {
	cpuTime time.Duration
	energy  uint64
}

// key identifies a process: its PID and its start, since boot.
type key struct {
	pid   int32
	start time.Duration
}

// process is a process that has energy which was not sent yet, or that had some recently.
type process struct {
	key
	created                     time.Time // wall clock
	executable, path, container string

	cpu, gpu uint64    // µJ that were not sent yet
	waiting  time.Time // since when cpu has had no sample; the zero time if cpu is 0
	// unsampled is the CPU time since the last sample.
	unsampled time.Duration
	seen      time.Time // the end of its last window
	last      uint64    // the number of its last window
	prices    []price   // of the current period, by interval
	hits      []hit     // of the current period
}

// windows receives the windows of the receiver and has the processes. It is not safe for concurrent
// use.
type windows struct {
	cfg      *Config
	pending  []window
	rows     int             // rows and parts of pending
	rest     totals          // of windows that are settled, not sent yet
	owed     uint64          // µJ of settled windows that were not sent: in rest, in processes and in samples
	start    time.Time       // of the first window
	received uint64          // windows since the start
	settled  uint64          // windows that have left pending
	methods  map[string]bool // of the energy that is settled and not sent
	kinds    []feed.Kind
	used     []bool // by kind: it had energy
	uses     []use
	packages []int32 // see feed.Window

	processes map[key]*process
	byPID     map[int32][]*process // by start
	free      []window             // whose memory is used again
}

// use is the purpose of the energy of a zone kind.
type use uint8

const (
	ignored use = iota
	cpuUse
	gpuUse
)

// usesOf selects the zone kinds of the configuration. A kind that had no energy yet is treated as
// absent, so that it does not replace the kinds that overlap with it.
func (c *Config) usesOf(kinds []feed.Kind, used []bool) []use {
	var names []string
	for i, k := range kinds {
		if used[i] && k.Zone != gpuZone {
			names = append(names, k.Zone)
		}
	}
	uses := make([]use, len(kinds))
	for i, k := range kinds {
		switch {
		case k.Zone == gpuZone:
			if c.GPU {
				uses[i] = gpuUse
			}
		case slices.Contains(c.Zones, k.Zone), len(c.Zones) == 0 && zone.Besides(k.Zone, names) == "":
			uses[i] = cpuUse
		}
	}
	return uses
}

const gpuZone = "gpu"

// take keeps a copy of a window.
func (w *windows) take(of *feed.Window) {
	w.selectKinds(of)
	if w.received == 0 {
		w.start = of.Start
	}
	next := window{end: of.End, attributed: of.Attributed}
	if n := len(w.free); n > 0 {
		next.rows, next.parts, w.free = w.free[n-1].rows, w.free[n-1].parts, w.free[:n-1]
	}
	w.packages = append(w.packages[:0], of.Packages...)
	if len(of.Processes) > 0 {
		next.packages = len(of.Processes[0].Packages)
	}
	for i, use := range w.uses {
		if use == ignored {
			continue
		}
		next.idle += of.Idle[i]
		next.unattributed += of.Unattributed[i]
		next.shortLived += of.Active[i] - min(of.Active[i], of.Unattributed[i])
		if method := of.Kinds[i].Method; of.Active[i] > 0 && !slices.Contains(next.methods, method) {
			next.methods = append(next.methods, method)
		}
	}
	for i := range of.Processes {
		w.takeRow(&next, of, &of.Processes[i])
	}
	w.pending = append(w.pending, next)
	w.rows += next.size()
	w.received++
	for len(w.pending) > maxWindows || w.rows > maxRows && len(w.pending) > 1 {
		oldest := w.due(1)
		w.merge(oldest, nil)
		w.recycle(oldest)
	}
}

// selectKinds selects the zone kinds again if a kind had energy for the first time.
func (w *windows) selectKinds(of *feed.Window) {
	changed := !slices.Equal(of.Kinds, w.kinds)
	if changed {
		w.kinds, w.used = slices.Clone(of.Kinds), make([]bool, len(of.Kinds))
	}
	for i := range w.used {
		if !w.used[i] && of.Active[i]+of.Idle[i] > 0 {
			w.used[i], changed = true, true
		}
	}
	if changed {
		w.uses = w.cfg.usesOf(w.kinds, w.used)
	}
}

// takeRow moves the energy of a process from the short-lived processes to a row of its own.
func (w *windows) takeRow(next *window, of *feed.Window, p *feed.Process) {
	r := row{cpuTime: p.CPU}
	for i, use := range w.uses {
		switch use {
		case cpuUse:
			r.cpu += p.Energy[i]
		case gpuUse:
			r.gpu += p.Energy[i]
		}
	}
	if r.cpu+r.gpu == 0 && r.cpuTime == 0 {
		return
	}
	if r.process = w.processOf(of, p); r.process == nil {
		return
	}
	r.process.seen, r.process.last = of.End, w.received+1
	next.shortLived -= min(next.shortLived, r.cpu+r.gpu)
	next.rows = append(next.rows, r)
	for i := range p.Packages {
		of := part{cpuTime: p.Packages[i].CPU}
		for kind, use := range w.uses {
			if use == cpuUse {
				of.energy += p.Packages[i].Energy[kind]
			}
		}
		next.parts = append(next.parts, of)
	}
}

// placeOf returns the price.place of a CPU, 0 if its package is not available.
func (w *windows) placeOf(cpu int32) int {
	if cpu < 0 || int(cpu) >= len(w.packages) {
		return 0
	}
	return 1 + int(w.packages[cpu])
}

// processOf returns the process of a row, nil if there are too many processes.
func (w *windows) processOf(of *feed.Window, p *feed.Process) *process {
	k := key{p.PID, p.Start}
	found := w.processes[k]
	if found == nil {
		if len(w.processes) >= maxProcesses {
			return nil
		}
		found = &process{key: k, created: of.Boot.Add(p.Start)}
		w.processes[k] = found
		w.byPID[k.pid] = append(w.byPID[k.pid], found)
		slices.SortFunc(w.byPID[k.pid], func(a, b *process) int { return cmp.Compare(a.start, b.start) })
	}
	found.executable, found.path, found.container = p.Executable, p.Path, p.ContainerID
	if len(found.path) > maxPath {
		found.path = ""
	}
	return found
}

// forget removes a process that has no energy left.
func (w *windows) forget(p *process) {
	delete(w.processes, p.key)
	rest := slices.DeleteFunc(w.byPID[p.pid], func(other *process) bool { return other == p })
	if w.byPID[p.pid] = rest; len(rest) == 0 {
		delete(w.byPID, p.pid)
	}
}

// find returns the youngest process with a PID that existed at a time, or else the oldest process
// with the PID, or nil.
func (w *windows) find(pid int32, at time.Time) *process {
	of := w.byPID[pid]
	for i := len(of) - 1; i >= 0; i-- {
		if i == 0 || !of[i].created.After(at) {
			return of[i]
		}
	}
	return nil
}

// takeBack returns the energy of a batch that is not sent to its processes.
func (w *windows) takeBack(b *batch) {
	for i := range b.resources {
		r := &b.resources[i]
		for j := range r.samples {
			if of := r.process; of != nil && w.processes[of.key] == of {
				of.cpu += r.samples[j].energy
			} else {
				w.rest.shortLived += r.samples[j].energy
			}
		}
	}
}

// reported reports whether all meters have reported until the end of the nth pending window.
func (w *windows) reported(n int) bool {
	return !w.pending[len(w.pending)-1].attributed.Before(w.pending[n-1].end)
}

// due removes the first n windows that are pending, and returns them.
func (w *windows) due(n int) []window {
	due := slices.Clone(w.pending[:n])
	w.pending = slices.Delete(w.pending, 0, n)
	for i := range due {
		w.rows -= due[i].size()
	}
	w.settled += uint64(n)
	return due
}

// recycle keeps the memory of windows that are settled.
func (w *windows) recycle(due []window) {
	for i := range due {
		clear(due[i].rows) // of pointers to processes
		w.free = append(w.free, window{rows: due[i].rows[:0], parts: due[i].parts[:0]})
	}
}
