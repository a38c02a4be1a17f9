// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// recheck is how often what seldom changes is read, however short the intervals are.
const recheck = time.Second

// Runtime counts the node's CPU time in windows that the ticks of /proc/stat cannot resolve. Busy
// is the run time that the scans of an exact source found, plus time in interrupts. Total is the
// time of the online CPUs without stolen time. The time in interrupts and the stolen time are those
// that /proc/stat counted in the window or, in windows that are shorter than the time between two
// reads of /proc/stat, the same proportion of the CPUs' time as between the last two reads.
//
// A Runtime is not safe for concurrent use.
type Runtime struct {
	online onlineCPUs
	stat   nodeReader
	outside
	clock   func() time.Duration
	counted time.Time     // when the time outside of tasks was last counted
	read    time.Time     // when /proc/stat could last be read
	took    time.Duration // how long counting took
	node    Node
	at      time.Time
	run     units.CPUTime
	parts   []units.CPUTime // scratch of countSoftirqd
	domains []domainRuntime // by the topology's order
}

// domainRuntime holds the state of Runtime for a domain.
type domainRuntime struct {
	node Node
	run  units.CPUTime
	outside
	counted domainTime // the last time that /proc/stat was read
	weight  outside    // in what proportion the node's time outside of tasks is divided
}

// outside is time of CPUs that is no task's, between two reads of /proc/stat.
type outside struct {
	// Another machine had stolen of had, and interrupts took another part of it.
	stolen, interrupts, had units.CPUTime
	// softirqd is the time of the ksoftirqd threads that no read has shown among that of interrupts
	// yet.
	softirqd units.CPUTime
}

// count sets the parts to what a domain's time grew by from one read to the next, of the time that
// its CPUs had. The sum of all columns would be that time, too, but each of them is rounded to
// ticks.
func (o *outside) count(before, now *domainTime, had units.CPUTime) {
	interrupts := now.Interrupt - before.Interrupt
	o.had = had
	o.stolen = min(now.stolen-before.stolen, had)
	o.interrupts = min(units.Advance(o.softirqd, interrupts), had-o.stolen)
	o.softirqd = min(units.Advance(interrupts, o.softirqd), Tick) // a tick may be due; more is not in the column
}

// of returns the stolen part of an amount of time, and that of interrupts.
func (o *outside) of(amount units.CPUTime) (stolen, interrupts units.CPUTime) {
	return units.Portion(amount, o.stolen, o.had), units.Portion(amount, o.interrupts, o.had)
}

// NewRuntime returns the CPU time of the node below root. The clock measures how long reading
// takes. It touches nothing.
func NewRuntime(root string, clock func() time.Duration) *Runtime {
	return &Runtime{online: newOnlineCPUs(root), stat: newNodeReader(root), clock: clock}
}

// Close closes the files.
func (r *Runtime) Close() error { return errors.Join(r.online.dir.Close(), r.stat.proc.Close()) }

// Node returns the node's CPU time after a scan that began at now, which must have a monotonic
// clock reading.
func (r *Runtime) Node(t *scan.Table, now time.Time) (Node, error) {
	r.countSoftirqd(t)
	// While the number of CPUs cannot be read the last one stands: what the scan found that ran
	// must not be lost.
	if r.online.cpus == 0 || now.Sub(r.online.counted) >= recheck {
		if err := r.online.count(); err != nil && r.online.cpus == 0 {
			return r.node, err
		}
		r.online.counted = now
	}
	if now.Sub(r.counted) >= r.due() {
		begun := r.clock()
		r.countOutside(now)
		r.counted, r.took = now, r.clock()-begun
	}
	if !r.at.IsZero() {
		elapsed := units.CPUTime(max(now.Sub(r.at), 0))
		busy := units.Advance(r.run, t.Run)
		total := elapsed * units.CPUTime(r.online.cpus)
		stolen, interrupts := r.of(total)
		total = max(busy+interrupts, total-stolen)
		// Untraced includes the whole lives of processes that ended, most of which was counted
		// before.
		untraced := min(t.Untraced, total-busy-interrupts)
		r.node.ran(busy+untraced, interrupts, total)
		r.addDomains(t, elapsed, untraced)
	}
	r.at, r.run = now, t.Run
	for i := range r.domains {
		r.domains[i].run = t.RunIn(i)
	}
	return r.node, nil
}

// ran adds time in which processes and interrupts ran, of a total.
func (n *Node) ran(process, interrupts, total units.CPUTime) {
	n.Process += process
	n.Interrupt += interrupts
	n.Busy += process + interrupts
	n.Total += total
}

// addDomains adds what ran in each domain to it. Untraced time is divided in proportion to the idle
// time of the domains.
func (r *Runtime) addDomains(t *scan.Table, elapsed, untraced units.CPUTime) {
	var busy, interrupts, total [divide.MaxDomains]units.CPUTime
	var room units.CPUTime
	for i := range r.domains {
		d := &r.domains[i]
		busy[i] = units.Advance(d.run, t.RunIn(i))
		all := elapsed * units.CPUTime(r.stat.topology.Online(i))
		var stolen units.CPUTime
		stolen, interrupts[i] = d.of(all)
		total[i] = max(busy[i]+interrupts[i], all-stolen)
		room += total[i] - busy[i] - interrupts[i]
	}
	for i := range r.domains {
		free := total[i] - busy[i] - interrupts[i]
		r.domains[i].node.ran(busy[i]+units.Portion(free, untraced, max(room, untraced)), interrupts[i], total[i])
	}
}

// divide makes the runtime count CPU time by domain, too.
func (r *Runtime) divide(t *divide.Topology) {
	r.stat.divide(t)
	r.domains, r.parts = make([]domainRuntime, len(t.Domains())), make([]units.CPUTime, len(t.Domains()))
}

// domain returns the CPU time of a domain since the first call of Node.
func (r *Runtime) domain(i int) Node { return r.domains[i].node }

// due returns how long after a count the next one is due: when the last one took at most 0.5 % of
// that time, but not before some ticks have passed, and after a second at the latest.
func (r *Runtime) due() time.Duration {
	const some = 5 * time.Duration(Tick)
	if r.had == 0 { // nothing is known of the time before
		return 2 * some
	}
	return min(max(200*r.took, some), recheck)
}

// countOutside counts what the CPUs' time outside of tasks was since the last call. If that cannot
// be read the last known parts stand.
func (r *Runtime) countOutside(now time.Time) {
	before, last := r.stat.last, r.read
	if _, err := r.stat.ReadNode(); err != nil {
		return
	}
	r.read = now
	if last.IsZero() {
		return // the baseline
	}
	elapsed := units.CPUTime(max(now.Sub(last), 0))
	var node domainTime
	node.add(&before, &r.stat.last, r.stat.last.measuresInterrupts())
	r.count(&domainTime{}, &node, elapsed*units.CPUTime(r.online.cpus))
	for i := range r.domains {
		d := &r.domains[i]
		d.count(&d.counted, &r.stat.domains[i], elapsed*units.CPUTime(r.stat.topology.Online(i)))
		d.counted = r.stat.domains[i]
	}
	r.divideOutside()
}

// divideOutside divides the node's time outside of tasks in proportion to what the lines of the
// domains' CPUs show, or showed last. Each line of a CPU is rounded to ticks, and in a short window
// a domain's sum may be off by as many as it has CPUs. The node's line is rounded once.
func (r *Runtime) divideOutside() {
	var stolen, interrupts units.CPUTime
	for i := range r.domains {
		stolen += r.domains[i].stolen
		interrupts += r.domains[i].interrupts
	}
	var all outside
	for i := range r.domains {
		d := &r.domains[i]
		if stolen > 0 {
			d.weight.stolen = d.stolen
		}
		if interrupts > 0 {
			d.weight.interrupts = d.interrupts
		}
		all.stolen += d.weight.stolen
		all.interrupts += d.weight.interrupts
	}
	for i := range r.domains {
		d := &r.domains[i]
		d.stolen = min(units.Portion(r.stolen, d.weight.stolen, all.stolen), d.had)
		d.interrupts = min(units.Portion(r.interrupts, d.weight.interrupts, all.interrupts), d.had-d.stolen)
	}
}

// countSoftirqd adds what the ksoftirqd threads used since the previous scan to the time in
// interrupts, which includes it, and notes that it is not outside of tasks.
func (r *Runtime) countSoftirqd(t *scan.Table) {
	clear(r.parts)
	used := t.Softirqd(r.parts)
	r.softirqd += used
	r.node.Interrupt += used
	for i, part := range r.parts {
		r.domains[i].softirqd += part
		r.domains[i].node.Interrupt += part
	}
}

// onlineCPUs counts the CPUs that are online.
type onlineCPUs struct {
	dir  *kernfs.Dir
	buf  []byte
	cpus uint64 // 0 until they were counted

	counted time.Time
}

func newOnlineCPUs(root string) onlineCPUs {
	return onlineCPUs{dir: kernfs.New(filepath.Join(root, "sys/devices/system/cpu")), buf: make([]byte, 4096)}
}

// count counts the CPUs. An error leaves the number unchanged.
func (o *onlineCPUs) count() error {
	list, err := o.dir.Read("online", o.buf)
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(o.dir.Path(), "online"), err)
	}
	cpus := uint64(0)
	if err := kernfs.ParseList(list, func(int) { cpus++ }); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(o.dir.Path(), "online"), err)
	}
	o.cpus = cpus
	return nil
}
