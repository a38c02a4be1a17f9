// SPDX-License-Identifier: Apache-2.0

package power

import (
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// chooser selects one meter for each zone kind, because the energy that two meters measure for the
// same hardware must never be added up. The meters are in order of preference:
//
//	meters that have ever read a zone of the kind    zones of the kind that are used
//	no meter                                         zones of the first sensor that lists any, with their errors
//	one or several meters                            zones of the first of these meters, even while it fails
//
// If a preferred meter reads a kind, it replaces the current meter. It is not replaced again if it
// fails: its zones have an error until they can be read. Other kinds are not affected.
//
// For graphics cards, the meter of each card is selected by the same table, because different cards
// need different meters. The PCI address in the domain of a zone identifies the card. A zone of
// kind GPU without a PCI address may belong to any card, so it is never used together with the
// cards of another meter:
//
//	the first meter that has ever read a zone of kind GPU    zones of kind GPU that are used
//	has read a zone without a PCI address                    only the zones of this meter
//	has read only cards with a PCI address                   for each card, the zones of the first meter that has ever read it
//
// A stand-in is a model. It permanently stops modeling a part of the machine if the whole machine
// is measured:
//
//	the whole machine (platform or psys) is measured or reported    package        dram
//	no sensor lists the kind                                        not modeled    not modeled
//	a sensor lists the kind and has never read it                   modeled        not modeled
//
// The energy that is not modeled is in the zone other. DRAM is also not modeled if a sensor has
// read the packages and no sensor lists DRAM, unless the stand-in completes sensors.
type chooser struct {
	meters  []Status
	choices []choice // one per kind, in the order of Kinds, then one per card with a PCI address
}

// choice is the selected meter of a zone kind or graphics card. Meters are identified by their
// index.
type choice struct {
	card   units.Domain // the graphics card, or empty for a kind
	read   int          // the first meter that has ever read a zone of the kind or card, or noMeter
	listed int          // the first sensor that has ever listed such a zone, readable or not, or noMeter
	gaveUp bool         // stand-ins are no longer used, because a kind that contains this kind is measured
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

// card returns the choice for the graphics card of a zone, or nil if the zone has no PCI address.
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

// choose selects the meter for the kind and the graphics card of a zone that the meter has read, if
// no preferred meter has read them.
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

// isUnneeded reports whether a stand-in must not report a kind. A package that a sensor lists but
// cannot read is still modeled. Otherwise only the whole machine could be attributed.
func (c *chooser) isUnneeded(m *Status, k Kind) bool {
	listed := c.kind(k).listed != noMeter
	if whole := c.measures(PSys) || c.measures(Platform); whole && isPart(k, PSys) && (k != Package || !listed) {
		return true
	}
	return k == DRAM && !m.Completes && !listed && c.measures(Package)
}

// measures reports whether a sensor has read a kind.
func (c *chooser) measures(k Kind) bool {
	read := c.kind(k).read
	return read != noMeter && !c.meters[read].StandsIn
}

// take selects a meter that has read a zone, unless a preferred meter has already read it. It
// reports whether the selected meter changed.
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

// drop removes a meter from the choice.
func (c *choice) drop(meter int) {
	if c.read == meter {
		c.read = noMeter
	}
	if c.listed == meter {
		c.listed = noMeter
	}
}

// replace marks a meter as replaced and removes it from all choices.
func (c *chooser) replace(meter int) {
	c.meters[meter].Replaced = true
	for i := range c.choices {
		c.choices[i].drop(meter)
	}
}

// lead selects a meter and replaces the other meters of its family. The Set still reads preferred
// meters of the family, because such a meter leads as soon as it can read a zone.
func (c *chooser) lead(meter int) {
	for i := range c.meters {
		if i != meter && c.meters[i].Family == c.meters[meter].Family {
			c.replace(i)
		}
	}
	c.meters[meter].Replaced = false
}

// readsAllCards returns the meter that reads all graphics cards, or noMeter. It is the first meter
// that has read cards, if it has read a card without a PCI address. The cards of less preferred
// meters are then not used.
func (c *chooser) readsAllCards() int {
	if first := c.kind(GPU).read; first != noMeter && c.meters[first].unlocated {
		return first
	}
	return noMeter
}

// isSuperseded reports whether preferred meters have read all zones that the meter can have. The
// reason is a leading meter of the same family, or that all zones of the meter have one kind.
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

// uses reports whether the readings of a zone of a meter are used, and whether they would be used
// if the zone could be read.
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
