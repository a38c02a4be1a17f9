// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// simulation is a host whose machines come and go, and what they were attributed.
type simulation struct {
	*publishing
	*rand.Rand
	machines map[string]*simulated // by ID
	// attributed is the energy attributed to each machine until a time, package and dram, by ID and
	// update time.
	attributed map[string]map[int64][2]uint64
	plants     []string // obstacles that were planted
	seen       map[string]sighting
	epochs     map[string]bool // that a directory had, by its name and the epoch
	late       int             // collections in which the memory's meter has not answered yet
}

// simulated is a machine, and its account in the engine.
type simulated struct {
	VM
	total [2]uint64 // over all accounts
	only  bool      // it has had one directory, and no other machine had that directory
}

// sighting is the last observation of a tree by a reader in an epoch.
type sighting struct {
	generation uint64
	base       [2]uint64 // the excess of the tree over the energy attributed to the machine
	energy     [2]uint64
	id, dir    string
	away       bool // the machine had another directory or none since
}

var treeHistories = flag.Int("trees.histories", 5, "histories of TestSimulationOfTrees")

func TestSimulationOfTrees(t *testing.T) {
	for seed := range *treeHistories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			published(t, func(p *publishing) { simulate(p, uint64(seed)) })
		})
	}
}

func simulate(p *publishing, seed uint64) {
	s := &simulation{
		publishing: p, Rand: rand.New(rand.NewPCG(seed, 0)), machines: map[string]*simulated{},
		attributed: map[string]map[int64][2]uint64{}, seen: map[string]sighting{}, epochs: map[string]bool{},
	}
	for range 150 {
		s.step()
	}
	s.heal()
	ids := s.publishAll()
	for _, id := range ids {
		s.endsWithAll(id)
	}
}

// step lets something happen, and publishes.
func (s *simulation) step() {
	switch s.IntN(12) {
	case 0, 1:
		id := fmt.Sprintf("%d", s.IntN(8))
		if s.machines[id] == nil {
			s.machines[id] = &simulated{VM: VM{ID: id}, only: true}
		}
		if m := s.machines[id]; m.Zones == nil { // it starts
			m.Start, m.Zones = s.at, zones(power.Package, 0, power.DRAM, 0)
			if name := fmt.Sprintf("vm%d", s.IntN(10)); m.Name != name && s.IntN(3) == 0 {
				m.only = m.Name == "" && m.total == [2]uint64{} && m.only
				m.Name = name
			}
		}
	case 2:
		s.stopOne()
	case 3:
		for _, m := range s.all() {
			if m.Zones != nil { // the series of one begin anew
				m.Start, m.Zones = s.at, zones(power.Package, 0, power.DRAM, 0)
				break
			}
		}
	case 4:
		s.heal()
		s.restart()
		s.late = max(0, s.IntN(12)-6)
		for _, m := range s.all() {
			if m.Zones != nil {
				m.Start, m.Zones = s.at, zones(power.Package, 0, power.DRAM, 0)
			}
		}
	case 5:
		s.plant()
	case 6:
		s.heal()
	case 7:
		s.heal()
		s.publishAll()
		time.Sleep(keepStopped / 3)
	}
	s.publishAll()
	s.readAll()
}

// all yields all machines, in an order that the seed decides.
func (s *simulation) all() iter.Seq2[string, *simulated] {
	ids := slices.Sorted(maps.Keys(s.machines))
	s.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return func(yield func(string, *simulated) bool) {
		for _, id := range ids {
			if !yield(id, s.machines[id]) {
				return
			}
		}
	}
}

// stopOne ends a machine, with what it was attributed last.
func (s *simulation) stopOne() {
	for id, m := range s.all() {
		if m.Zones == nil {
			continue
		}
		s.use(m)
		last := m.VM
		last.Ended, last.Zones = true, last.Zones[:s.told()]
		at := s.at.Add(10 * time.Second)
		s.note(id, at)
		s.publish(append(s.running(id), last)...)
		m.Zones = nil
		return
	}
}

// told returns the number of exported zones: package, and dram once its meter has answered.
func (s *simulation) told() int {
	if s.late > 0 {
		return 1
	}
	return 2
}

// use attributes energy to a machine.
func (s *simulation) use(m *simulated) {
	for i := range m.Zones[:s.told()] {
		energy := s.Uint64N(1000)
		m.Zones[i].Energy += units.Energy(energy)
		m.total[i] += energy
	}
}

func (s *simulation) note(id string, at time.Time) {
	if s.attributed[id] == nil {
		s.attributed[id] = map[int64][2]uint64{}
	}
	s.attributed[id][at.UnixNano()] = s.machines[id].total
}

// running returns the machines that run but one.
func (s *simulation) running(but string) (vms []VM) {
	for id, m := range s.all() {
		if m.Zones != nil && id != but {
			vm := m.VM
			vm.Zones = vm.Zones[:s.told()]
			vms = append(vms, vm)
			s.note(id, s.at.Add(10*time.Second))
		}
	}
	return vms
}

// publishAll publishes all running machines, some of which used energy, and returns the machines
// that have a tree.
func (s *simulation) publishAll() (told []string) {
	for _, m := range s.all() {
		if m.Zones != nil && s.IntN(4) > 0 {
			s.use(m)
		}
	}
	s.publish(s.running("")...)
	s.late = max(0, s.late-1)
	for key, sight := range s.seen {
		if m := s.Publisher.machines[sight.id]; m != nil && m.dir != sight.dir {
			sight.away = true
			s.seen[key] = sight
		}
	}
	for id, m := range s.all() {
		if m.Zones != nil && s.Publisher.machines[id].dir != "" {
			told = append(told, id)
		}
	}
	return told
}

// plant puts something into the way of a write, so that it fails in the middle.
func (s *simulation) plant() {
	trees, _ := os.ReadDir(s.dir)
	if len(trees) == 0 {
		return
	}
	files := []string{"", "", reportFile, newFile, "intel-rapl:0/energy_uj", dramFile}
	dir := filepath.Join(s.dir, trees[s.IntN(len(trees))].Name())
	at := filepath.Join(dir, files[s.IntN(len(files))])
	if slices.Contains(s.plants, at) || slices.Contains(s.plants, dir) || strings.HasSuffix(dir, ".") {
		return
	}
	if _, err := os.Lstat(at); err == nil { // what is there is kept: a tree that is damaged begins another epoch
		require.NoError(s.t, os.Rename(at, at+"."))
	}
	if at == dir { // as if the disk was gone
		require.NoError(s.t, os.WriteFile(dir, nil, 0o600))
	} else {
		require.NoError(s.t, os.MkdirAll(filepath.Join(at, "x"), 0o700))
	}
	s.plants = append(s.plants, at)
}

// heal removes what is in the way.
func (s *simulation) heal() {
	for i := range s.plants {
		at := s.plants[len(s.plants)-1-i]
		require.NoError(s.t, os.RemoveAll(at))
		if _, err := os.Lstat(at + "."); err == nil {
			require.NoError(s.t, os.Rename(at+".", at))
		}
	}
	s.plants = nil
}

// readAll reads all trees as a virtual machine does.
func (s *simulation) readAll() {
	trees, _ := os.ReadDir(s.dir)
	for _, tree := range trees {
		s.read(tree.Name())
	}
}

// read checks that a report shows the energy that its machine was attributed until its time, and that no total goes down.
func (s *simulation) read(dir string) {
	r, err := (&reader{path: filepath.Join(s.dir, dir)}).read()
	if err != nil {
		return // there is an obstacle
	}
	key := dir + " " + r.Epoch
	s.epochs[key] = true
	if len(r.Zones) < 2 {
		return // a zone is late
	}
	attributed, ok := s.attributed[r.ID][r.Time.UnixNano()]
	require.Truef(s.t, ok, "%s: %s was attributed no energy then", dir, r.ID)
	var energy, base [2]uint64
	for i := range energy {
		energy[i] = uint64(r.Zones[i].Energy)
		base[i] = energy[i] - attributed[i]
	}
	before, ok := s.seen[key]
	if !ok {
		before = sighting{generation: r.Generation, base: base, energy: energy}
	}
	for i := range base {
		require.LessOrEqualf(s.t, int64(base[i]), int64(before.base[i]), "%s: energy is shown twice", dir)
		if !before.away {
			require.Equalf(s.t, before.base[i], base[i], "%s: energy is lost", dir)
		}
		require.GreaterOrEqual(s.t, energy[i], before.energy[i])
	}
	require.GreaterOrEqual(s.t, r.Generation, before.generation)
	s.seen[key] = sighting{r.Generation, base, energy, r.ID, dir, before.away && r.Generation == before.generation}
}

// endsWithAll checks that the tree of an exported machine shows all energy attributed to the
// machine, if it always had that tree.
func (s *simulation) endsWithAll(id string) {
	dir := s.Publisher.machines[id].dir
	s.read(dir)
	r := s.report(dir)
	require.Equal(s.t, id, r.ID)
	require.Equal(s.t, s.at.UnixNano(), r.Time.UnixNano(), "%s is up to date", dir)
	counter, err := os.ReadFile(filepath.Join(s.dir, dir, "intel-rapl:0/energy_uj"))
	require.NoError(s.t, err)
	energy := r.Zones[indexOf(r.Zones, power.Package)].Energy
	require.Equal(s.t, fmt.Sprintln(uint64(energy)), string(counter))
	epochs := 0 // more than one if there was an obstacle when the tree was read, or a zone was late twice
	for key := range s.epochs {
		if strings.HasPrefix(key, dir+" ") {
			epochs++
		}
	}
	if m := s.machines[id]; m.only && m.Name == "" && epochs == 1 {
		require.Equal(s.t, units.Energy(m.total[0]), energy)
	}
}
