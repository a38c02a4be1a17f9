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

const gpuZone = "gpu"

// key identifies a process: its PID and its start, since boot.
type key struct {
	pid   int32
	start time.Duration
}

// The keys of energy that no process has. shortLived is the active energy that the receiver neither
// attributes to a process nor reports as unattributed.
var shortLived, idle, unattributed = key{pid: 0}, key{pid: -1}, key{pid: -2}

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
	prices    []price   // of the current period
	hits      []hit     // of the current period
}

// ledger holds the energy of settled windows that was not sent yet.
type ledger struct {
	cfg       *Config
	processes map[key]*process
	byPID     map[int32][]*process // by start
	owed      uint64               // µJ of settled windows that were not sent: in processes and in samples
	settled   uint64               // windows since the start
	methods   map[string]bool      // of the energy that is settled and not sent
	packages  []int32              // see feed.Window

	until time.Time // the end of the last period, at first the start of the first window
	// reported and ends divide the current period into intervals. All meters had reported until
	// reported at its start, and until each of ends, in ns since 1970. The energy of a window is the
	// price of the time between two such moments: a slow meter reports long after its energy was used.
	reported int64
	ends     []int64

	kinds              []feed.Kind
	used               []bool // which of kinds have had energy
	cpuKinds, gpuKinds []int  // indices of the kinds whose energy is divided among samples, and of gpu
}

func newLedger(cfg *Config) ledger {
	return ledger{cfg: cfg, byPID: map[int32][]*process{}, methods: map[string]bool{}, processes: map[key]*process{
		shortLived:   {key: shortLived, executable: "[short-lived processes]"},
		idle:         {key: idle, executable: frameIdle},
		unattributed: {key: unattributed, executable: frameUnattributed},
	}}
}

// merge adds the energy of windows to their processes, with their prices.
func (l *ledger) merge(due []*feed.Window, priced bool) {
	for _, w := range due {
		if l.until.IsZero() {
			l.until, l.reported = w.Start, w.Start.UnixNano()
		}
		l.settled++
		l.packages = w.Packages
		l.selectKinds(w)
		interval := len(l.ends)
		if priced {
			l.endInterval(w.Attributed.UnixNano())
		}
		var rest uint64
		for _, i := range slices.Concat(l.cpuKinds, l.gpuKinds) {
			rest += w.Active[i] - min(w.Active[i], w.Unattributed[i])
			if l.cfg.Idle {
				l.gain(l.processes[idle], w.Idle[i], w.End)
			}
			if l.cfg.Unattributed {
				l.gain(l.processes[unattributed], w.Unattributed[i], w.End)
			}
			if w.Active[i] > 0 {
				l.methods[w.Kinds[i].Method] = true
			}
		}
		for i := range w.Processes {
			r := &w.Processes[i]
			cpu, gpu := sum(r.Energy, l.cpuKinds), sum(r.Energy, l.gpuKinds)
			if cpu+gpu == 0 && r.CPU == 0 {
				continue
			}
			of := l.processOf(w, r)
			if of == nil {
				continue
			}
			rest -= min(rest, cpu+gpu)
			l.gain(of, cpu, w.End)
			l.owed += gpu
			of.gpu += gpu
			of.seen, of.unsampled = w.End, of.unsampled+r.CPU
			if priced {
				of.note(interval, r, l.cpuKinds)
			}
		}
		l.gain(l.processes[shortLived], rest, w.End)
	}
}

// selectKinds selects the zone kinds of the configuration. A kind that never had energy is not on
// this machine, so it does not take the place of others that overlap with it.
func (l *ledger) selectKinds(of *feed.Window) {
	if !slices.Equal(of.Kinds, l.kinds) {
		l.kinds, l.used = of.Kinds, make([]bool, len(of.Kinds))
	}
	var names []string
	for i, k := range l.kinds {
		l.used[i] = l.used[i] || of.Active[i]+of.Idle[i] > 0
		if l.used[i] && k.Zone != gpuZone {
			names = append(names, k.Zone)
		}
	}
	l.cpuKinds, l.gpuKinds = l.cpuKinds[:0], l.gpuKinds[:0]
	for i, k := range l.kinds {
		switch {
		case k.Zone == gpuZone:
			if l.cfg.GPU {
				l.gpuKinds = append(l.gpuKinds, i)
			}
		case slices.Contains(l.cfg.Zones, k.Zone), len(l.cfg.Zones) == 0 && zone.Besides(k.Zone, names) == "":
			l.cpuKinds = append(l.cpuKinds, i)
		}
	}
}

// sum returns the energy of some kinds.
func sum(energy []uint64, kinds []int) (all uint64) {
	for _, i := range kinds {
		all += energy[i]
	}
	return all
}

// gain adds energy of a window.
func (l *ledger) gain(of *process, energy uint64, end time.Time) {
	if of.cpu == 0 && energy > 0 {
		of.waiting = end
	}
	of.cpu += energy
	l.owed += energy
}

// processOf returns the process of a row, nil if there are too many processes.
func (l *ledger) processOf(of *feed.Window, p *feed.Process) *process {
	k := key{p.PID, p.Start}
	found := l.processes[k]
	if found == nil {
		if len(l.processes) >= maxProcesses {
			return nil
		}
		found = &process{key: k, created: of.Boot.Add(p.Start)}
		l.processes[k] = found
		l.byPID[k.pid] = append(l.byPID[k.pid], found)
		slices.SortFunc(l.byPID[k.pid], func(a, b *process) int { return cmp.Compare(a.start, b.start) })
	}
	found.executable, found.path, found.container = p.Executable, p.Path, p.ContainerID
	return found
}

// forget removes a process that has no energy left.
func (l *ledger) forget(p *process) {
	delete(l.processes, p.key)
	rest := slices.DeleteFunc(l.byPID[p.pid], func(other *process) bool { return other == p })
	if l.byPID[p.pid] = rest; len(rest) == 0 {
		delete(l.byPID, p.pid)
	}
}

// find returns the youngest process with a PID that existed at a time, else the oldest one, nil if
// there is none.
func (l *ledger) find(pid int32, at time.Time) *process {
	of := l.byPID[pid]
	for i := len(of) - 1; i >= 0; i-- {
		if i == 0 || !of[i].created.After(at) {
			return of[i]
		}
	}
	return nil
}

// takeBack returns the energy of a batch that is not sent to its processes.
func (l *ledger) takeBack(b *batch) {
	for i := range b.resources {
		of := l.processes[shortLived]
		if p := b.resources[i].process; p != nil {
			of = cmp.Or(l.processes[p.key], of)
		}
		for _, s := range b.resources[i].samples {
			of.cpu += s.energy
		}
	}
}
