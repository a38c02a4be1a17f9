// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// hasCards gives the meter readable zones of graphics cards: "3" is the card at the PCI address
// 0000:03:00.0, "a3" one whose address the meter does not know.
func (f *fake) hasCards(id string, cards ...string) *fake {
	for _, c := range cards {
		domain := units.GPU("0000:0" + c + ":00.0")
		if strings.HasPrefix(c, "a") {
			domain = units.GPU("accel" + c)
		}
		f.readings = append(f.readings, Reading{Zone: &Zone{ID: id + ":" + c, Kind: GPU, Domain: domain}})
	}
	return f
}

func TestAMeterOfCardsIsClosedOnlyOnceNoCardCanBeIts(t *testing.T) {
	described, library, sensors := new(fake).hasCards("http", "1"), new(fake).hasCards("lib", "2"), new(fake).hasCards("hwmon", "3")
	s := NewSet(Member{Name: "http", Meter: described}, Member{Name: "gpu", Meter: library, Only: GPU}, Member{Name: "hwmon", Meter: sensors})
	for range 3 {
		expectZones(t, s, "http:1", "lib:2", "hwmon:3")
	}
	for i, st := range s.Status() {
		if st.Replaced || !st.InUse {
			t.Errorf("meter %d: replaced %t, in use %t", i, st.Replaced, st.InUse)
		}
	}
	described.hasCards("http", "a2")
	expectZones(t, s, "http:1", "http:a2")
	expectZones(t, s, "http:1", "http:a2")
	s.closing.Wait()
	if library.closed != 1 || sensors.closed != 0 || library.reads != 3 {
		t.Errorf("the library was closed %d times after %d reads, the sensors %d times", library.closed, library.reads, sensors.closed)
	}
	for i, want := range []bool{true, false, false} {
		assert.Equal(t, want, s.Status()[i].InUse, i)
	}
}

func TestAMeterTakesTheKindOfItsCardsOnce(t *testing.T) {
	library, sensors := new(fake).hasCards("lib", "1", "2"), new(fake).hasCards("hwmon", "2", "3")
	s := setOf(library, sensors, new(fake))
	expectZones(t, s, "lib:1", "lib:2", "hwmon:3")
	expectTook(t, s, []Kind{GPU}, []Kind{GPU}, nil)
	expectZones(t, s, "lib:1", "lib:2", "hwmon:3")
	expectTook(t, s, nil, nil, nil)
	sensors.hasCards("hwmon", "4")
	expectZones(t, s, "lib:1", "lib:2", "hwmon:3", "hwmon:4")
	expectTook(t, s, nil, []Kind{GPU}, nil)
	sensors.hasCards("hwmon", "1") // the library's
	expectZones(t, s, "lib:1", "lib:2", "hwmon:3", "hwmon:4")
	expectTook(t, s, nil, nil, nil)
}

func TestCardsOfAnotherMeterTakeNoOtherKind(t *testing.T) {
	library, sensors := new(fake).hasCards("lib", "1"), new(fake).hasCards("cray", "a0").has("cray", Platform, Package)
	s := setOf(library, sensors, new(fake).has("model", DRAM))
	expectZones(t, s, "lib:1", "cray:platform", "cray:package")
}

func TestReadingASetOfCardsAllocatesNothing(t *testing.T) {
	library, sensors := new(fake), new(fake)
	for i := range 9 {
		library.hasCards("lib", fmt.Sprint(i))
		sensors.hasCards("hwmon", fmt.Sprint(i))
	}
	s := setOf(library, sensors, new(fake))
	s.Read(context.Background(), Sample{})
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.Read(context.Background(), Sample{}) }))
}

// machine is a machine whose cards several meters list, some without their addresses, and with what
// was ever read of them.
type machine struct {
	meters []*fake
	of     map[*Zone]int  // the card that a zone is of
	read   map[*Zone]bool // zones that were ever read
	listed map[*Zone]bool
	owner  map[*Zone]int // the meter of a zone
}

// newMachine returns a machine with up to 4 meters of up to 6 cards. No meter has a card twice.
func newMachine(rng *rand.Rand) *machine {
	m := &machine{of: map[*Zone]int{}, read: map[*Zone]bool{}, listed: map[*Zone]bool{}, owner: map[*Zone]int{}}
	for i := range 1 + rng.IntN(4) {
		f := new(fake)
		unlocated := rng.IntN(4) // 0: all, 1: some
		for card := range 6 {
			switch {
			case rng.IntN(2) == 0:
				continue
			case unlocated == 0 || unlocated == 1 && rng.IntN(2) == 0:
				f.hasCards(fmt.Sprint(i), fmt.Sprint("a", rng.IntN(1000)))
			default:
				f.hasCards(fmt.Sprint(i), fmt.Sprint(card))
			}
			z := f.readings[len(f.readings)-1].Zone
			m.of[z], m.owner[z] = card, i
		}
		m.meters = append(m.meters, f)
	}
	return m
}

// expected returns the zones of the last read that are to be reported, by the rule in its own words.
func (m *machine) expected() (zones []*Zone) {
	isLocated := func(z *Zone) bool { _, ok := z.Domain.PCIAddress(); return ok }
	first := func(is map[*Zone]bool, of func(*Zone) bool) int {
		best := len(m.meters)
		for z := range is {
			if of(z) {
				best = min(best, m.owner[z])
			}
		}
		return best
	}
	anything := func(*Zone) bool { return true }
	all := first(m.read, anything)
	undivided := first(m.read, func(z *Zone) bool { return !isLocated(z) && m.owner[z] == all }) == all && all < len(m.meters)
	for i, f := range m.meters {
		for k := range f.readings {
			z := f.readings[k].Zone
			same := anything
			if isLocated(z) {
				if undivided && i > all {
					continue
				}
				same = func(other *Zone) bool { return other.Domain == z.Domain }
			}
			by := first(m.read, same)
			if by == len(m.meters) {
				by = first(m.listed, same)
			}
			if by == i {
				zones = append(zones, z)
			}
		}
	}
	return zones
}

// Meters appear, fail and vanish. No card is ever reported by two meters that have both read it,
// and what is reported follows the rule.
func TestNoCardIsEverCountedTwice(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 400
	}
	counted, several := 0, 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		m := newMachine(rng)
		members := make([]Member, len(m.meters))
		for i := range m.meters {
			members[i] = Member{Name: fmt.Sprint(i), Meter: m.meters[i]}
		}
		s := NewSet(members...)
		hidden := make([][]Reading, len(m.meters))
		for range 30 {
			for i, f := range m.meters {
				f.readings, hidden[i] = slices.Concat(f.readings, hidden[i]), nil
				f.readings = slices.DeleteFunc(f.readings, func(r Reading) bool {
					hides := rng.IntN(4) == 0
					if hides {
						hidden[i] = append(hidden[i], r)
					}
					return hides
				})
				for k := range f.readings {
					r := &f.readings[k]
					r.Err = nil
					if rng.IntN(3) == 0 {
						r.Err = errUnreadable
					}
					m.listed[r.Zone] = true
					m.read[r.Zone] = m.read[r.Zone] || r.Err == nil
				}
			}
			for z, read := range m.read {
				if !read {
					delete(m.read, z)
				}
			}
			var got []*Zone
			by := map[int]int{}
			meters := map[int]bool{}
			for _, r := range s.Read(context.Background(), Sample{}) {
				got = append(got, r.Zone)
				if r.Err != nil {
					continue
				}
				card := m.of[r.Zone]
				if other, ok := by[card]; ok && other != m.owner[r.Zone] {
					t.Fatalf("machine %d: card %d is reported by meters %d and %d", seed, card, other, m.owner[r.Zone])
				}
				by[card], meters[m.owner[r.Zone]] = m.owner[r.Zone], true
			}
			counted += len(by)
			if len(meters) > 1 {
				several++
			}
			if want := m.expected(); !slices.Equal(got, want) {
				t.Fatalf("machine %d: %v, want %v", seed, ids(got), ids(want))
			}
		}
	}
	if several == 0 {
		t.Error("the cards always had one meter")
	}
	t.Logf("%d readings of cards, %d times of several meters", counted, several)
}

func ids(zones []*Zone) (ids []string) {
	for _, z := range zones {
		ids = append(ids, z.ID)
	}
	return ids
}
