// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package claims

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

var (
	gpuHistories = flag.Int("gpu.histories", 12, "how many histories of GPUs to simulate, of a thousand intervals each")
	gpuSeed      = flag.Uint64("gpu.seed", 0, "the `seed` of the one history to simulate, 0 for several")
)

const (
	gpuIntervals = 1000
	simGPUs      = 4
	simPIDs      = 40 // so few that they are used again soon
)

// simProcess is a process of the simulation. It is never used again for another one.
type simProcess struct {
	pid   int32
	start time.Duration
	group int // of simGroups
	opens [simGPUs]bool

	end     time.Duration // 0 while it lives
	row     bool          // it is in the last scan that was observed
	endSeen int           // the interval in which its end was observed
	seenAt  time.Duration // the end of that interval
	told    bool          // it was named while it was a row
}

func (p *simProcess) key() string {
	return fmt.Sprint("p ", p.pid, " ", p.start.Truncate(10*time.Millisecond))
}

// simGroups are the cgroups of processes, with the container and pod of each. The PID of a process
// selects its cgroup.
var simGroups = []struct{ path, container, pod string }{
	{"/", "", ""},
	{simScope(1, 'a'), strings.Repeat("a", 64), simPod(1)},
	{simScope(1, 'b'), strings.Repeat("b", 64), simPod(1)},
	{simScope(2, 'c'), strings.Repeat("c", 64), simPod(2)},
}

func simPod(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func simScope(pod int, container byte) string {
	slice := "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(simPod(pod), "-", "_") + ".slice"
	return slice + "/cri-containerd-" + strings.Repeat(string(container), 64) + ".scope"
}

// owners are the keys of the accounts to which the energy of a group's processes belongs.
func owners(group int) (keys []string) {
	if g := simGroups[group]; g.container != "" {
		keys = append(keys, "c "+g.container, "d "+g.pod)
	}
	return keys
}

// simUse is GPU time that a source reports later.
type simUse struct {
	processes []*simProcess
	used      units.CPUTime
	last      time.Time
	cgroup    string // of processes that no scan sees
	delay     int    // in reads
}

// simGPU is a GPU with its zone and the source of its usage.
type simGPU struct {
	number   int
	how      gpuSource
	zone     *power.Zone
	reading  power.Reading
	untold   units.Energy  // since the last good reading
	fresh    bool          // the library has read it since its usage was reported
	elapsed  time.Duration // since its usage was reported
	queue    []simUse
	silent   int // reads in which nothing is reported
	fails    int // reads of the zone that fail
	vanished int // reads in which it is not there

	oracle gpuOracle
}

// gpuSource is the way in which a GPU's usage is reported.
type gpuSource uint8

const (
	byDRM     gpuSource = iota // in each read
	byLibrary                  // with each new reading of the zone
	byNobody
)

// gpuSimulation is a machine with GPUs, read by a Builder.
type gpuSimulation struct {
	*rand.Rand
	now       time.Duration // since boot
	stamp     time.Time
	processes []*simProcess // that live, the oldest first
	old       []*simProcess // that ended, the latest last
	ended     []tasks.Ended
	lateEnds  bool // ends are reported one scan later
	fails     bool // the next scan does
	gpus      [simGPUs]*simGPU

	root     string
	cgroups  *cgroup.Tree
	reader   *cpu.Reader
	builder  *Builder
	idle     attribution.IdleAllocation
	interval int
	observed bool
	failed   int // scans in a row
	readAt   time.Duration

	expected  map[string]*[simGPUs]bounds       // by account
	delivered map[string]*[simGPUs]units.Energy // of accounts that are gone
	active    [simGPUs]units.Energy             // the same, of all processes
	idled     [simGPUs]units.Energy
	users     map[string]bool        // processes that had a GPU open, by account
	toldTime  [simGPUs]units.CPUTime // by all users of each GPU, in the interval
	did       map[string]int
}

// bounds are the least and the most energy of an account, in microjoules.
type bounds struct {
	least, most float64
	shares      int // each of which may be rounded
}

var boot = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newGPUSimulation(t testing.TB, seed uint64) *gpuSimulation {
	s := &gpuSimulation{
		Rand: rand.New(rand.NewPCG(seed, 14)), now: 1000 * time.Second, root: t.TempDir(), did: map[string]int{},
		expected: map[string]*[simGPUs]bounds{}, delivered: map[string]*[simGPUs]units.Energy{}, users: map[string]bool{},
		idle: []attribution.IdleAllocation{attribution.IdleNone, attribution.IdleEqual, attribution.IdleUsed}[seed%3],
	}
	for pid := range simPIDs {
		dir := filepath.Join(s.root, "proc", fmt.Sprint(pid+1))
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::"+simGroups[groupOf(int32(pid+1))].path+"\n"), 0o600))
	}
	var kinds []power.Class
	for i := range s.gpus {
		g := &simGPU{number: i, how: gpuSource((uint64(i) + seed) % 3)}
		source := power.Method(fmt.Sprint("gpu", i)) // so that each GPU is a kind of the ledger
		g.zone = &power.Zone{ID: string(source), Kind: power.GPU, Method: source, Domain: units.GPU(string(source))}
		g.reading = power.Reading{Zone: g.zone, Err: errors.New("not yet")}
		g.oracle = gpuOracle{s: s, kind: i}
		s.gpus[i] = g
		kinds = append(kinds, power.Class{Zone: power.GPU, Method: source})
	}
	s.stamp = boot.Add(s.now)
	engine := attribution.New(attribution.Config{Rules: attribution.Rules{Idle: s.idle}}, s.stamp)
	s.cgroups = cgroup.New(cgroup.Options{Root: s.root})
	s.builder = NewBuilder(Options{
		Engine: engine, Exact: true, Identifier: workload.NewIdentifier(s.root, workload.Wanted{}), Cgroups: s.cgroups, Kinds: kinds,
	})
	s.openReader()
	for range 10 {
		s.fork()
	}
	return s
}

func groupOf(pid int32) int { return int(pid) % len(simGroups) }

func (s *gpuSimulation) close(t testing.TB) {
	require.NoError(t, errors.Join(s.builder.identifier.Close(), s.cgroups.Close(), s.reader.Close()))
}

func (s *gpuSimulation) openReader() {
	s.reader = cpu.NewReader(cpu.NewSimulatedBPF(s.root, s, func() time.Duration { return s.now }), cpu.Options{Root: s.root, Kind: cpu.KindBPF})
}

// Read lists the processes.
func (s *gpuSimulation) Read() (all []tasks.Process, err error) {
	if s.fails {
		return nil, errors.New("no memory")
	}
	for _, p := range s.processes {
		all = append(all, tasks.Process{Pid: uint32(p.pid), Parent: 1, Start: uint64(p.start), Threads: 1, Run: uint64(s.now - p.start)})
	}
	return all, nil
}

// Drain reports the processes that ended.
func (s *gpuSimulation) Drain(yield func(*tasks.Ended)) (count, run uint64, err error) {
	if s.lateEnds = !s.lateEnds && s.IntN(20) == 0; s.lateEnds {
		return 0, 0, nil
	}
	for i := range s.ended {
		yield(&s.ended[i])
	}
	s.ended = s.ended[:0]
	return 0, 0, nil
}

// DrainCgroups does nothing: no process ends that no scan has seen.
func (*gpuSimulation) DrainCgroups(func(id uint64, path string)) error { return nil }

// Close does nothing.
func (*gpuSimulation) Close() error { return nil }

// fork starts a process with a PID that is free, perhaps that of one that just ended.
func (s *gpuSimulation) fork() {
	free := func(pid int32) bool {
		return !slices.ContainsFunc(s.processes, func(p *simProcess) bool { return p.pid == pid }) &&
			!slices.ContainsFunc(s.old, func(p *simProcess) bool {
				return p.pid == pid && s.now-p.end < 20*time.Millisecond
			})
	}
	pid := int32(1 + s.IntN(simPIDs))
	if n := len(s.old); n > 0 && s.IntN(3) > 0 {
		pid = s.old[n-1-s.IntN(min(n, 4))].pid
	}
	if !free(pid) {
		return
	}
	p := &simProcess{pid: pid, start: s.now, group: groupOf(pid)}
	for i := range p.opens {
		p.opens[i] = s.IntN(2) == 0
	}
	s.processes = append(s.processes, p)
}

// live has processes start, end and use GPUs.
func (s *gpuSimulation) live() {
	for range s.IntN(3) {
		s.fork()
	}
	for _, g := range s.gpus {
		s.use(g)
	}
	for i := len(s.processes) - 1; i >= 0; i-- {
		p := s.processes[i]
		if s.IntN(20) > 0 || p.start == s.now {
			continue
		}
		p.end = s.now
		s.ended = append(s.ended, tasks.Ended{Pid: uint32(p.pid), Parent: 1, Start: uint64(p.start), Run: uint64(s.now - p.start)})
		s.processes = slices.Delete(s.processes, i, i+1)
		s.old = append(s.old, p)
	}
	s.old = s.old[max(0, len(s.old)-100):]
}

// use has processes use a GPU.
func (s *gpuSimulation) use(g *simGPU) {
	use := func(cgroup string, processes ...*simProcess) {
		u := simUse{processes: processes, used: units.CPUTime(s.IntN(1e9)), last: boot.Add(s.now), cgroup: cgroup}
		if s.IntN(8) == 0 {
			u.delay = s.IntN(5)
		}
		g.queue = append(g.queue, u)
	}
	for _, p := range s.processes {
		if p.opens[g.number] && s.IntN(2) == 0 {
			use("", p)
		}
	}
	if n := len(s.processes); n > 2 && s.IntN(3) == 0 {
		use("", s.processes[s.IntN(n)], s.processes[s.IntN(n)])
		s.did["processes that cannot be told apart"]++
	}
	if s.IntN(5) == 0 {
		use(simGroups[s.IntN(len(simGroups))].path)
		s.did["users that no scan sees"]++
	}
}

// readMeters reads the zones.
func (s *gpuSimulation) readMeters() (readings []power.Reading) {
	for _, g := range s.gpus {
		switch s.IntN(60) {
		case 0:
			g.fails = 1 + s.IntN(5)
			s.did["zones that fail"]++
		case 1:
			g.vanished = 1 + s.IntN(5)
			s.did["zones that vanish"]++
		case 2:
			g.untold = 0
			s.did["counters that are reset"]++
		}
		r := &g.reading
		switch {
		case g.vanished > 0:
			g.vanished--
			continue
		case g.fails > 0:
			g.fails--
			r.Err = errors.New("it fails")
		case g.how != byLibrary || s.IntN(2) == 0:
			r.Total, r.At, r.Err, g.untold, g.fresh = r.Total+g.untold, boot.Add(s.now), nil, 0, true
		}
		readings = append(readings, *r)
	}
	return readings
}

// readUsage reads the sources.
func (s *gpuSimulation) readUsage() (all []gpu.Usage) {
	for _, g := range s.gpus {
		s.toldTime[g.number] = 0
		g.oracle.told = nil
		if g.how == byNobody {
			continue
		}
		switch s.IntN(100) {
		case 0:
			g.silent = 1 + s.IntN(20)
			s.did["usage that fails"]++
		case 1:
			g.silent = 60
		}
		u := gpu.Usage{Domain: g.zone.Domain}
		switch {
		case g.vanished > 0:
			continue
		case g.silent > 0:
			g.silent--
		case g.how == byDRM || g.fresh:
			g.fresh = false
			s.tell(g, &u)
		}
		all = append(all, u)
	}
	return all
}

// tell fills in a usage.
func (s *gpuSimulation) tell(g *simGPU, u *gpu.Usage) {
	u.Total = units.CPUTime(g.elapsed)
	u.Busy = units.CPUTime(s.Int64N(int64(g.elapsed) + 1))
	if s.IntN(4) == 0 {
		u.Unattributed = units.CPUTime(s.IntN(1e9))
	}
	g.elapsed = 0
	told := oracleUsage{busy: u.Busy, total: u.Total, unattributed: u.Unattributed}
	queue := g.queue
	g.queue = nil
	for i := range queue {
		use := &queue[i]
		if use.delay > 0 {
			use.delay--
			s.did["samples that come late"]++
			g.queue = append(g.queue, *use)
			continue
		}
		s.name(g, u, &told, use)
	}
	for _, p := range s.processes {
		if p.opens[g.number] && s.IntN(2) == 0 { // it holds memory
			s.name(g, u, &told, &simUse{processes: []*simProcess{p}, last: boot.Add(s.now)})
		}
	}
	g.oracle.told = &told
}

// name adds a user.
func (s *gpuSimulation) name(g *simGPU, u *gpu.Usage, told *oracleUsage, use *simUse) {
	user := gpu.User{Used: use.used, Last: use.last, Cgroup: use.cgroup}
	for _, p := range use.processes {
		user.PIDs = append(user.PIDs, p.pid)
		s.users[p.key()] = true
	}
	if len(use.processes) == 0 {
		user.PIDs = append(user.PIDs, simPIDs+1)
	}
	s.toldTime[g.number] += use.used
	u.Users = append(u.Users, user)
	told.claims = append(told.claims, oracleClaim{use: *use})
}

// step lets time pass, and has the Builder observe it unless the scan fails.
func (s *gpuSimulation) step() error {
	d := []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, time.Second, 10 * time.Second, time.Minute}[s.IntN(7)]
	s.now, s.stamp = s.now+d, s.stamp.Add(d)
	for _, g := range s.gpus {
		g.elapsed += d
		g.untold += units.Energy(s.Int64N(int64(300*d/1000) + 2))
	}
	s.live()
	readings := s.readMeters()
	s.fails = s.IntN(12) == 0 || s.failed > 0 && s.IntN(2) == 0
	_, err := s.reader.ReadProcesses()
	replaced := err != nil && s.failed >= 2
	switch {
	case replaced:
		if err := s.startOver(); err != nil {
			return err
		}
	case err != nil:
		s.failed++
		s.did["scans that fail"]++
		return nil
	}
	s.failed = 0
	s.renew(readings)
	m := &Measurement{
		ReadAt: boot.Add(s.now), Stamp: s.stamp, Node: cpu.Node{Busy: units.CPUTime(s.now), Total: units.CPUTime(2 * s.now), Process: units.CPUTime(s.now)},
		Table: s.reader.Table(), Readings: readings, GPUs: s.readUsage(), Attributed: []power.Kind{power.GPU}, EndsCollection: s.IntN(3) == 0,
	}
	s.observe(m, replaced)
	if err := s.check(); err != nil {
		return err
	}
	if s.IntN(10) == 0 {
		s.builder.Shrink(s.reader.Table())
	}
	if m.EndsCollection {
		s.deliver()
	}
	return nil
}

// renew moves readings of scans that failed to the end of the interval: the oracle's readings have
// no age.
func (s *gpuSimulation) renew(readings []power.Reading) {
	for i := range readings {
		r := &readings[i]
		for _, g := range s.gpus {
			if g.zone == r.Zone && r.Err == nil && !r.At.Equal(g.oracle.at) {
				r.At = boot.Add(s.now)
				g.reading.At = r.At
			}
		}
	}
}

// startOver continues with another CPU time source.
func (s *gpuSimulation) startOver() error {
	s.did["another CPU time source"]++
	if err := s.reader.Close(); err != nil {
		return err
	}
	s.fails = false
	s.openReader()
	_, err := s.reader.ReadProcesses()
	return err
}

// observe has the Builder and the oracle observe a measurement.
func (s *gpuSimulation) observe(m *Measurement, replaced bool) {
	s.interval++
	if replaced {
		s.resolve() // by the processes of the last scan of the other source
		s.builder.StartOver(m, true)
		for _, p := range slices.Concat(s.processes, s.old) {
			p.told = p.told && !slices.ContainsFunc(m.Table.Processes, func(r scan.Process) bool { return r.PID == p.pid })
		}
		s.look(m.Table)
	} else {
		s.look(m.Table)
		s.resolve()
		s.builder.Observe(m)
	}
	elapsed := boot.Add(s.now).Sub(boot.Add(s.readAt))
	if !s.observed {
		elapsed = 0
	}
	for _, g := range s.gpus {
		g.oracle.observe(g, m, elapsed, s.observed)
	}
	s.observed, s.readAt = true, s.now
}

// look notes which processes are in a scan.
func (s *gpuSimulation) look(t *scan.Table) {
	for _, p := range slices.Concat(s.processes, s.old) {
		row := slices.ContainsFunc(t.Processes, func(r scan.Process) bool { return r.PID == p.pid && r.Start == p.start })
		if p.row && !row {
			p.endSeen, p.seenAt = s.interval, s.now
		}
		p.row = row
	}
}

// resolve finds the accounts to which the reported usage belongs.
func (s *gpuSimulation) resolve() {
	for _, g := range s.gpus {
		if g.oracle.told == nil {
			continue
		}
		for i := range g.oracle.told.claims {
			g.oracle.told.claims[i].resolve(s)
		}
	}
}

// deliver emits the ledger, and has it acknowledged or not.
func (s *gpuSimulation) deliver() {
	e := s.builder.engine
	e.Emitted()
	switch s.IntN(4) {
	case 0:
		e.Refused()
		return
	case 1:
		e.PartlyAcknowledged()
		return
	}
	before := map[*attribution.Account]attribution.Account{}
	for a := range e.Ledger().Accounts {
		if a.Ended {
			before[a] = *a
		}
	}
	gone := map[*attribution.Account]*[simGPUs]attribution.Amounts{}
	for a := range before {
		var amounts [simGPUs]attribution.Amounts
		for i := range amounts {
			amounts[i] = a.Amounts(i)
		}
		gone[a] = &amounts
	}
	e.Acknowledged()
	for a := range e.Ledger().Accounts {
		delete(gone, a)
	}
	for a, amounts := range gone {
		account := before[a]
		key := keyOf(&account)
		if s.delivered[key] == nil {
			s.delivered[key] = &[simGPUs]units.Energy{}
		}
		for i := range amounts {
			s.delivered[key][i] += amounts[i].Energy
			if account.Entity == identity.ProcessEntity {
				s.active[i] += amounts[i].Energy
				s.idled[i] += amounts[i].Idle
			}
		}
	}
}

// keyOf names an account.
func keyOf(a *attribution.Account) string {
	switch {
	case a.Other:
		return "other " + a.Entity.String()
	case a.Entity == identity.ProcessEntity:
		return fmt.Sprint("p ", a.Owner.Process.PID, " ", a.Owner.Process.Start)
	case a.Entity == identity.ContainerEntity:
		return "c " + a.Owner.Container.ID
	default:
		return "d " + a.Owner.Pod.UID
	}
}

// check compares the ledger with what the meters counted and with the oracle.
func (s *gpuSimulation) check() error {
	l := s.builder.engine.Ledger()
	active, idled := s.active, s.idled
	for a := range l.Accounts {
		for i := range s.gpus {
			amounts := a.Amounts(i)
			if a.Entity != identity.ProcessEntity {
				continue
			}
			active[i] += amounts.Energy
			idled[i] += amounts.Idle
			if amounts.Idle > 0 && !a.Other && !s.users[keyOf(a)] {
				return fmt.Errorf("%s has idle energy of a GPU that it never had open", keyOf(a))
			}
		}
	}
	for i, g := range s.gpus {
		k := &l.Kinds[i]
		if active[i]+k.Unattributed != k.Active {
			return fmt.Errorf("GPU %d: processes have %d µJ and %d are unattributed of %d", i, active[i], k.Unattributed, k.Active)
		}
		if s.idle != attribution.IdleNone && idled[i]+k.UnattributedIdle != k.Idle {
			return fmt.Errorf("GPU %d: processes have %d µJ of idle energy and %d are unattributed of %d", i, idled[i], k.UnattributedIdle, k.Idle)
		}
		if got := k.Active + k.Idle + l.Pending(i); got != g.oracle.counted {
			return fmt.Errorf("GPU %d: active, idle and pending are %d µJ, the counter %d", i, got, g.oracle.counted)
		}
		if k.Active != g.oracle.active {
			return fmt.Errorf("GPU %d: %d µJ are active, by the oracle %d", i, k.Active, g.oracle.active)
		}
		if err := s.checkTime(i, g); err != nil {
			return err
		}
	}
	if s.interval%16 == 0 {
		return s.checkShares()
	}
	return nil
}

// checkTime checks that all reported GPU time is claimed or unattributed.
func (s *gpuSimulation) checkTime(i int, g *simGPU) error {
	domain := slices.Index(s.builder.Domains(), g.zone.Domain)
	told := g.oracle.told
	if domain < 0 || told == nil || s.interval == 1 {
		return nil
	}
	u := &s.builder.Interval().Domains[domain]
	sum := u.Unattributed
	for _, c := range u.Claims {
		sum += c.CPU
	}
	if want := s.toldTime[i] + told.unattributed; sum != want && !u.Assumed {
		return fmt.Errorf("GPU %d: of %v GPU time %v are claimed or unattributed", i, time.Duration(want), time.Duration(sum))
	}
	return nil
}

// checkShares compares the energy of each account with the oracle's.
func (s *gpuSimulation) checkShares() error {
	got := map[string][simGPUs]units.Energy{}
	for key, energies := range s.delivered {
		got[key] = *energies
	}
	for a := range s.builder.engine.Ledger().Accounts {
		energies := got[keyOf(a)]
		for i := range energies {
			energies[i] += a.Amounts(i).Energy
		}
		got[keyOf(a)] = energies
	}
	for key, energies := range got {
		for i, energy := range energies {
			var b bounds
			if s.expected[key] != nil {
				b = s.expected[key][i]
			}
			rounding := float64(b.shares) + 1e-6*b.most
			if strings.HasPrefix(key, "other") || float64(energy) >= b.least-rounding && float64(energy) <= b.most+rounding {
				continue
			}
			return fmt.Errorf("GPU %d: %s has %d µJ, by the oracle it is between %.0f and %.0f", i, key, energy, b.least, b.most)
		}
	}
	for key, all := range s.expected {
		for i, b := range all {
			if b.least > float64(got[key][i])+float64(b.shares)+1e-6*b.most {
				return fmt.Errorf("GPU %d: %s has %d µJ, by the oracle at least %.0f", i, key, got[key][i], b.least)
			}
		}
	}
	return nil
}

// gpuOracle attributes the energy of one GPU as plainly as possible.
type gpuOracle struct {
	s       *gpuSimulation
	kind    int
	told    *oracleUsage // in this interval
	listed  bool
	toldAt  time.Duration
	present bool
	at      time.Time // of the last reading
	last    units.Energy
	pending *oracleUsage

	counted, active units.Energy
}

// oracleUsage is the usage of a GPU in some intervals, and the energy that is pending of them.
type oracleUsage struct {
	busy, total, unattributed units.CPUTime
	elapsed                   time.Duration
	energy                    units.Energy
	claims                    []oracleClaim
}

// oracleClaim is GPU time, and the accounts to which its energy belongs. maybe marks one that may
// be unattributed. It may also belong to others: where a process with the same PID ended in the
// window in which this one started, and nothing else is known of this one.
type oracleClaim struct {
	use    simUse
	keys   []string
	others []string
	maybe  bool
}

// resolve finds the accounts.
func (c *oracleClaim) resolve(s *gpuSimulation) {
	if len(c.use.processes) == 0 {
		if group := slices.IndexFunc(simGroups[1:], func(g struct{ path, container, pod string }) bool { return g.path == c.use.cgroup }); group >= 0 && s.observed {
			c.keys = owners(1 + group)
		}
		return
	}
	for i, p := range c.use.processes {
		keys := owners(p.group)
		if len(c.use.processes) == 1 || !slices.ContainsFunc(c.use.processes, func(o *simProcess) bool { return o != p }) {
			keys = append(keys, p.key())
		}
		if i == 0 {
			c.keys = keys
		} else {
			c.keys = slices.DeleteFunc(c.keys, func(key string) bool { return !slices.Contains(keys, key) })
		}
		later := func(o *simProcess) bool { return o.pid == p.pid && o.start > p.start }
		reused := slices.ContainsFunc(s.processes, later) || slices.ContainsFunc(s.old, later)
		switch {
		case p.row && !reused:
			p.told = true
		case !p.row && p.told && p.endSeen >= s.interval-1:
			s.did["users that had ended"]++
		default:
			c.maybe = true
			for _, o := range s.old {
				if o.pid == p.pid && o.start < p.start && (o.row || o.seenAt >= p.start) {
					c.others = append(c.others, o.key())
					s.users[o.key()] = true
				}
			}
		}
		if reused {
			s.did["PIDs that are used again"]++
		}
	}
}

// observe takes in an interval.
func (o *gpuOracle) observe(g *simGPU, m *Measurement, elapsed time.Duration, begun bool) {
	listed := slices.ContainsFunc(m.GPUs, func(u gpu.Usage) bool { return u.Domain == g.zone.Domain })
	if listed && !o.listed {
		o.listed, o.toldAt = true, o.s.now
	}
	i := slices.IndexFunc(m.Readings, func(r power.Reading) bool { return r.Zone == g.zone })
	fresh := i >= 0 && m.Readings[i].Err == nil && !m.Readings[i].At.Equal(o.at)
	var u oracleUsage
	switch {
	case o.told != nil && o.told.total > 0:
		u, o.toldAt = *o.told, o.s.now
	case !o.listed, fresh && o.s.now-o.toldAt > maxSilence:
		if o.told != nil {
			u.claims = o.told.claims
		}
		u.busy, u.total, u.unattributed = units.CPUTime(elapsed), units.CPUTime(elapsed), units.CPUTime(elapsed)
		if o.listed {
			o.s.did["GPUs of which nothing is told for long"]++
		}
	case o.told != nil:
		u = *o.told
	}
	if !begun {
		u = oracleUsage{}
	}
	u.elapsed = elapsed
	if i < 0 {
		o.absent(&u)
		return
	}
	r := &m.Readings[i]
	if fresh {
		o.at = r.At
	}
	if !o.present {
		o.present, o.last = fresh, r.Total
		return
	}
	u.energy = r.Total - o.last
	o.counted += u.energy
	o.last = r.Total
	if o.pending != nil {
		o.pending.add(&u)
	} else {
		o.pending = &u
	}
	if fresh && o.pending.total > 0 {
		o.attribute()
	}
}

// absent takes in an interval in which the zone is not listed. It is attributed without its users.
func (o *gpuOracle) absent(u *oracleUsage) {
	if !o.present {
		return
	}
	if o.pending != nil && o.pending.energy > 0 {
		o.attribute()
	}
	if o.pending == nil {
		o.pending = &oracleUsage{}
	}
	o.pending.add(u)
	for _, c := range o.pending.claims {
		o.pending.unattributed += c.use.used
	}
	o.pending.claims = nil
}

func (u *oracleUsage) add(v *oracleUsage) {
	u.busy += v.busy
	u.total += v.total
	u.unattributed += v.unattributed
	u.elapsed += v.elapsed
	u.energy += v.energy
	u.claims = append(u.claims, v.claims...)
	if u.elapsed > 5*time.Minute { // claims of processes that ended are forgotten
		for i := range u.claims {
			u.claims[i].maybe = true
		}
	}
}

// attribute attributes what is pending.
func (o *gpuOracle) attribute() {
	u := o.pending
	o.pending = nil
	if u.total == 0 {
		o.active += u.energy
		return
	}
	active := units.Energy(units.MulDiv(uint64(u.energy), uint64(u.busy), uint64(u.total)))
	o.active += active
	weight := float64(u.unattributed)
	for _, c := range u.claims {
		weight += float64(c.use.used)
	}
	if weight == 0 {
		return
	}
	for _, c := range u.claims {
		share := float64(active) * float64(c.use.used) / weight
		for _, key := range c.others {
			o.expect(key, 0, share)
		}
		for _, key := range c.keys {
			if c.maybe {
				o.expect(key, 0, share)
			} else {
				o.expect(key, share, share)
			}
		}
	}
}

func (o *gpuOracle) expect(key string, least, most float64) {
	if o.s.expected[key] == nil {
		o.s.expected[key] = &[simGPUs]bounds{}
	}
	b := &o.s.expected[key][o.kind]
	b.least, b.most, b.shares = b.least+least, b.most+most, b.shares+1
}

// simulateGPUs runs a history.
func simulateGPUs(t testing.TB, seed uint64) (*gpuSimulation, error) {
	s := newGPUSimulation(t, seed)
	defer s.close(t)
	for range gpuIntervals {
		if err := s.step(); err != nil {
			return s, fmt.Errorf("seed %d, interval %d: %w", seed, s.interval, err)
		}
	}
	return s, s.checkShares()
}

// TestNoEnergyOfAGPUIsLostOrGivenToOthers runs random histories of GPUs and their users. With
// -gpu.seed it runs one.
func TestNoEnergyOfAGPUIsLostOrGivenToOthers(t *testing.T) {
	if *gpuSeed != 0 {
		_, err := simulateGPUs(t, *gpuSeed)
		require.NoError(t, err)
		return
	}
	var mu sync.Mutex
	var next atomic.Uint64
	var workers sync.WaitGroup
	did, intervals := map[string]int{}, 0
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1); seed <= uint64(*gpuHistories) && !t.Failed(); seed = next.Add(1) {
				s, err := simulateGPUs(t, seed)
				if err != nil {
					t.Errorf("%v\nTo see it again: go test ./internal/claims -run %s -gpu.seed=%d", err, t.Name(), seed)
					return
				}
				mu.Lock()
				intervals += s.interval
				for name, n := range s.did {
					did[name] += n
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("%d intervals of %d GPUs", intervals, simGPUs)
	for name, n := range did {
		t.Logf("%8d %s", n, name)
		require.GreaterOrEqual(t, n, min(*gpuHistories, 100), "%s: what never happened proves nothing", name)
	}
}
