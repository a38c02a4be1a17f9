// SPDX-License-Identifier: Apache-2.0

package power

import (
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// chooser selects the meter that each zone kind is read from, because two meters of the same thing
// must never be added up. The meters are in order of preference:
//
//	meter that has ever read a zone of the kind    zones of the kind that are used
//	none                                           those of the first sensor that lists one, with their errors
//	one or several                                 those of the first of them, also while it fails
//
// So a meter loses the kind once a preferred meter reads it, and does not get it back if that meter
// fails: the zones of a failing sensor wait until it can be read. Other kinds are not affected.
//
// Graphics cards are chosen one by one, by the same table, because each kind of card has a meter of
// its own. The PCI address in a zone's domain identifies the card. A zone of kind GPU without a PCI
// address may belong to any card, so it is never used beside the cards of another meter:
//
//	the first meter that has ever read a zone of kind GPU    zones of kind GPU that are used
//	has read one without a PCI address                       only that meter's
//	has read only cards with a PCI address                   for each card those of the first meter that has ever read it
//
// A stand-in (a model) gives a kind up for good if it would model a part beside the whole:
//
//	the whole machine (platform or psys) is measured or reported, and    package      dram
//	no sensor lists the kind                                             given up     given up
//	a sensor lists it and has never read it                              stands in    given up
//
// The energy that is not modeled is in the zone other. DRAM is given up as well if a sensor has read
// the packages and none lists DRAM, unless the stand-in completes sensors.
type chooser struct {
	meters  []Status
	choices []choice // of the kinds, by the index in Kinds, and of all cards with a PCI address
}

// choice is the meter that a zone kind or a graphics card is read from. Meters are given by their index.
type choice struct {
	card   units.Domain // empty for a kind
	read   int          // the first meter that has ever read a zone of the kind, or of the card
	listed int          // the first sensor that has ever listed one, whether or not it could be read
	gaveUp bool         // stand-ins are no longer used, because a kind that contains this one is measured
}

const noMeter = math.MaxInt

func newChooser(meters []Status) chooser {
	c := chooser{meters: meters, choices: make([]choice, len(Kinds))}
	for i := range c.choices {
		c.choices[i] = choice{read: noMeter, listed: noMeter}
	}
	return c
}

func (c *chooser) kind(k Kind) *choice { return &c.choices[slices.Index(Kinds, k)] }

// card returns the choice of the graphics card of a zone, nil if the zone has no PCI address.
func (c *chooser) card(z *Zone) *choice {
	if _, located := z.Domain.PCIAddress(); !located || z.Kind != GPU {
		return nil
	}
	i := slices.IndexFunc(c.choices, func(c choice) bool { return c.card == z.Domain })
	if i < 0 {
		i = len(c.choices)
		c.choices = append(c.choices, choice{card: z.Domain, read: noMeter, listed: noMeter})
	}
	return &c.choices[i]
}

// choose gives the kind of a zone to its meter if no preferred meter has read the kind, and a
// graphics card alike.
func (c *chooser) choose(meter int, r *Reading) {
	m, kind := &c.meters[meter], c.kind(r.Zone.Kind)
	if m.StandsIn {
		if kind.gaveUp = kind.gaveUp || c.isUnneeded(m, r.Zone.Kind); kind.gaveUp {
			kind.drop(meter)
			return
		}
	}
	taken := kind.take(m, meter, r)
	if card := c.card(r.Zone); card != nil {
		taken = card.take(m, meter, r) && meter <= c.readsAllCards()
	} else if r.Zone.Kind == GPU {
		m.unlocated = m.unlocated || r.Err == nil
	}
	if taken && !slices.Contains(m.Took, r.Zone.Kind) {
		m.Took = append(m.Took, r.Zone.Kind)
	}
}

// isUnneeded reports whether a stand-in must not report a kind. A package that a sensor only lists is
// still modeled: without it nothing but the whole machine could be attributed.
func (c *chooser) isUnneeded(m *Status, k Kind) bool {
	listed := c.kind(k).listed != noMeter
	if whole := c.measures(PSys) || c.measures(Platform); whole && isPart(k, PSys) && !(k == Package && listed) {
		return true
	}
	return k == DRAM && !m.Completes && !listed && c.measures(Package)
}

// measures reports whether a sensor has read a kind.
func (c *chooser) measures(k Kind) bool {
	read := c.kind(k).read
	return read != noMeter && !c.meters[read].StandsIn
}

// take gives the choice to a meter that has read a zone, if no preferred meter has. It reports whether the meter is
// another than before.
func (c *choice) take(m *Status, meter int, r *Reading) bool {
	if !m.StandsIn {
		c.listed = min(c.listed, meter)
	}
	if r.Err != nil || c.read <= meter {
		return false
	}
	c.read = meter
	return true
}

// drop takes the choice from a meter.
func (c *choice) drop(meter int) {
	if c.read == meter {
		c.read = noMeter
	}
	if c.listed == meter {
		c.listed = noMeter
	}
}

// replace takes all choices from a meter.
func (c *chooser) replace(meter int) {
	c.meters[meter].Replaced = true
	for i := range c.choices {
		c.choices[i].drop(meter)
	}
}

// lead uses a meter instead of the others of its family. The preferred ones are still read, because
// they lead once they can read a zone.
func (c *chooser) lead(meter int) {
	for i := range c.meters {
		if i != meter && c.meters[i].Family == c.meters[meter].Family {
			c.replace(i)
		}
	}
	c.meters[meter].Replaced = false
}

// readsAllCards returns the meter beside which no less preferred meter's graphics cards are used,
// because it has read one without a PCI address, or noMeter.
func (c *chooser) readsAllCards() int {
	if first := c.kind(GPU).read; first != noMeter && c.meters[first].unlocated {
		return first
	}
	return noMeter
}

// isSuperseded reports whether preferred meters have read everything that the meter can have, because
// they are of its family or its zones are all of one kind.
func (c *chooser) isSuperseded(meter int) bool {
	m := &c.meters[meter]
	leads := func(o Status) bool { return o.Family == m.Family && !o.Replaced }
	switch {
	case m.Family != "" && m.Replaced && slices.ContainsFunc(c.meters[:meter], leads):
		return true
	case m.Only == GPU:
		return c.readsAllCards() < meter
	}
	return m.Only != "" && c.kind(m.Only).read < meter
}

// isInUse reports whether the meter has read zones that are used.
func (c *chooser) isInUse(meter int) bool {
	return slices.ContainsFunc(c.choices, func(of choice) bool {
		return of.read == meter && (of.card == "" || meter <= c.readsAllCards())
	})
}

// uses reports whether the readings of a meter's zone are used, and whether they would be if the zone could be read.
func (c *chooser) uses(meter int, z *Zone) (used, wanted bool) {
	of := c.card(z)
	switch {
	case of == nil:
		of = c.kind(z.Kind)
	case c.readsAllCards() < meter:
		return false, false
	}
	return of.read == meter || of.read == noMeter && of.listed == meter, of.read >= meter
}
