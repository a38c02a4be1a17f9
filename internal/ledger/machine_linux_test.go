// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package ledger_test

import (
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

const (
	packages = 0 // kinds
	drams    = 1
)

var boot = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// observer drives an engine with a simulated machine, without files. It sees all tasks to the
// nanosecond, except those that a fault hides.
type observer struct {
	life   *hostsim.Life
	faults *hostsim.Faults
	engine *ledger.Ledger
	oracle *oracle // nil: results are not checked
	wrong  error   // first error of the oracle

	tasks       []observed // live tasks, oldest first
	gone        []*hostsim.Task
	zones       []*observedZone
	interval    attribution.Interval
	closing     []attribution.Claimant
	at          time.Time // end of the last interval
	busy, total time.Duration
	begun       bool
	claimed     units.CPUTime // total, with unattributed time

	sockets       bool   // each socket is a domain
	stopped       int    // the node has no CPU time for so many more intervals
	socketStopped [2]int // the same of each socket
	unlisted      int    // no task is seen for so many more intervals
	did           map[string]int
	sizes         bool // containers have sizes
	keys          bool // claims have weights: work, and memory
	programs      bool // short-lived tasks are named
}

// observed is a task that has a claimant.
type observed struct {
	task     *hostsim.Task
	used     time.Duration // part of its CPU time that was claimed
	exe      string
	cgroup   string
	claimant attribution.Claimant
	grouped  bool
	unnamed  bool // its time is unattributed
}

type observedZone struct {
	id      string
	kind    int
	domain  int // of its socket
	zone    *hostsim.Zone
	counted units.Energy // value at the last read
	failing int          // number of further intervals in which it cannot be read
	late    int          // number of further intervals in which its readings are not OK
}

// observe returns an observer of a life that is checked or not. Its first scan is the baseline.
func observe(l *hostsim.Life, cfg ledger.Config, check bool) *observer {
	n := &observer{life: l, faults: hostsim.NewFaults(l), did: map[string]int{}, at: boot.Add(l.Now()), programs: cfg.Processes != ledger.ByPID}
	n.engine = ledger.New(cfg, n.at)
	if check {
		n.oracle = newOracle(cfg, n.at, n.engine.Ledger())
	}
	l.OnEnd(func(t *hostsim.Task) { n.gone = append(n.gone, t) })
	add := func(z *hostsim.Zone, kind int) {
		for id, there := range l.Host.Zones {
			if there == z {
				n.zones = append(n.zones, &observedZone{id: id, kind: kind, zone: z})
			}
		}
	}
	for i, s := range l.Sockets {
		add(s.Package, packages)
		add(s.DRAM, drams)
		for _, z := range n.zones[len(n.zones)-2:] {
			z.domain = 1 + i
		}
	}
	if psys := l.Host.Zones[fmt.Sprintf("intel-rapl:%d", len(l.Sockets))]; psys != nil {
		add(psys, attribution.NotAttributed)
	}
	n.busy, n.total = l.CPUTimes()
	return n
}

// newLife returns a machine of two sockets, each with package, core and DRAM.
func newLife(tb testing.TB) *hostsim.Life {
	curve, err := model.Linear(0, 60)
	require.NoError(tb, err)
	m := hostsim.NewMachine("",
		&hostsim.Socket{CPUs: 4, Idle: 20, DRAMIdle: 3, Curve: curve},
		&hostsim.Socket{CPUs: 4, Idle: 15, DRAMIdle: 2, Curve: curve})
	return hostsim.NewLife(m)
}

func (n *observer) open(owner identity.Owner, since time.Time) attribution.Claimant {
	id := n.engine.Open(owner, since)
	if n.oracle != nil {
		n.check(n.oracle.open(id, owner, since))
	}
	if n.sizes {
		size := uint64(owner.Process.PID * 37 % 5)
		n.engine.SetRequest(id, size)
		if n.oracle != nil {
			n.oracle.resize(id, size)
		}
	}
	return id
}

// close closes the claimants that are known to have ended.
func (n *observer) close() {
	for _, id := range n.closing {
		n.engine.Close(id)
		if n.oracle != nil {
			n.check(n.oracle.close(id))
		}
	}
	n.closing = n.closing[:0]
}

// scan observes an interval. It may leave ended claimants open.
func (n *observer) scan(leaveOpen bool) {
	iv := &n.interval
	if iv.Domains == nil {
		iv.Domains = make([]attribution.Usage, 1+len(n.life.Sockets))
	}
	u := &iv.Domains[0]
	at := boot.Add(n.life.Now())
	iv.At, iv.Elapsed = at, at.Sub(n.at)
	u.Claims, u.Unattributed = u.Claims[:0], 0
	u.Busy, u.Total = 0, 0
	u.Unweighed = [attribution.Weights]bool{n.life.Now()/time.Millisecond%7 == 0, n.life.Now()/time.Millisecond%11 == 0}
	if n.stopped > 0 {
		n.stopped--
	} else {
		busy, total := n.life.CPUTimes()
		u.Busy, u.Total = units.CPUTime(busy-n.busy), units.CPUTime(total-n.total)
		n.busy, n.total = busy, total
	}
	n.readZones()
	if n.unlisted > 0 {
		n.unlisted--
	} else {
		n.readTasks()
	}
	if !n.begun { // earlier time is not attributed
		n.begun = true
		u.Claims, u.Unattributed = u.Claims[:0], 0
	}
	for i := range u.Claims {
		n.claimed += u.Claims[i].CPU
	}
	n.claimed += u.Unattributed
	if n.sockets {
		n.divide(u)
	}
	n.engine.Observe(iv)
	n.at = at
	if n.oracle != nil {
		n.check(n.oracle.observe(iv))
		n.compare()
	}
	if !leaveOpen {
		n.close()
	}
}

// divide divides the node's claims among the sockets. Some claimants use both. Something that is
// known of the node may be unknown of a socket.
func (n *observer) divide(node *attribution.Usage) {
	first := func(all uint64, claimant attribution.Claimant) uint64 { return all * (uint64(claimant+2) % 4) / 3 }
	for socket := range n.life.Sockets {
		u := &n.interval.Domains[1+socket]
		part := func(all uint64, claimant attribution.Claimant) uint64 {
			if socket == 0 {
				return first(all, claimant)
			}
			return all - first(all, claimant)
		}
		const divided = 2 // a claimant that has a third of its time in the second socket
		*u = attribution.Usage{
			Busy: units.CPUTime(part(uint64(node.Busy), divided-1)), Total: node.Total / 2,
			Unattributed: units.CPUTime(part(uint64(node.Unattributed), divided)),
			Unweighed:    [attribution.Weights]bool{n.life.Now()/time.Millisecond%7 == time.Duration(socket)}, Claims: u.Claims[:0],
		}
		if n.socketStopped[socket] > 0 {
			n.socketStopped[socket]--
			u.Busy, u.Total = 0, 0
		}
		for _, c := range node.Claims {
			c.CPU = units.CPUTime(part(uint64(c.CPU), c.Claimant))
			for i := range c.Weights {
				c.Weights[i] = part(c.Weights[i], c.Claimant)
			}
			if c.CPU > 0 || c.Weights != [attribution.Weights]uint64{} {
				u.Claims = append(u.Claims, c)
			}
		}
	}
}

func (n *observer) readZones() {
	iv := &n.interval
	iv.Zones = iv.Zones[:0]
	for i, z := range n.zones {
		if n.life.Host.Zones[z.id] == nil {
			continue
		}
		ok := z.failing == 0 && z.late == 0
		if z.failing > 0 {
			z.failing--
		} else {
			z.late = max(z.late-1, 0)
			z.counted = units.Energy(z.zone.Counted)
		}
		before := units.Energy(i) * 100 * units.Joule // its baseline
		domain := 0
		if n.sockets {
			domain = z.domain
		}
		iv.Zones = append(iv.Zones, attribution.ZoneReading{
			Zone: i, Domain: domain, Kind: z.kind, Total: before + z.counted, OK: ok,
		})
	}
}

func (n *observer) readTasks() {
	now := n.life.Tasks
	for _, t := range n.gone { // before ended tasks are forgotten
		if t.Used > 0 && !slices.ContainsFunc(n.tasks, func(o observed) bool { return o.task == t }) {
			n.missed(t)
		}
	}
	n.gone = n.gone[:0]
	left, seen := 0, 0
	for i := range n.tasks {
		o := &n.tasks[i]
		if seen == len(now) || now[seen] != o.task {
			n.claim(o)
			n.closing = append(n.closing, o.claimant)
			continue
		}
		seen++
		t := o.task
		if t.Cgroup != o.cgroup || t.Shown().Exe != o.exe && !t.Zombie {
			n.closing = append(n.closing, o.claimant)
			n.identify(o, n.at)
		}
		if t.Used != o.used || n.keys {
			n.claim(o)
		}
		if left < i {
			n.tasks[left] = *o
		}
		left++
	}
	n.tasks = n.tasks[:left]
	for _, t := range now[seen:] {
		since := boot.Add(t.Born)
		if since.Before(n.at) {
			since = n.at
		}
		o := observed{task: t}
		n.identify(&o, since)
		n.claim(&o)
		n.tasks = append(n.tasks, o)
	}
}

func (n *observer) identify(o *observed, since time.Time) {
	t := o.task
	o.exe, o.cgroup = t.Shown().Exe, t.Cgroup
	in := workload.ParseCgroup([]byte("0::" + t.Cgroup))
	o.grouped = in.Container.ID != "" || in.Pod.UID != "" || in.VM.ID != "" || in.Job.ID != ""
	o.claimant = n.open(identity.Owner{
		Process:  identity.Process{PID: int32(t.PID), Start: t.Born, Executable: path.Base(o.exe), Path: o.exe, Owner: userOf(t)},
		Workload: in.Workload,
	}, since)
}

// userOf returns the user of a task.
func userOf(t *hostsim.Task) string { return [...]string{"root", "alice"}[t.PID%2] }

func (n *observer) claim(o *observed) {
	cpu := units.CPUTime(o.task.Used - o.used)
	o.used = o.task.Used
	if o.unnamed {
		n.interval.Domains[0].Unattributed += cpu
		return
	}
	claim := attribution.Claim{Claimant: o.claimant, CPU: cpu}
	if n.keys {
		// Some CPU time does no work, some tasks have no memory, and sleeping ones keep theirs.
		claim.Weights[0] = uint64(cpu) / 1000 * uint64(o.task.PID%4)
		if !o.task.Zombie {
			claim.Weights[1] = uint64(o.task.PID*37%5) * uint64(n.interval.Elapsed.Milliseconds())
		}
	}
	n.interval.Domains[0].Claims = append(n.interval.Domains[0].Claims, claim)
}

// missed claims for a task that lived between two scans. Its parent is claimed for if it is in the
// same container, pod or virtual machine, or else a claimant without a name. Otherwise the time is
// unattributed.
func (n *observer) missed(t *hostsim.Task) {
	claim := attribution.Claim{Claimant: attribution.NoClaimant, ShortLived: true, CPU: units.CPUTime(t.Used)}
	for i := range n.tasks {
		if o := &n.tasks[i]; o.grouped && o.task.PID == t.Parent && o.cgroup == t.Cgroup {
			claim.Claimant = o.claimant
		}
	}
	in := workload.ParseCgroup([]byte("0::" + t.Cgroup))
	if n.programs && t.PID%3 > 0 {
		claim.Claimant = n.open(identity.Owner{
			Process: identity.Process{Executable: path.Base(t.Shown().Exe), Owner: userOf(t), Descendants: t.PID%5 == 0}, Workload: in.Workload,
		}, n.at)
		n.closing = append(n.closing, claim.Claimant)
		n.did["named exit"]++
	}
	if claim.Claimant == attribution.NoClaimant && in.Container.ID != "" {
		claim.Claimant = n.open(identity.Owner{Workload: identity.Workload{Container: in.Container, Pod: in.Pod, Job: in.Job, Unit: in.Unit}}, n.at)
		n.closing = append(n.closing, claim.Claimant)
		n.did["stand-in"]++
	}
	n.did["short-lived"]++
	n.interval.Domains[0].Claims = append(n.interval.Domains[0].Claims, claim)
}

// collect emits the ledger. late is called before it is acknowledged or refused.
func (n *observer) collect(acknowledged bool, late func()) {
	n.engine.Emitted()
	if n.oracle != nil {
		n.oracle.emitted()
	}
	late()
	if acknowledged {
		n.engine.Outcome(ledger.Acknowledged)
		if n.oracle != nil {
			n.oracle.acknowledged()
		}
	}
	if n.oracle != nil {
		n.compare()
	}
}

func (n *observer) compare() { n.check(n.oracle.compare(n.engine.Ledger())) }

func (n *observer) check(err error) {
	if n.wrong == nil {
		n.wrong = err
	}
}
