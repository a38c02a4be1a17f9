// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

var (
	guestsHistories = flag.Int("guests.histories", 3, "histories of TestGuestsHaveWhatTheirHostAttributedToThem")
	guestsSteps     = flag.Int("guests.steps", 100, "intervals of each")
	guestsSeed      = flag.Uint64("guests.seed", 1, "the `seed` of the first")
)

// guestsSimulation is two hosts with two virtual machines. A receiver on each host exports to them
// the energy attributed to them, as trees, and a receiver in each virtual machine reads its tree.
// All of them run in one synctest bubble, with a machine of their own each.
//
// After each step of a host, the trees are compared with what its ledger has of the virtual
// machines; after each step of a virtual machine, its ledger with the trees that it may have read.
type guestsSimulation struct {
	*testing.T
	// mu is held by the one that acts: the test, which lets it go while time passes, or a read of a tree.
	mu     sync.Mutex
	seed   uint64
	rng    *rand.Rand
	hosts  []*guestsHost
	guests []*simulatedGuest
	fired  map[string]int
	checks int // of virtual machines, in which energy was compared
	exact  int // of them, those in which the last tree had to have been read
}

// toldKinds are the zone kinds of the hosts.
var toldKinds = [...]power.Kind{power.Package, power.DRAM}

// byToldKind are energies in µJ, by the index in toldKinds. In a tree a zone that is not there has noZone.
type byToldKind [len(toldKinds)]int64

const noZone = -1

// guestsHost is a host with its receiver.
type guestsHost struct {
	sim  *guestsSimulation
	host *hostsim.Host
	node *testNode // nil while the receiver does not run
	path string    // of the trees
	// exporter writes the trees. It starts before the receiver and ends after it.
	exporter extension.Extension

	series map[toldSeries]byToldKind // that the running receiver has or had
	trees  map[string]*toldTree      // by the name of the machine
	untold map[string]byToldKind     // the most that earlier receivers attributed and may not have exported, by the same
	faults map[string]int            // those that last, with the steps that are left
}

// toldSeries is a series of a virtual machine.
type toldSeries struct {
	id    string
	start time.Time
}

// toldTree is the last tree of a virtual machine that was complete.
type toldTree struct {
	treeState
	then byToldKind // the energy that the receiver had attributed when each zone was exported
}

// treeState is the content of a complete tree.
type treeState struct {
	epoch      string
	generation uint64
	energy     byToldKind
}

// shownTree is the content of the share since a time.
type shownTree struct {
	treeState
	since time.Time
}

func (s shownTree) String() string {
	return fmt.Sprintf("%.4s %d %d since %v\n", s.epoch, s.generation, s.energy, s.since.Sub(bubbleStart))
}

// simulatedGuest is a virtual machine with its receiver.
type simulatedGuest struct {
	sim        *guestsSimulation
	name, uuid string
	pid        int // of its process on the host
	on         *guestsHost
	host       *hostsim.Host
	node       *testNode // nil while the receiver does not run
	share      string    // a link to its tree

	shown  []shownTree // the complete trees that the share has shown, one after the other, from the last that was certainly read
	may    [len(toldKinds)][]guess
	before byToldKind // what the ledger had
	calm   time.Time  // since when nothing keeps the last tree from being read
	damage bool       // the next total that is read is wrong
	wrong  treeState  // the tree of which a wrong total was read, zero once a later tree was certainly read
	faults map[string]int
}

// guess is a state that the virtual machine's receiver may be in: the last tree with the zone that
// it read, as an index in shown, and what its total had been if that tree had shown 0.
type guess struct {
	at     int
	offset int64
	// anew is how often counting has begun anew for a wrong total: with the total and with the right one after it.
	anew int
}

func newGuestsSimulation(t *testing.T, seed uint64) *guestsSimulation {
	installReader()
	sim := &guestsSimulation{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 13)), fired: map[string]int{}}
	sim.mu.Lock()
	dir := treeDir(t)
	for i := range 2 {
		h := &guestsHost{
			sim: sim, host: hostsim.New(treeDir(t)), path: filepath.Join(dir, fmt.Sprint("host", i)), trees: map[string]*toldTree{},
			untold: map[string]byToldKind{}, faults: map[string]int{},
		}
		h.host.CPUs, h.host.Cached = 4, true
		h.host.Zones["intel-rapl:0"] = &hostsim.Zone{Name: "package-0", Max: 262_143_328_850, Energy: 5 * joule}
		h.host.Zones["intel-rapl:1"] = &hostsim.Zone{Name: "package-1", Max: 262_143_328_850}
		h.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_712_999_613, Energy: joule}
		h.host.Processes[5] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
		sim.hosts = append(sim.hosts, h)
		h.start()
	}
	for i, uuid := range []string{uuidA, uuidB} {
		g := &simulatedGuest{
			sim: sim, name: string(rune('a' + i)), uuid: uuid, pid: 10 + i, host: hostsim.New(treeDir(t)), faults: map[string]int{},
		}
		g.share = filepath.Join(dir, "share-"+g.name)
		g.host.CPUs, g.host.Cached = 2, true
		g.host.Processes[7] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
		g.host.Processes[8] = &hostsim.Process{Parent: 1, Comm: "web", Exe: "/bin/web"}
		sim.guests = append(sim.guests, g)
		simulations.Store(g.share, g)
		g.boot(sim.hosts[0])
	}
	return sim
}

// restarted returns a node of a machine that is there already.
func (sim *guestsSimulation) restarted(id component.ID, host *hostsim.Host, edit func(*Config)) *testNode {
	n := newTestNode(sim.T, func(c *Config) {
		c.RootPath, c.Zones = host.Root(), slices.Clone(toldKinds[:])
		c.Attribution.Idle = [...]config.IdleRule{config.IdleNone, config.IdleEqual, config.IdleUsed}[sim.rng.IntN(3)]
		edit(c)
	})
	n.host, n.s.now, n.s.set.ID = host, host.Now, id
	require.NoError(sim, host.Render())
	require.NoError(sim, n.s.start(context.Background(), n))
	return n
}

// pass lets time pass.
func (sim *guestsSimulation) pass(d time.Duration) {
	sim.mu.Unlock()
	defer sim.mu.Lock()
	time.Sleep(d)
	synctest.Wait()
}

func (sim *guestsSimulation) fail(format string, args ...any) {
	sim.Helper()
	sim.Fatalf("after %v: %s\nTo see it again: go test ./receiver -run %s -guests.seed=%d -guests.histories=1 -guests.steps=%d",
		time.Since(bubbleStart), fmt.Sprintf(format, args...), sim.Name(), sim.seed, *guestsSteps)
}

// bubbleStart is when the clock of each bubble begins.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// chance is one in n.
func (sim *guestsSimulation) chance(n int) bool { return sim.rng.IntN(n) == 0 }

// step lets an interval pass, in which each receiver collects once, in any order.
func (sim *guestsSimulation) step() {
	sim.disturb()
	var canTell []*guestsHost
	for _, h := range sim.hosts {
		if h.node != nil && !h.blocked() {
			canTell = append(canTell, h)
		}
	}
	sim.collect([...]int{1, 2, 5, 10, 10, 10, 10, 20, 60}[sim.rng.IntN(9)])
	for _, h := range canTell {
		for _, g := range sim.guests {
			if g.on == h {
				h.checkTold(g)
			}
		}
	}
}

// collect has each machine run for some seconds, and then each receiver collect, with some of the time after each.
func (sim *guestsSimulation) collect(seconds int) {
	var collect []func()
	for _, h := range sim.hosts {
		h.run(time.Duration(seconds) * time.Second)
		collect = append(collect, h.collect)
	}
	for _, g := range sim.guests {
		g.run(time.Duration(seconds) * time.Second)
		collect = append(collect, g.collect)
	}
	for n, i := range sim.rng.Perm(len(collect)) {
		collect[i]()
		part := seconds
		if n < len(collect)-1 {
			part = sim.rng.IntN(seconds + 1)
		}
		seconds -= part
		sim.pass(time.Duration(part)*time.Second + time.Duration(sim.rng.IntN(1000))*time.Millisecond)
		for _, h := range sim.hosts {
			h.observe()
		}
	}
}

// guestsFault is something that may happen.
type guestsFault struct {
	name  string
	steps int // for how many steps it may last; 0 means none
	// begin makes it happen. It reports whether it could.
	begin func() bool
	end   func()
}

const (
	fullDisk     = "host: full disk"
	fullMidway   = "host: disk full amid a tree"
	zoneVanishes = "host: zone vanishes"

	dramFile = "intel-rapl:0/intel-rapl:0:0/energy_uj"
)

// disturb begins and ends faults.
func (sim *guestsSimulation) disturb() {
	for _, h := range sim.hosts {
		sim.apply(h.faults, h.possible())
	}
	for _, g := range sim.guests {
		sim.apply(g.faults, g.possible())
	}
	for _, g := range sim.guests {
		if g.troubled() {
			g.disturbed()
		}
	}
}

func (sim *guestsSimulation) apply(active map[string]int, possible []guestsFault) {
	for _, f := range possible {
		left, on := active[f.name]
		switch {
		case on && left > 1:
			active[f.name]--
		case on:
			delete(active, f.name)
			f.end()
		case sim.chance(60) && f.begin():
			sim.fired[f.name]++
			if f.steps > 0 {
				active[f.name] = 1 + sim.rng.IntN(f.steps)
			}
		}
	}
}

// blocked reports whether the trees may not be written, or lack a zone.
func (h *guestsHost) blocked() bool {
	for _, fault := range []string{fullDisk, fullMidway, zoneVanishes} {
		if h.faults[fault] > 0 {
			return true
		}
	}
	return false
}

// possible returns the faults of a host.
func (h *guestsHost) possible() []guestsFault {
	always := func() bool { return true }
	nothing := func() {}
	pkg := h.host.Zones["intel-rapl:0"]
	return []guestsFault{
		{"host: consumer refuses", 5, always, nothing},
		{"host: receiver restarts", 6, func() bool { h.stop(); return true }, h.start},
		{"host: meter fails", 20, func() bool { pkg.Content = "?"; return true }, func() { pkg.Content = "" }},
		{zoneVanishes, 10, func() bool { delete(h.host.Zones, "intel-rapl:0:0"); return true }, func() {
			h.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_712_999_613, Energy: joule}
		}},
		{fullDisk, 5, func() bool { return h.block(".new") }, func() { h.unblock(".new") }},
		{fullMidway, 5, func() bool { return h.block(dramFile) }, func() { h.unblock(dramFile) }},
		{"host: tree removed", 0, func() bool {
			name := h.sim.guests[h.sim.rng.IntN(len(h.sim.guests))].name
			require.NoError(h.sim, os.RemoveAll(filepath.Join(h.path, name)))
			return true
		}, nothing},
	}
}

// block has a directory in the place of a file of all trees, so that it cannot be written.
func (h *guestsHost) block(file string) (blocked bool) {
	if h.blocked() {
		return false
	}
	for _, g := range h.sim.guests {
		name := filepath.Join(h.path, g.name, file)
		if _, err := os.Stat(filepath.Dir(name)); err != nil {
			continue
		}
		require.NoError(h.sim, os.RemoveAll(name))
		require.NoError(h.sim, os.MkdirAll(filepath.Join(name, "x"), 0o755))
		blocked = true
	}
	return blocked
}

func (h *guestsHost) unblock(file string) {
	for _, g := range h.sim.guests {
		require.NoError(h.sim, os.RemoveAll(filepath.Join(h.path, g.name, file)))
	}
}

// possible returns the faults of a virtual machine.
func (g *simulatedGuest) possible() []guestsFault {
	always := func() bool { return true }
	nothing := func() {}
	runs := func() bool { return g.on != nil && g.node != nil }
	return []guestsFault{
		{"guest: consumer refuses", 5, always, nothing},
		{"guest: paused", 10, always, nothing},
		{"guest: read fails", 5, always, nothing},
		{"guest: a total is wrong", 0, func() bool {
			g.damage = g.wrong == (treeState{})
			return g.damage
		}, nothing},
		{"tree written while it is read", 5, always, nothing},
		{"guest: share is not there", 5, func() bool { return g.on != nil && os.Remove(g.share) == nil }, func() {
			if g.on != nil {
				g.mount()
			}
		}},
		{"guest: receiver restarts", 0, func() bool {
			if !runs() {
				return false
			}
			g.sim.stop(&g.node)
			g.start()
			return true
		}, nothing},
		{"guest: stops", 10, func() bool {
			if !runs() {
				return false
			}
			g.sim.stop(&g.node)
			g.move(nil)
			return true
		}, func() { g.boot(g.sim.hosts[g.sim.rng.IntN(2)]) }},
		{"guest: moves to the other host", 0, func() bool {
			if !runs() {
				return false
			}
			g.move(g.sim.hosts[1-slices.Index(g.sim.hosts, g.on)])
			return true
		}, nothing},
	}
}

// start starts the receiver of the host.
func (h *guestsHost) start() {
	h.series = map[toldSeries]byToldKind{}
	for _, t := range h.trees {
		t.then = byToldKind{}
	}
	id := component.NewIDWithName(metadata.Type, h.path)
	h.exporter = exporterTo(h.sim.T, id, h.path)
	h.node = h.sim.restarted(id, h.host, func(*Config) {})
}

// stop ends the receiver of the host. Energy that it has not exported is lost.
func (h *guestsHost) stop() {
	h.shutDown()
	h.observe()
	for _, g := range h.sim.guests {
		had, untold := h.attributed(g.uuid), h.untold[g.name]
		for kind := range untold {
			untold[kind] += had[kind]
			if t := h.trees[g.name]; t != nil {
				untold[kind] -= t.then[kind]
			}
		}
		h.untold[g.name] = untold
	}
}

func (sim *guestsSimulation) stop(n **testNode) {
	stopping := *n
	*n = nil
	sim.mu.Unlock()
	defer sim.mu.Lock()
	require.NoError(sim, stopping.s.shutdown(context.Background()))
}

// shutDown shuts the receiver of the host down, and then the extension, which writes what it received last.
func (h *guestsHost) shutDown() {
	h.sim.stop(&h.node)
	h.sim.mu.Unlock()
	defer h.sim.mu.Lock()
	require.NoError(h.sim, h.exporter.Shutdown(context.Background()))
}

// run lets time pass on the host, in which everything uses energy.
func (h *guestsHost) run(d time.Duration) {
	used := map[int]int64{}
	for _, pid := range slices.Sorted(maps.Keys(h.host.Processes)) {
		if pid > 1 && !h.sim.chance(3) {
			used[pid] = int64(h.sim.rng.IntN(int(d/hostsim.Tick) + 1))
		}
	}
	h.host.Run(d, used)
	for _, id := range slices.Sorted(maps.Keys(h.host.Zones)) {
		z := h.host.Zones[id]
		z.Energy = (z.Energy + uint64(d.Seconds()*float64(h.sim.rng.IntN(120*joule)))) % z.Max
	}
}

// collect makes a collection, and compares the trees with it.
func (h *guestsHost) collect() {
	if h.node == nil {
		return
	}
	h.node.refuse = nil
	if h.faults["host: consumer refuses"] > 0 {
		h.node.refuse = errSimRefuses
	}
	h.node.scrape()
	h.note()
}

// note notes what vm.energy says.
func (h *guestsHost) note() {
	now := map[toldSeries]byToldKind{}
	for _, p := range h.node.points("vm.energy", nil) {
		kind := slices.Index(toldKinds[:], power.Kind(p.attributes["energy.zone"]))
		s := toldSeries{p.attributes["vm.id"], p.start}
		energy := now[s]
		energy[kind] += int64(math.Round(p.value * joule))
		now[s] = energy
	}
	for s, energy := range now {
		for kind, before := range h.series[s] {
			if energy[kind] < before {
				h.sim.fail("%s of %s went from %d µJ to %d", toldKinds[kind], s.id, before, energy[kind])
			}
		}
		h.series[s] = energy
	}
}

// attributed returns what the running receiver has attributed to a virtual machine.
func (h *guestsHost) attributed(id string) (sum byToldKind) {
	for s, energy := range h.series {
		for kind := range sum {
			if s.id == id {
				sum[kind] += energy[kind]
			}
		}
	}
	return sum
}

// observe notes the trees that have become complete, and compares what each gained with what was attributed.
func (h *guestsHost) observe() {
	for _, g := range h.sim.guests {
		now, complete := readTree(filepath.Join(h.path, g.name))
		if complete {
			h.compare(g, now)
		}
		if g.on == h {
			g.look()
		}
	}
}

// compare compares a tree with the one before and with what was attributed since.
func (h *guestsHost) compare(g *simulatedGuest, now treeState) {
	last, anew := h.trees[g.name], byToldKind{}
	if last != nil && last.epoch == now.epoch && last.generation == now.generation {
		return
	}
	if last == nil || last.epoch != now.epoch {
		if last != nil {
			h.sim.fired["host: new epoch"]++
			anew = last.then
		}
		last = &toldTree{}
		last.epoch = now.epoch
		h.trees[g.name] = last
	}
	if now.generation <= last.generation || now.generation%2 != 0 {
		h.sim.fail("%s: generation %d after %d", g.name, now.generation, last.generation)
	}
	had, untold := h.attributed(g.uuid), h.untold[g.name]
	for kind, energy := range now.energy {
		if energy == noZone { // it is exported when the zone is back
			continue
		}
		told, attributed := energy-last.energy[kind], had[kind]-last.then[kind]
		if told == attributed-anew[kind] {
			attributed = told // the receiver went on, and began another epoch
		}
		if told < attributed || told > attributed+untold[kind] {
			h.sim.fail("%s: the tree's %s gained %d µJ, attributed were %d, and %d before a restart: %v, %v",
				g.name, toldKinds[kind], told, attributed, untold[kind], h.faults, g.faults)
		}
		last.energy[kind], last.then[kind], untold[kind] = energy, had[kind], 0
	}
	last.generation, h.untold[g.name] = now.generation, untold
}

// checkTold checks that all energy was exported to a running virtual machine.
func (h *guestsHost) checkTold(g *simulatedGuest) {
	had := h.attributed(g.uuid)
	if had == (byToldKind{}) {
		return // the receiver has not seen it run
	}
	if t := h.trees[g.name]; t == nil || t.then != had {
		h.sim.fail("%s was attributed %d µJ and told %+v", g.name, had, t)
	}
}

// readTree reads a tree, and reports whether it is complete.
func readTree(dir string) (s treeState, complete bool) {
	line := func(file string) string {
		text, _ := os.ReadFile(filepath.Join(dir, file)) // "" if it cannot be read
		return strings.TrimSpace(string(text))
	}
	number := func(file string) int64 {
		n, err := strconv.ParseInt(line(file), 10, 64)
		if err != nil {
			return noZone
		}
		return n
	}
	generation := number("generation")
	s = treeState{line("epoch"), uint64(generation), byToldKind{number("intel-rapl:0/energy_uj"), number("intel-rapl:0/intel-rapl:0:0/energy_uj")}}
	return s, generation > 0 && generation%2 == 0 && s.epoch != "" && generation == number("generation")
}

// boot starts the virtual machine on a host, and its receiver.
func (g *simulatedGuest) boot(on *guestsHost) {
	g.move(on)
	g.start()
}

// move has the virtual machine run on a host, on none if that is nil.
func (g *simulatedGuest) move(on *guestsHost) {
	if g.on != nil {
		delete(g.on.host.Processes, g.pid)
	}
	if g.on = on; on == nil {
		return
	}
	p := qemu(g.name, g.uuid)
	p.Start = ticksSince(on.host)
	on.host.Processes[g.pid] = p
	g.mount()
	g.disturbed()
}

// mount shows the tree in the virtual machine.
func (g *simulatedGuest) mount() {
	require.NoError(g.sim, os.RemoveAll(g.share))
	require.NoError(g.sim, os.Symlink(filepath.Join(g.on.path, g.name), g.share))
	g.look()
}

// look notes what the share shows now.
func (g *simulatedGuest) look() {
	shown, complete := readTree(g.share)
	if !complete {
		g.disturbed()
	} else if len(g.shown) == 0 || g.shown[len(g.shown)-1].treeState != shown {
		g.shown = append(g.shown, shownTree{shown, time.Now()})
	}
}

func (g *simulatedGuest) start() {
	g.may, g.before = [len(toldKinds)][]guess{}, byToldKind{}
	g.shown = g.shown[max(len(g.shown)-1, 0):]
	g.node = g.sim.restarted(component.NewIDWithName(metadata.Type, g.share), g.host, func(c *Config) { c.Meters.Powercap.Path = g.share })
	g.disturbed()
}

// troubled reports whether a fault keeps the last tree from being read, or may.
func (g *simulatedGuest) troubled() bool {
	return g.on == nil || len(g.faults) > 0 || len(g.on.faults) > 0
}

// disturbed notes that something may keep the last tree from being read now.
func (g *simulatedGuest) disturbed() { g.calm = time.Now() }

func (g *simulatedGuest) run(d time.Duration) {
	if g.faults["guest: paused"] > 0 {
		return
	}
	used := map[int]int64{}
	for _, pid := range slices.Sorted(maps.Keys(g.host.Processes)) {
		if pid > 1 && !g.sim.chance(3) {
			used[pid] = int64(g.sim.rng.IntN(int(d/hostsim.Tick) + 1))
		}
	}
	g.host.Run(d, used)
}

// collect makes a collection, and compares the ledger with the trees that were there to be read.
func (g *simulatedGuest) collect() {
	if g.node == nil || g.faults["guest: paused"] > 0 {
		return
	}
	g.node.refuse = nil
	if g.faults["guest: consumer refuses"] > 0 {
		g.node.refuse = errSimRefuses
	}
	g.node.scrape() // processes and unattributed are active
	l := g.node.s.ledger
	if l == nil {
		return
	}
	ledger := l.Engine.Ledger()
	for i, k := range l.Kinds {
		of := &ledger.Kinds[i]
		if !of.Present {
			continue
		}
		if k.Method != power.Reported {
			g.sim.fail("%s: %s is %s", g.name, k.Zone, k.Method)
		}
		kind := slices.Index(toldKinds[:], k.Zone)
		has := int64(of.Active + of.Idle + ledger.Deferred(i))
		if has < g.before[kind] {
			g.sim.fail("%s: %s went from %d µJ to %d", g.name, k.Zone, g.before[kind], has)
		}
		g.before[kind] = has
		g.compare(kind, has)
	}
	for _, r := range g.node.s.meters.Set.Failed() {
		if r.Err != nil && strings.Contains(r.Err.Error(), "stale") {
			g.sim.fired["guest: saw stale energy"]++
		}
	}
	g.agree()
}

// compare finds which trees the receiver may have read last, if it has this energy of a zone kind. There must be one.
func (g *simulatedGuest) compare(kind int, has int64) {
	g.sim.checks++
	var may []guess
	if len(g.may[kind]) == 0 { // the zone appeared in this collection: what it had shown until then is the baseline
		for at := range g.shown {
			if energy := g.shown[at].energy[kind]; energy != noZone {
				may = append(may, guess{at: at, offset: -energy})
				if g.shown[at].treeState == g.wrong {
					may = append(may, guess{at: at, offset: -energy, anew: 1})
				}
			}
		}
	} else {
		may = g.reachable(kind, has)
	}
	before := may
	may = slices.DeleteFunc(slices.Clone(may), func(x guess) bool { return x.offset+g.shown[x.at].energy[kind] != has })
	if len(may) == 0 {
		var possible []int64
		for _, x := range before {
			possible = append(possible, x.offset+g.shown[x.at].energy[kind])
		}
		g.sim.fail("%s has %d µJ of %s; by what its host told it is one of %d\nfrom %v, calm since %v, %v:\n%v", g.name, has, toldKinds[kind], possible, g.may[kind], g.calm, g.faults, g.shown)
	}
	g.may[kind] = may
}

// reachable returns the states with at most this energy that may follow the earlier ones: any of
// the later trees may have been read or not. The energy of a state never goes down in a later one.
func (g *simulatedGuest) reachable(kind int, most int64) []guess {
	var known []guess
	seen := map[guess]bool{}
	add := func(x guess) {
		if !seen[x] && x.offset+g.shown[x.at].energy[kind] <= most {
			seen[x] = true
			known = append(known, x)
		}
	}
	for _, x := range g.may[kind] {
		add(x)
	}
	for n := 0; n < len(known); n++ {
		from := known[n]
		for at := from.at + 1; at < len(g.shown); at++ {
			a, b := &g.shown[from.at], &g.shown[at]
			if b.energy[kind] == noZone {
				continue
			}
			anew := guess{at, from.offset + a.energy[kind] - b.energy[kind], from.anew} // counting continues from b
			if a.epoch != b.epoch {
				add(anew)
			} else {
				add(guess{at, from.offset, from.anew})
			}
			if anew.anew++; anew.anew == 1 && b.treeState == g.wrong || anew.anew == 2 {
				add(anew)
			}
		}
	}
	return known
}

// agree keeps of the guesses those that are of one tree, and checks that it is the last one if that
// could be read for long enough. Trees before it are forgotten.
func (g *simulatedGuest) agree() {
	if slices.ContainsFunc(g.may[:], func(may []guess) bool { return len(may) == 0 }) {
		return
	}
	both := func(at int) bool { return !slices.Contains(g.shown[at].energy[:], noZone) }
	for kind := range g.may {
		other := g.may[1-kind]
		g.may[kind] = slices.DeleteFunc(slices.Clone(g.may[kind]), func(x guess) bool {
			return both(x.at) && !slices.ContainsFunc(other, func(y guess) bool { return y.at == x.at || !both(y.at) })
		})
		if len(g.may[kind]) == 0 {
			g.sim.fail("%s: package and dram are of different trees", g.name)
		}
	}
	// A poll fails for a while after a fault, and polls are ten seconds apart at most, else one.
	last := len(g.shown) - 1
	for last > 0 && time.Since(g.shown[last].since) < 2*time.Second {
		last--
	}
	if !g.troubled() && time.Since(g.calm) > 30*time.Second && both(last) {
		for kind := range g.may {
			before := slices.Clone(g.may[kind])
			g.may[kind] = slices.DeleteFunc(g.may[kind], func(x guess) bool { return x.at < last })
			if len(g.may[kind]) == 0 {
				g.sim.fail("%s: the last tree was not read, from %v, calm since %v, %v, %v: %v\n%v", g.name, before, g.calm.Sub(bubbleStart), g.faults, g.on.faults, g.node.s.meters.Set.Failed(), g.shown)
			}
		}
		if !slices.ContainsFunc(g.shown[last:], func(s shownTree) bool { return s.treeState == g.wrong }) {
			g.wrong = treeState{}
			for kind := range g.may {
				for i := range g.may[kind] {
					g.may[kind][i].anew = 0
				}
			}
		}
		g.sim.exact++
	}
	first := len(g.shown) - 1
	for _, may := range g.may {
		for _, x := range may {
			first = min(first, x.at)
		}
	}
	g.shown = slices.Clone(g.shown[first:])
	for kind := range g.may {
		for i := range g.may[kind] {
			g.may[kind][i].at -= first
		}
	}
}

// read implements faultyFiles: what the virtual machine reads of its tree. It may fail, or the host
// may write another tree meanwhile.
func (g *simulatedGuest) read(path string, got []byte, err error) ([]byte, error) {
	g.sim.mu.Lock()
	defer g.sim.mu.Unlock()
	switch {
	case g.faults["guest: read fails"] > 0 && g.sim.chance(4):
		g.disturbed()
		if err == nil && g.sim.chance(3) {
			g.sim.fired["short reads"]++
			return got[:g.sim.rng.IntN(len(got))], nil
		}
		g.sim.fired["reads that fail"]++
		return nil, &fs.PathError{Op: "read", Path: path, Err: [...]error{
			syscall.EIO, syscall.EACCES, syscall.ESTALE, syscall.ENODEV, syscall.ETIMEDOUT,
		}[g.sim.rng.IntN(5)]}
	case g.damage && strings.HasSuffix(path, "/energy_uj") && err == nil && g.sim.chance(2):
		now, complete := readTree(g.share)
		if !complete { // another tree is being written: this one is read again
			return got, err
		}
		g.look()
		g.disturbed()
		g.damage, g.wrong = false, now
		g.sim.fired["totals that are wrong"]++
		return fmt.Append(nil, math.MaxInt64-g.sim.rng.Int64N(9e18), "\n"), nil
	case g.faults["tree written while it is read"] > 0 && g.sim.chance(12) && g.on != nil && g.on.node != nil:
		g.on.writeNow(g)
	}
	return got, err
}

// writeNow has the host collect and write the trees while one of them is being read.
func (h *guestsHost) writeNow(g *simulatedGuest) {
	h.observe()
	before, ok := readTree(filepath.Join(h.path, g.name))
	if last := h.trees[g.name]; !ok || h.blocked() || last == nil || last.then != h.attributed(g.uuid) { // it is being written already
		return
	}
	h.run(time.Second)
	h.collect()
	for range 1_000_000 {
		if now, ok := readTree(filepath.Join(h.path, g.name)); ok && now.generation != before.generation {
			break
		}
		runtime.Gosched()
	}
	h.observe()
	h.sim.fired["tree written while it was read"]++
}

func TestGuestsHaveWhatTheirHostAttributedToThem(t *testing.T) {
	fired, steps, checks, exact := map[string]int{}, 0, 0, 0
	for seed := *guestsSeed; seed < *guestsSeed+uint64(*guestsHistories); seed++ {
		synctest.Test(t, func(t *testing.T) {
			sim := newGuestsSimulation(t, seed)
			defer sim.end()
			for range *guestsSteps {
				sim.step()
				steps++
			}
			for name, n := range sim.fired {
				fired[name] += n
			}
			checks, exact = checks+sim.checks, exact+sim.exact
		})
	}
	t.Logf("%d intervals: %d comparisons, in %d collections with the last tree", steps, checks, exact)
	for _, name := range slices.Sorted(maps.Keys(fired)) {
		t.Logf("%8d %s", fired[name], name)
	}
}

// end ends all receivers.
func (sim *guestsSimulation) end() {
	for _, g := range sim.guests {
		if g.node != nil {
			sim.stop(&g.node)
		}
		simulations.Delete(g.share)
	}
	for _, h := range sim.hosts {
		if h.node != nil {
			h.shutDown()
		}
	}
	sim.mu.Unlock()
}
