// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// cardZone is a zone of a graphics card, and what was ever read of it.
type cardZone struct {
	id           string
	meter, card  int
	located      bool
	listed, read bool // ever
	shown, good  bool // now
}

// cards is a machine whose graphics cards several meters list, some without PCI addresses.
type cards []*cardZone

// newCards returns the zones of up to 4 meters of up to 6 cards. No meter has a card twice.
func newCards(rng *rand.Rand) (c cards, meters string) {
	for meter := range 1 + rng.IntN(4) {
		meters += fmt.Sprint(meter, " ")
		unlocated := rng.IntN(4) // 0: all, 1: some
		for card := range 6 {
			z := &cardZone{meter: meter, card: card, located: unlocated > 1 || unlocated == 1 && rng.IntN(2) > 0}
			z.id = fmt.Sprintf("%d:gpu@%d", meter, card)
			if !z.located {
				z.id = fmt.Sprintf("%d:gpu@a%d", meter, card)
			}
			if rng.IntN(2) == 0 {
				c = append(c, z)
			}
		}
	}
	return c, meters
}

// disturb makes zones appear, fail and vanish, and returns the zones that are present.
func (c cards) disturb(rng *rand.Rand) (shows string) {
	for _, z := range c {
		z.shown = rng.IntN(4) > 0
		z.good = z.shown && rng.IntN(3) > 0
		z.listed, z.read = z.listed || z.shown, z.read || z.good
		if z.shown {
			shows += " " + z.id
		}
		if z.shown && !z.good {
			shows += "!"
		}
	}
	return shows
}

const noCards = 9

// first returns the first meter with a zone for which is returns true, or noCards.
func (c cards) first(is func(*cardZone) bool) int {
	best := noCards
	for _, z := range c {
		if is(z) {
			best = min(best, z.meter)
		}
	}
	return best
}

// expected returns the zones to report, by the rule in its own words.
func (c cards) expected() (zones []*cardZone) {
	all := c.first(func(z *cardZone) bool { return z.read })
	undivided := c.first(func(z *cardZone) bool { return z.meter == all && z.read && !z.located }) == all
	for _, z := range c {
		same := func(o *cardZone) bool { return !z.located || o.located && o.card == z.card }
		by := c.first(func(o *cardZone) bool { return o.read && same(o) })
		if by == noCards {
			by = c.first(func(o *cardZone) bool { return o.listed && same(o) })
		}
		if z.shown && by == z.meter && (!z.located || !undivided || z.meter <= all) {
			zones = append(zones, z)
		}
	}
	return zones
}

// No card is ever reported by two meters that have both read it, and what is reported follows the rule.
func TestNoCardIsEverCountedTwice(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 400
	}
	several := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		c, meters := newCards(rng)
		s := newScene(t, meters)
		for range 30 {
			s.shows(c.disturb(rng))
			by, used := map[int]int{}, map[int]bool{}
			var want []string
			for _, z := range c.expected() {
				want = append(want, z.id)
				if other, ok := by[z.card]; z.good && ok && other != z.meter {
					t.Fatalf("machine %d: meters %d and %d read card %d", seed, other, z.meter, z.card)
				} else if z.good {
					by[z.card], used[z.meter] = z.meter, true
				}
			}
			if got := idsOf(s.Read(context.Background(), Sample{})); got != strings.Join(want, " ") {
				t.Fatalf("machine %d: %s, want %v", seed, got, want)
			}
			if len(used) > 1 {
				several++
			}
		}
	}
	if several == 0 {
		t.Error("the cards always had one meter")
	}
}
