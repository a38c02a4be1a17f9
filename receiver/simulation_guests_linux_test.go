// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// guestsSimulation is two worlds with two virtual machines, which are worlds too. A receiver on
// each host exports to them the energy attributed to them, as trees, and a receiver in each virtual
// machine reads its tree. All of them run in one synctest bubble.
//
// After each step of a host, the trees are compared with the vm.energy that it sent; after each
// step of a virtual machine, its energy with the trees that it may have read.
type guestsSimulation struct {
	*testing.T
	seed   uint64
	rng    *rand.Rand
	hosts  []*guestsHost
	guests []*simulatedGuest
	fired  map[string]int
	checks int // of virtual machines, in which energy was compared
	exact  int // of them, those in which the last tree had to have been read
}

// reportedKinds are the zone kinds of the hosts.
var reportedKinds = [...]power.Kind{power.Package, power.DRAM}

// byReportedKind are energies in µJ, by the index in reportedKinds. In a tree a zone that is not
// there has noZone.
type byReportedKind [len(reportedKinds)]int64

const noZone = -1

// guestsHost is a host with its receiver.
type guestsHost struct {
	*world
	sim  *guestsSimulation
	path string // of the trees
	// exporter writes the trees. It starts before the receiver and ends after it.
	exporter   extension.Extension
	trees      map[string]*reportedTree  // by the name of the machine
	unreported map[string]byReportedKind // the most that earlier receivers attributed and may not have exported, by the same
	lasting    map[string]int            // the faults that last, with the steps that are left
}

// reportedTree is the last tree of a virtual machine that was complete.
type reportedTree struct {
	treeState
	then byReportedKind // the energy that the receiver had attributed when each zone was exported
}

// treeState is the content of a complete tree.
type treeState struct {
	epoch      string
	generation uint64
	energy     byReportedKind
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
	*world
	sim        *guestsSimulation
	name, uuid string
	on         *guestsHost
	process    *hostsim.Task // on the host
	share      string        // a link to its tree

	shown   []shownTree // the complete trees that the share has shown, one after the other, from the last that was certainly read
	may     [len(reportedKinds)][]guess
	before  byReportedKind // what the ledger had
	calm    time.Time      // since when nothing keeps the last tree from being read
	wrong   treeState      // a tree with wrong totals that the share has shown, zero once a later tree was certainly read
	lasting map[string]int
}

// guess is a state that the virtual machine's receiver may be in: the last tree with the zone that
// it read, as an index in shown, and what its total had been if that tree had shown 0.
type guess struct {
	at     int
	offset int64
	// anew is how often counting has begun anew for a wrong total: with the total and with the
	// right one after it.
	anew int
}

func newGuestsSimulation(t *testing.T, seed uint64) *guestsSimulation {
	sim := &guestsSimulation{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 13)), fired: map[string]int{}}
	dir := treeDir(t)
	for i := range 2 {
		h := &guestsHost{
			sim: sim, path: filepath.Join(dir, fmt.Sprint("host", i)), trees: map[string]*reportedTree{}, unreported: map[string]byReportedKind{},
			lasting: map[string]int{},
		}
		h.world = sim.newWorld(h.path, func(*Config) {})
		sim.hosts = append(sim.hosts, h)
		h.start()
	}
	for i, uuid := range []string{uuidA, uuidB} {
		g := &simulatedGuest{sim: sim, name: string(rune('a' + i)), uuid: uuid, lasting: map[string]int{}}
		g.share = filepath.Join(dir, "share-"+g.name)
		g.world = sim.newWorld(g.share, func(c *Config) { c.Meters.Powercap.Path = g.share })
		sim.guests = append(sim.guests, g)
		g.bootOn(sim.hosts[0])
	}
	return sim
}

// newWorld returns the world of a host or a virtual machine.
func (sim *guestsSimulation) newWorld(name string, edit func(*Config)) *world {
	idle := [...]config.IdleRule{config.IdleNone, config.IdleEqual, config.IdleUsed}[sim.rng.IntN(3)]
	return newWorld(sim.T, plan{
		seed: sim.seed, id: component.NewIDWithName(metadata.Type, name), edit: func(c *Config) {
			c.Zones, c.Attribution.Idle = slices.Clone(reportedKinds[:]), idle
			edit(c)
		},
	})
}

// stop stops the receiver of a world.
func (sim *guestsSimulation) stop(w *world) {
	w.life.Step(time.Millisecond)
	w.stop()
}

func (sim *guestsSimulation) fail(format string, args ...any) {
	sim.Helper()
	sim.Fatalf("after %v: %s\nTo see it again: go test ./receiver -run %s -guests.seed=%d -guests.histories=1 -guests.steps=%d",
		time.Since(bubbleStart), fmt.Sprintf(format, args...), sim.Name(), sim.seed, *guestsSteps)
}

// bubbleStart is when the clock of each bubble begins.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// chance is one in n.
func chance(rng *rand.Rand, n int) bool { return rng.IntN(n) == 0 }

// live lets time pass in a world, in which its tasks live by random events.
func live(w *world, rng *rand.Rand, d time.Duration) {
	weights := hostsim.CommonWeights()
	delete(weights, hostsim.Advance)
	delete(weights, hostsim.Pass)
	for _, e := range hostsim.NewHistory(rng.Uint64(), rng.IntN(5), weights) {
		w.apply(e)
	}
	w.run.passed = d
	w.life.Step(d)
}

// collect makes a collection in a world, if its receiver runs.
func (sim *guestsSimulation) collect(w *world, refuses bool) {
	w.plan.refuse = refuses
	if w.run.s != nil {
		w.collect()
	}
	if w.wrong != nil {
		sim.fail("%v", w.wrong)
	}
}

// step lets an interval pass, in which each receiver collects once, in any order.
func (sim *guestsSimulation) step() {
	sim.disturb()
	var canTell []*guestsHost
	for _, h := range sim.hosts {
		if h.run.s != nil && !h.blocked() {
			canTell = append(canTell, h)
		}
	}
	sim.pass([...]int{1, 2, 5, 10, 10, 10, 10, 20, 60}[sim.rng.IntN(9)])
	for _, h := range canTell {
		for _, g := range sim.guests {
			if g.on == h {
				h.checkReported(g)
			}
		}
	}
}

// pass has each machine run for some seconds, and then each receiver collect, with some of the time
// after each.
func (sim *guestsSimulation) pass(seconds int) {
	var collect []func()
	for _, h := range sim.hosts {
		live(h.world, sim.rng, time.Duration(seconds)*time.Second)
		collect = append(collect, h.collect)
	}
	for _, g := range sim.guests {
		if g.lasting["guest: paused"] == 0 {
			live(g.world, sim.rng, time.Duration(seconds)*time.Second)
			collect = append(collect, g.collect)
		}
	}
	for n, i := range sim.rng.Perm(len(collect)) {
		collect[i]()
		part := seconds
		if n < len(collect)-1 {
			part = sim.rng.IntN(seconds + 1)
		}
		seconds -= part
		pause := time.Duration(part)*time.Second + time.Duration(sim.rng.IntN(1000))*time.Millisecond
		time.Sleep(pause)
		synctest.Wait()
		for _, h := range sim.hosts {
			h.observe()
		}
	}
}

// guestsFault is something that may happen.
type guestsFault struct {
	name  string
	steps int         // for how many steps it may last; 0 means none
	begin func() bool // makes it happen, and reports whether it could; nil if there is nothing to do
	end   func()
}

const (
	fullDisk     = "host: full disk"
	zoneVanishes = "host: zone vanishes"
)

// disturb begins and ends faults.
func (sim *guestsSimulation) disturb() {
	for _, h := range sim.hosts {
		sim.apply(h.lasting, h.possible())
	}
	for _, g := range sim.guests {
		sim.apply(g.lasting, g.possible())
	}
	for _, g := range sim.guests {
		if g.blocked() {
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
			if delete(active, f.name); f.end != nil {
				f.end()
			}
		case chance(sim.rng, 60) && (f.begin == nil || f.begin()):
			sim.fired[f.name]++
			if f.steps > 0 {
				active[f.name] = 1 + sim.rng.IntN(f.steps)
			}
		}
	}
}

// blocked reports whether the trees may not be written, or lack a zone.
func (h *guestsHost) blocked() bool {
	return h.lasting[fullDisk]+h.lasting[zoneVanishes] > 0
}

// possible returns the faults of a host.
func (h *guestsHost) possible() []guestsFault {
	pkg, memory := h.life.Sockets[0].Package, map[string]*hostsim.Zone{}
	for i, s := range h.life.Sockets {
		memory[fmt.Sprintf("intel-rapl:%d:1", i)] = s.DRAM
	}
	return []guestsFault{
		{"host: consumer refuses", 5, nil, nil},
		{"host: receiver restarts", 6, func() bool { h.stop(); return true }, h.start},
		{"host: meter fails", 20, func() bool { pkg.Content = "?"; return true }, func() { pkg.Content = "" }},
		{zoneVanishes, 10, func() bool {
			maps.DeleteFunc(h.life.Host.Zones, func(id string, _ *hostsim.Zone) bool { return memory[id] != nil })
			return true
		}, func() {
			for id, z := range memory {
				h.life.Host.Zones[id], z.Energy = z, joule
			}
		}},
		{fullDisk, 5, func() bool { return h.block(".new") }, func() { h.unblock(".new") }},
		{"host: a counter cannot be written", 5, func() bool { return h.block(dramFile) }, func() { h.unblock(dramFile) }},
		{"host: tree removed", 0, func() bool {
			name := h.sim.guests[h.sim.rng.IntN(len(h.sim.guests))].name
			require.NoError(h.sim, os.RemoveAll(filepath.Join(h.path, name)))
			return true
		}, nil},
	}
}

// block has a directory in the place of a file of all trees, so that it cannot be written.
func (h *guestsHost) block(file string) (blocked bool) {
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
	// ifItRuns does something if the virtual machine and its receiver run.
	ifItRuns := func(f func()) func() bool {
		return func() bool {
			runs := g.on != nil && g.run.s != nil
			if runs {
				f()
			}
			return runs
		}
	}
	return []guestsFault{
		{"guest: consumer refuses", 5, nil, nil},
		{"guest: paused", 10, nil, nil},
		{"guest: totals are wrong", 2, g.showWrong, func() {
			if g.on != nil {
				g.mount()
				g.disturbed()
			}
		}},
		{"guest: share is not there", 5, func() bool { return g.on != nil && os.Remove(g.share) == nil }, func() {
			if g.on != nil {
				g.mount()
			}
		}},
		{"guest: receiver restarts", 0, ifItRuns(func() {
			g.sim.stop(g.world)
			g.start()
		}), nil},
		{"guest: stops", 10, ifItRuns(func() {
			g.sim.stop(g.world)
			g.move(nil)
		}), func() { g.bootOn(g.sim.hosts[g.sim.rng.IntN(2)]) }},
		{"guest: moves to the other host", 0, ifItRuns(func() { g.move(g.sim.hosts[1-slices.Index(g.sim.hosts, g.on)]) }), nil},
	}
}

// start starts the receiver of the host.
func (h *guestsHost) start() {
	for _, t := range h.trees {
		t.then = byReportedKind{}
	}
	h.exporter = exporterTo(h.sim.T, h.plan.id, h.path)
	h.world.start()
}

// stop ends the receiver of the host. Energy that it has not exported is lost.
func (h *guestsHost) stop() {
	h.shutDown()
	h.observe()
	for _, g := range h.sim.guests {
		had, unreported := h.attributed(g.uuid), h.unreported[g.name]
		for kind := range unreported {
			unreported[kind] += had[kind]
			if t := h.trees[g.name]; t != nil {
				unreported[kind] -= t.then[kind]
			}
		}
		h.unreported[g.name] = unreported
	}
}

// shutDown shuts the receiver of the host down, and then the extension, which writes what it
// received last.
func (h *guestsHost) shutDown() {
	h.sim.stop(h.world)
	require.NoError(h.sim, h.exporter.Shutdown(context.Background()))
}

// collect makes a collection, not at the time of the last one, which was made while a tree was
// read.
func (h *guestsHost) collect() {
	if h.run.s != nil && h.backend.now.uptime == h.life.Host.Uptime {
		h.run.passed = time.Millisecond
		h.life.Step(h.run.passed)
	}
	h.sim.collect(h.world, h.lasting["host: consumer refuses"] > 0)
}

// attributed returns what the last run of the receiver has attributed to a virtual machine.
func (h *guestsHost) attributed(uuid string) (sum byReportedKind) {
	for _, s := range h.backend.series {
		if s.metric == "vm.energy" && s.start >= h.backend.resume.since && strings.Contains(s.resource, "vm.id="+uuid) {
			sum[slices.Index(reportedKinds[:], s.kind())] += s.sent
		}
	}
	return sum
}

// observe notes the trees that have become complete, and compares what each gained with what was
// attributed.
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
	last, anew := h.trees[g.name], byReportedKind{}
	if last != nil && last.epoch == now.epoch && last.generation == now.generation {
		return
	}
	if last == nil || last.epoch != now.epoch {
		if last != nil {
			h.sim.fired["host: new epoch"]++
			anew = last.then
		}
		last = &reportedTree{}
		last.epoch = now.epoch
		h.trees[g.name] = last
	}
	if now.generation <= last.generation {
		h.sim.fail("%s: generation %d after %d", g.name, now.generation, last.generation)
	}
	had, unreported := h.attributed(g.uuid), h.unreported[g.name]
	for kind, energy := range now.energy {
		if energy == noZone { // it is exported when the zone is back
			continue
		}
		reported, attributed := energy-last.energy[kind], had[kind]-last.then[kind]
		if reported == attributed-anew[kind] {
			attributed = reported // the receiver continued with another epoch
		}
		if reported < attributed || reported > attributed+unreported[kind] {
			h.sim.fail("%s: the tree's %s gained %d µJ, attributed were %d, and %d before a restart: %v, %v",
				g.name, reportedKinds[kind], reported, attributed, unreported[kind], h.lasting, g.lasting)
		}
		last.energy[kind], last.then[kind], unreported[kind] = energy, had[kind], 0
	}
	last.generation, h.unreported[g.name] = now.generation, unreported
}

// checkReported checks that all energy was exported to a running virtual machine.
func (h *guestsHost) checkReported(g *simulatedGuest) {
	had := h.attributed(g.uuid)
	if had == (byReportedKind{}) {
		return // the receiver has not seen it run
	}
	if t := h.trees[g.name]; t == nil || t.then != had {
		h.sim.fail("%s was attributed %d µJ and reported %+v", g.name, had, t)
	}
}

// dramFile is the counter of the memory in a tree.
const dramFile = "intel-rapl:0/intel-rapl:0:0/energy_uj"

// report is the content of report.json.
type report struct {
	Version    int          `json:"version"`
	Epoch      string       `json:"epoch"`
	Generation uint64       `json:"generation,string"`
	Time       int64        `json:"time_unix_nano,string"`
	Zones      []reportZone `json:"zones"`
}

type reportZone struct {
	Kind   power.Kind `json:"zone"`
	Energy int64      `json:"energy_uj,string"`
}

// readTree reads the report of a tree, and reports whether there is one.
func readTree(dir string) (s treeState, complete bool) {
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	var r report
	if err != nil || json.Unmarshal(text, &r) != nil {
		return s, false
	}
	s = treeState{r.Epoch, r.Generation, byReportedKind{noZone, noZone}}
	for _, z := range r.Zones {
		s.energy[slices.Index(reportedKinds[:], z.Kind)] = z.Energy
	}
	return s, true
}

// showWrong has the share show totals that are wrong.
func (g *simulatedGuest) showWrong() bool {
	now, complete := readTree(g.share)
	if !complete || g.wrong != (treeState{}) {
		return false
	}
	now.generation += 1 << 32
	r := report{Version: 1, Epoch: now.epoch, Generation: now.generation}
	for i, kind := range reportedKinds {
		if now.energy[i] != noZone && (i == 0 || chance(g.sim.rng, 2)) {
			now.energy[i] = math.MaxInt64 - g.sim.rng.Int64N(9e18)
		}
		if now.energy[i] != noZone {
			r.Zones = append(r.Zones, reportZone{kind, now.energy[i]})
		}
	}
	text, err := json.Marshal(&r)
	require.NoError(g.sim, err)
	dir := g.share + "-wrong"
	require.NoError(g.sim, os.MkdirAll(dir, 0o755))
	require.NoError(g.sim, os.WriteFile(filepath.Join(dir, "report.json"), text, 0o600))
	require.NoError(g.sim, os.Remove(g.share))
	require.NoError(g.sim, os.Symlink(dir, g.share))
	g.wrong = now
	g.look()
	g.disturbed()
	return true
}

// bootOn starts the virtual machine on a host, and its receiver.
func (g *simulatedGuest) bootOn(on *guestsHost) {
	g.move(on)
	g.start()
}

// move has the virtual machine run on a host, on none if that is nil.
func (g *simulatedGuest) move(on *guestsHost) {
	if g.on != nil {
		g.process.Exit()
		g.process.Reap(false)
	}
	if g.on = on; on == nil {
		return
	}
	g.process = on.life.StartVM(g.name, g.uuid, 0.5)
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
	g.may, g.before = [len(reportedKinds)][]guess{}, byReportedKind{}
	g.shown = g.shown[max(len(g.shown)-1, 0):]
	g.world.start()
	g.disturbed()
}

// blocked reports whether a fault keeps the last tree from being read, or may.
func (g *simulatedGuest) blocked() bool {
	return g.on == nil || len(g.lasting) > 0 || len(g.on.lasting) > 0
}

// disturbed notes that something may keep the last tree from being read now.
func (g *simulatedGuest) disturbed() { g.calm = time.Now() }

// collect makes a collection, and compares the energy with the trees that were there to be read.
func (g *simulatedGuest) collect() {
	g.sim.collect(g.world, g.lasting["guest: consumer refuses"] > 0)
	if g.run.s == nil || !g.inside.begun() {
		return
	}
	for class, energy := range g.inside.present() {
		kind, has := slices.Index(reportedKinds[:], class.Zone), int64(energy)
		if class.Method != power.Reported || has < g.before[kind] {
			g.sim.fail("%s: %v went from %d µJ to %d", g.name, class, g.before[kind], has)
		}
		g.before[kind] = has
		g.compare(kind, has)
	}
	for _, r := range g.inside.failed() {
		if r.Err != nil && strings.Contains(r.Err.Error(), "stale") {
			g.sim.fired["guest: saw stale energy"]++
		}
	}
	g.agree()
}

// compare finds which trees the receiver may have read last, if it has this energy of a zone kind.
// There must be one.
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
		g.sim.fail("%s has %d µJ of %s; by the reports of its host it is one of %d\nfrom %v, calm since %v, %v:\n%v", g.name, has, reportedKinds[kind], possible, g.may[kind], g.calm, g.lasting, g.shown)
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
	if !g.blocked() && time.Since(g.calm) > 30*time.Second && both(last) {
		for kind := range g.may {
			before := slices.Clone(g.may[kind])
			g.may[kind] = slices.DeleteFunc(g.may[kind], func(x guess) bool { return x.at < last })
			if len(g.may[kind]) == 0 {
				g.sim.fail("%s: the last tree was not read, from %v, calm since %v, %v, %v: %v\n%v", g.name, before, g.calm.Sub(bubbleStart), g.lasting, g.on.lasting, g.inside.failed(), g.shown)
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
		if g.run.s != nil {
			sim.stop(g.world)
		}
		g.close()
	}
	for _, h := range sim.hosts {
		if h.run.s != nil {
			h.shutDown()
		}
		h.close()
	}
}
