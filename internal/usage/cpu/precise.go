// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// recheck is the minimum time between two reads of values that seldom change.
const recheck = time.Second

// preciseClock counts the node's CPU time in windows that the ticks of /proc/stat cannot resolve.
// Busy is the run time that the scans of an exact source found, plus time in interrupts. Total is
// the time of the online CPUs without stolen time.
//
// The time in interrupts and the stolen time are the growth of /proc/stat in the window. If windows
// are shorter than the time between two reads of /proc/stat, they are the same proportion of the
// CPUs' time as between the last two reads.
//
// Each read follows a scan into the table. The first read continues from the StatClock's times.
type preciseClock struct {
	stat    *StatClock
	table   *proc.Table
	online  *divide.Online
	now     func() time.Duration // measures how long reading takes
	node    preciseTime
	domains []preciseTime // by the topology's order
	began   time.Time     // at the first read
	at      time.Time     // at the last read
	counted time.Time     // when the time outside of tasks was last counted
	read    time.Time     // when /proc/stat could last be read
	took    time.Duration // how long counting took
	parts   []units.CPUTime
	nodes   []Node // returned by the last Read
}

// preciseTime is the CPU time of the node or of a domain.
type preciseTime struct {
	Node
	outside
	counted domainTime // by /proc/stat, when it was last read
	then    Node       // at that time
	weight  outside    // for dividing the node's time outside of tasks
}

// outside is the time of CPUs outside of tasks, between two reads of /proc/stat.
type outside struct {
	// had is the total time of the CPUs. stolen and interrupts are parts of it.
	stolen, interrupts, had units.CPUTime
	// softirqd is the time of the ksoftirqd threads that the time of interrupts does not include
	// yet.
	softirqd units.CPUTime
}

// count sets the parts to the growth of a domain's time from one read to the next. had is the total
// time of its CPUs. The sum of all columns would be less exact, because each column is rounded to
// ticks.
func (o *outside) count(before, now *domainTime, had units.CPUTime) {
	interrupts := now.Interrupt - before.Interrupt
	o.had = had
	o.stolen = min(now.stolen-before.stolen, had)
	o.interrupts = min(units.Advance(o.softirqd, interrupts), had-o.stolen)
	o.softirqd = min(units.Advance(interrupts, o.softirqd), Tick) // a tick may be due; more is not in the column
}

// of returns the parts of an amount of time that were stolen and used by interrupts.
func (o *outside) of(amount units.CPUTime) (stolen, interrupts units.CPUTime) {
	return units.Portion(amount, o.stolen, o.had), units.Portion(amount, o.interrupts, o.had)
}

// newPreciseClock returns a clock for a table that an exact source of the machine at root fills.
// now measures how long reading takes. It does not access the machine.
func newPreciseClock(root string, stat *StatClock, table *proc.Table, now func() time.Duration) *preciseClock {
	n := len(stat.domains)
	stat.KeepOpen()
	return &preciseClock{
		stat: stat, table: table, online: divide.NewOnline(root), now: now,
		domains: make([]preciseTime, n), parts: make([]units.CPUTime, n), nodes: slices.Clone(stat.nodes),
	}
}

// Close closes the files that the StatClock does not have.
func (p *preciseClock) Close() error { return p.online.Close() }

// Read implements NodeClock.
func (p *preciseClock) Read(at time.Time) (Times, error) {
	if p.at.IsZero() {
		if err := p.begin(at); err != nil {
			return p.stat.times(), err
		}
	} else {
		p.advance(at)
	}
	p.at = at
	for i := range p.domains {
		p.nodes[i] = p.domains[i].Node
	}
	return Times{Node: p.node.Node, Domains: p.nodes}, nil
}

// begin takes the baseline.
func (p *preciseClock) begin(at time.Time) error {
	if len(p.online.CPUs()) == 0 {
		if _, err := p.online.Read(); err != nil {
			return err
		}
	}
	begun := p.now()
	if err := p.stat.read(); err != nil {
		return err
	}
	p.took = p.now() - begun
	p.began, p.counted, p.read = at, at, at
	p.node.Node, p.node.counted = p.stat.node.Node, p.stat.node
	for i := range p.domains {
		p.domains[i].Node, p.domains[i].counted = p.stat.domains[i].Node, p.stat.domains[i]
	}
	p.noteCounted()
	return nil
}

// advance adds the time since the last read.
func (p *preciseClock) advance(at time.Time) {
	p.countSoftirqd()
	p.online.Refresh(at.Sub(p.began)) // after an error, the last number of CPUs applies
	if at.Sub(p.counted) >= p.due() {
		begun := p.now()
		p.countOutside(at)
		p.counted, p.took = at, p.now()-begun
	}
	elapsed := units.CPUTime(max(at.Sub(p.at), 0))
	clear(p.parts)
	busy := p.table.Used(p.parts)
	total := p.had(elapsed)
	stolen, interrupts := p.node.of(total)
	total = max(busy+interrupts, total-stolen)
	// Untraced includes the whole lives of processes that ended, and most of that was counted
	// before.
	untraced := min(p.table.Unseen.Untraced, total-busy-interrupts)
	p.node.ran(busy+untraced, interrupts, total)
	p.addDomains(elapsed, untraced)
	if p.read.Equal(at) {
		p.noteCounted()
	}
}

// noteCounted records the times after a read of /proc/stat.
func (p *preciseClock) noteCounted() {
	p.node.then = p.node.Node
	for i := range p.domains {
		p.domains[i].then = p.domains[i].Node
	}
}

// had returns the total time of the node's CPUs in an interval.
func (p *preciseClock) had(elapsed units.CPUTime) units.CPUTime {
	return elapsed * units.CPUTime(len(p.online.CPUs()))
}

// ran adds the time of processes and interrupts, and the total time of the CPUs.
func (n *Node) ran(process, interrupts, total units.CPUTime) {
	n.Process += process
	n.Interrupt += interrupts
	n.Busy += process + interrupts
	n.Total += total
}

// addDomains adds what ran in each domain to it. Untraced time is divided in proportion to the idle
// time of the domains.
func (p *preciseClock) addDomains(elapsed, untraced units.CPUTime) {
	var interrupts, total [divide.MaxDomains]units.CPUTime
	busy := p.parts
	var room units.CPUTime
	for i := range p.domains {
		d := &p.domains[i]
		all := elapsed * units.CPUTime(p.stat.topology.Online(i))
		var stolen units.CPUTime
		stolen, interrupts[i] = d.of(all)
		total[i] = max(busy[i]+interrupts[i], all-stolen)
		room += total[i] - busy[i] - interrupts[i]
	}
	for i := range p.domains {
		free := total[i] - busy[i] - interrupts[i]
		p.domains[i].ran(busy[i]+units.Portion(free, untraced, max(room, untraced)), interrupts[i], total[i])
	}
}

// due returns the time between two counts of the time outside of tasks. A count takes at most 0.1 %
// of it. It is at least 50 ms, and at most a second.
func (p *preciseClock) due() time.Duration {
	const ticks = 5 * time.Duration(Tick)
	if p.node.had == 0 { // the time outside of tasks was never counted
		return 2 * ticks
	}
	return min(max(1000*p.took, ticks), recheck)
}

// countOutside counts the CPUs' time outside of tasks since the last call. If /proc/stat
// cannot be read, the proportions of the last interval apply.
func (p *preciseClock) countOutside(at time.Time) {
	if p.stat.read() != nil {
		return
	}
	elapsed := units.CPUTime(max(at.Sub(p.read), 0))
	p.read = at
	p.node.count(&p.node.counted, &p.stat.node, p.had(elapsed))
	p.node.counted = p.stat.node
	for i := range p.domains {
		d := &p.domains[i]
		d.count(&d.counted, &p.stat.domains[i], elapsed*units.CPUTime(p.stat.topology.Online(i)))
		d.counted = p.stat.domains[i]
	}
	p.divideOutside()
}

// divideOutside divides the node's time outside of tasks in proportion to the growth of the lines
// of the domains' CPUs, or to their last growth above 0. Each line of a CPU is rounded to ticks,
// and in a short window a domain's sum may be off by as many as it has CPUs. The node's line is
// rounded once.
func (p *preciseClock) divideOutside() {
	var stolen, interrupts units.CPUTime
	for i := range p.domains {
		stolen += p.domains[i].stolen
		interrupts += p.domains[i].interrupts
	}
	var all outside
	for i := range p.domains {
		d := &p.domains[i]
		if stolen > 0 {
			d.weight.stolen = d.stolen
		}
		if interrupts > 0 {
			d.weight.interrupts = d.interrupts
		}
		all.stolen += d.weight.stolen
		all.interrupts += d.weight.interrupts
	}
	for i := range p.domains {
		d := &p.domains[i]
		d.stolen = min(units.Portion(p.node.stolen, d.weight.stolen, all.stolen), d.had)
		d.interrupts = min(units.Portion(p.node.interrupts, d.weight.interrupts, all.interrupts), d.had-d.stolen)
	}
}

// countSoftirqd adds the CPU time of the ksoftirqd threads since the previous scan to Interrupt. It
// also records this time in softirqd, because the interrupts in /proc/stat include it.
func (p *preciseClock) countSoftirqd() {
	clear(p.parts)
	used := p.table.Softirqd(p.parts)
	p.node.softirqd += used
	p.node.Interrupt += used
	for i, part := range p.parts {
		p.domains[i].softirqd += part
		p.domains[i].Interrupt += part
	}
}

// handOver makes the StatClock continue from the times of this clock, with the time since the last
// Read. If no Read succeeded, the StatClock has all time.
func (p *preciseClock) handOver() {
	if p.at.IsZero() {
		return
	}
	_ = p.stat.read() // without it the time continues from the last Read
	p.node.continueBy(&p.stat.node)
	for i := range p.domains {
		p.domains[i].continueBy(&p.stat.domains[i])
	}
}

// continueBy adds the growth of /proc/stat since this clock last read it to the time then. It is at
// least the time of the last Read: ticks may be late.
func (t *preciseTime) continueBy(stat *domainTime) {
	now := t.then.plus(stat.since(t.counted.Node))
	stat.Node = Node{
		Busy: max(now.Busy, t.Busy), Total: max(now.Total, t.Total),
		Process: max(now.Process, t.Process), Interrupt: max(now.Interrupt, t.Interrupt),
	}
}
