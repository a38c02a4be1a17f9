// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// input is a sensor that is used.
type input struct {
	*sensor
	is     *meaning
	number uint64 // in the label
	zone   power.Zone
	file   os.FileInfo // of a counter that is read with each collection, nil if it is not known
}

// assign returns the sensors that are used, of the kinds that are wanted, and notes those that could be named.
func (m *finder) assign(chips []*chip) []input {
	named := m.findNamed(chips)
	var known []input
	m.unused = m.unused[:0]
	for _, c := range chips {
		for _, s := range c.sensors {
			if slices.ContainsFunc(named, func(f input) bool { return f.sensor == s }) {
				continue
			}
			f, ok := m.meaningOf(s, chips)
			switch {
			case !ok:
				m.unused = append(m.unused, s.String())
			case f.is.kind != notUsed && !slices.ContainsFunc(known, f.repeats):
				known = append(known, f)
			}
		}
	}
	addParents(known)
	return slices.DeleteFunc(slices.Concat(named, m.preferred(known, named)), func(f input) bool { return !m.want(f.zone.Kind) })
}

// meaningOf returns what the table says of a sensor, and reports whether it says anything.
func (m *finder) meaningOf(s *sensor, chips []*chip) (input, bool) {
	is, number := m.find(s, chips)
	if is == nil {
		return input{}, false
	}
	if is.kind == notUsed {
		return input{sensor: s, is: is}, true
	}
	domain, counts := is.domain(m, s.chip, number)
	if !counts {
		return input{sensor: s, is: &meaning{}}, true
	}
	f := m.newInput(s, is, is.kind, domain)
	f.number = number
	return f, true
}

// repeats reports whether another sensor measures the same.
func (f *input) repeats(other input) bool {
	return f.chip == other.chip && f.is == other.is && f.zone.Domain == other.zone.Domain
}

// id returns the ID of the sensor's zone.
func (s *sensor) id() string { return s.chip.device + ":" + cmp.Or(s.label, s.name) }

// String returns the key of the sensor in the configuration.
func (s *sensor) String() string {
	return s.chip.driver + "/" + s.chip.device + "/" + cmp.Or(s.label, s.name)
}

func (m *finder) newInput(s *sensor, is *meaning, kind power.Kind, domain units.Domain) input {
	f := input{sensor: s, is: is, zone: power.Zone{
		ID: s.id(), Name: cmp.Or(s.label, s.chip.driver), Kind: kind,
		Method: power.Measured, Domain: domain, MaxWatts: power.MaxWatts(kind),
	}}
	if kind == power.GPU {
		m.describeCard(&f)
	}
	return f
}

// describeCard sets the name and the vendor of a graphics card, and the bound of its power. The
// name is that of the product where the driver has it (amdgpu of cards with an EEPROM for it), or
// else that of the driver: labels are "PPT" and "card".
func (m *finder) describeCard(f *input) {
	text := func(attribute string) string {
		text, err := m.readText(filepath.Join(f.chip.path, attribute))
		if err != nil {
			return ""
		}
		return text
	}
	f.zone.Name = cmp.Or(text("product_name"), f.chip.driver)
	f.zone.Vendor = vendors[text("vendor")]
	if _, ok := f.zone.Domain.PCIAddress(); ok {
		f.zone.MaxWatts = power.MaxCardWatts
	}
}

// vendors are the names of the vendors of graphics cards, by their PCI ID (include/linux/pci_ids.h).
var vendors = map[string]string{"0x1002": "AMD", "0x8086": "Intel", "0x10de": "NVIDIA"}

// addParents gives each sensor its parent, or the kind that it has where the parent has no sensor.
func addParents(known []input) {
	for i := range known {
		f := &known[i]
		if f.is.parent == "" {
			continue
		}
		label := strings.ReplaceAll(f.is.parent, "#", strconv.FormatUint(f.number, 10))
		parent := slices.IndexFunc(known, func(g input) bool { return g.is.driver == f.is.driver && g.label == label })
		if parent < 0 {
			f.zone.Kind = f.is.whole
		} else {
			f.zone.Parent = known[parent].zone.ID
		}
	}
}

// preferred returns the known sensors without those of kinds that the configuration names a sensor
// for, also while that one is not there, or that a driver measures that is listed first. A graphics
// card is a kind by itself, unless it is not known which card a named sensor measures: it may be
// any of them.
func (m *finder) preferred(known, named []input) []input {
	same := func(a, b *input) bool {
		return a.zone.Kind == b.zone.Kind && (a.zone.Kind != power.GPU || a.zone.Domain == b.zone.Domain)
	}
	anyCard := slices.ContainsFunc(named, func(f input) bool {
		_, located := f.zone.Domain.PCIAddress()
		return f.zone.Kind == power.GPU && !located
	})
	rank := func(f *input) int {
		return slices.IndexFunc(meanings, func(c meaning) bool { return c.driver == f.is.driver })
	}
	return slices.DeleteFunc(slices.Clone(known), func(f input) bool {
		return f.zone.Kind == power.GPU && anyCard ||
			f.zone.Kind != power.GPU && slices.ContainsFunc(m.named, func(n Sensor) bool { return n.Kind == f.zone.Kind }) ||
			slices.ContainsFunc(named, func(g input) bool { return same(&f, &g) }) ||
			slices.ContainsFunc(known, func(g input) bool { return same(&f, &g) && rank(&g) < rank(&f) })
	})
}

// findNamed returns the sensors that the configuration names, and notes which of them were never found.
func (m *finder) findNamed(chips []*chip) (found []input) {
	m.missing = nil
	for i := range m.named {
		n := &m.named[i]
		sensors := n.in(chips)
		var err error
		switch {
		case len(sensors) == 1:
			s := sensors[0]
			m.seen[i] = true
			f := m.newInput(s, &meaning{driver: s.chip.driver, every: time.Second}, n.Kind, n.domain(s.chip))
			if n.Kind != power.GPU {
				f.zone.MaxWatts = power.MaxPlatformWatts // it may measure all sockets together
			}
			found = append(found, f)
		case len(sensors) > 1:
			err = fmt.Errorf("meters::hwmon::sensors::%s: %d chips %q have a sensor %q: name the device, such as %q", n, len(sensors), n.Chip, n.Sensor, sensors[0].chip.device)
		case !m.seen[i]:
			err = fmt.Errorf("meters::hwmon::sensors::%s: there is no chip %q with a sensor %q", n, strings.TrimSpace(n.Chip+" "+n.Device), n.Sensor)
		}
		m.missing = cmp.Or(m.missing, err)
	}
	return found
}

// in returns the sensors that are named.
func (n *Sensor) in(chips []*chip) (found []*sensor) {
	for _, c := range chips {
		if c.driver != n.Chip || n.Device != "" && c.device != n.Device {
			continue
		}
		if i := slices.IndexFunc(c.sensors, func(s *sensor) bool { return s.name == n.Sensor || s.label == n.Sensor }); i >= 0 {
			found = append(found, c.sensors[i])
		}
	}
	return found
}

func (n *Sensor) domain(c *chip) units.Domain {
	if n.Kind == power.GPU {
		return units.Domain("gpu-" + c.device)
	}
	return units.NodeCPUs
}
