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

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// input is a sensor that is used.
type input struct {
	*sensor
	is     *meaning
	number uint64 // number in the label
	zone   *power.Zone

	// The following fields are used by the source that reads the input.
	files   []kernfs.File // one file, or two files (voltage and current) whose product is the power
	period  time.Duration // time over which a power is averaged; 0 if the driver does not report it
	last    power.Shown   // the last reading; zero if the last read failed
	failure error         // the reason why the file of a fast input is closed
}

// fast reports whether the sensor is read with each collection.
func (in *input) fast() bool { return in.isEnergy() && in.is.every == 0 }

// averages reports whether the average is read.
func (in *input) averages() bool { return in.average && (!in.input || !in.is.instant) }

// assign sets the inputs of the wanted kinds, and the list of unused sensors, which the
// configuration can name. If several sensors have the same ID, only the first is used.
func (m *finder) assign(to *found) {
	named := m.findNamed(to)
	var known []*input
	for _, c := range to.chips {
		for _, s := range c.sensors {
			if slices.ContainsFunc(named, func(f *input) bool { return f.sensor == s }) {
				continue
			}
			f, isKnown := m.meaningOf(s, to.chips)
			switch {
			case !isKnown:
				to.unused = append(to.unused, s.String())
			case f != nil && !slices.ContainsFunc(known, f.repeats):
				known = append(known, f)
			}
		}
	}
	addParents(known)
	for _, f := range slices.Concat(named, m.preferred(known, named)) {
		if m.want(f.zone.Kind) && !slices.ContainsFunc(to.inputs, func(g *input) bool { return g.zone.ID == f.zone.ID }) {
			f.prepare()
			to.inputs = append(to.inputs, f)
		}
	}
}

// prepare sets the files of an input. It opens the files of a fast input, because a search may wait
// for a directory that a user blocks, but a collection may not.
func (in *input) prepare() {
	path := func(name string) kernfs.File { return kernfs.File{Path: filepath.Join(in.chip.dir, name)} }
	switch {
	case in.averages():
		in.files = []kernfs.File{path(in.name + "_average")}
	case in.input:
		in.files = []kernfs.File{path(in.name + "_input")}
	default:
		in.files = []kernfs.File{path("in" + in.digits() + "_input"), path("curr" + in.digits() + "_input")}
	}
	if in.fast() {
		var file *os.File
		if file, in.failure = in.files[0].OpenPath(); in.failure == nil {
			in.files[0].Use(file)
		}
	}
}

// meaningOf returns the input of a sensor, or nil if the sensor is not used. It also reports
// whether the table of drivers contains the sensor.
func (m *finder) meaningOf(s *sensor, chips []*chip) (f *input, isKnown bool) {
	is, number := m.find(s, chips)
	if is == nil || is.kind == notUsed {
		return nil, is != nil
	}
	if domain, counts := is.domain(m, s.chip, number); counts {
		f = m.newInput(s, is, is.kind, domain)
		f.number = number
	}
	return f, true
}

// repeats reports whether another input measures the same hardware.
func (in *input) repeats(other *input) bool {
	return in.chip == other.chip && in.is == other.is && in.zone.Domain == other.zone.Domain
}

// id returns the ID of the sensor's zone.
func (s *sensor) id() string { return s.chip.device + ":" + cmp.Or(s.label, s.name) }

// String returns the key of the sensor in the configuration.
func (s *sensor) String() string {
	return s.chip.driver + "/" + s.chip.device + "/" + cmp.Or(s.label, s.name)
}

func (m *finder) newInput(s *sensor, is *meaning, kind power.Kind, domain units.Domain) *input {
	f := &input{sensor: s, is: is, zone: &power.Zone{
		ID: s.id(), Name: cmp.Or(s.label, s.chip.driver), Kind: kind,
		Method: power.Measured, Domain: domain, MaxWatts: power.MaxWatts(kind),
	}}
	if kind == power.GPU {
		m.describeCard(f)
	}
	return f
}

// describeCard sets the name, the vendor and the maximum power of a graphics card. The name is the
// product name if the driver reports it (amdgpu for cards with an EEPROM), and otherwise the name
// of the driver. Labels such as "PPT" and "card" are not suitable as names.
func (m *finder) describeCard(f *input) {
	f.zone.Name = cmp.Or(m.text(f.chip.path, "product_name"), f.chip.driver)
	f.zone.Vendor = vendors[m.text(f.chip.path, "vendor")]
	if _, ok := f.zone.Domain.PCIAddress(); ok {
		f.zone.MaxWatts = power.MaxCardWatts
	}
}

// vendors are the names of the vendors of graphics cards, by their PCI ID
// (include/linux/pci_ids.h).
var vendors = map[string]string{"0x1002": "AMD", "0x8086": "Intel", "0x10de": "NVIDIA"}

// addParents sets the parent of each input. An input whose parent has no sensor gets the kind
// whole.
func addParents(known []*input) {
	for _, f := range known {
		if f.is.parent == "" {
			continue
		}
		label := strings.ReplaceAll(f.is.parent, "#", strconv.FormatUint(f.number, 10))
		parent := slices.IndexFunc(known, func(g *input) bool { return g.is.driver == f.is.driver && g.label == label })
		if parent < 0 {
			f.zone.Kind = f.is.whole
		} else {
			f.zone.Parent = known[parent].zone.ID
		}
	}
}

// preferred returns the inputs of the table that are used. If the configuration names a sensor of a
// kind, the kind has only named sensors, even while they are missing. If several drivers measure a
// kind, only the driver that is listed first is used. These rules apply to each graphics card
// separately. A named GPU sensor without a PCI address may measure any card, so it replaces all
// cards.
func (m *finder) preferred(known, named []*input) []*input {
	same := func(a, b *input) bool {
		return a.zone.Kind == b.zone.Kind && (a.zone.Kind != power.GPU || a.zone.Domain == b.zone.Domain)
	}
	anyCard := slices.ContainsFunc(named, func(f *input) bool {
		_, located := f.zone.Domain.PCIAddress()
		return f.zone.Kind == power.GPU && !located
	})
	rank := func(f *input) int {
		return slices.IndexFunc(meanings, func(c meaning) bool { return c.driver == f.is.driver })
	}
	return slices.DeleteFunc(slices.Clone(known), func(f *input) bool {
		return f.zone.Kind == power.GPU && anyCard ||
			f.zone.Kind != power.GPU && slices.ContainsFunc(m.named, func(n Sensor) bool { return n.Kind == f.zone.Kind }) ||
			slices.ContainsFunc(named, func(g *input) bool { return same(f, g) }) ||
			slices.ContainsFunc(known, func(g *input) bool { return same(f, g) && rank(g) < rank(f) })
	})
}

// findNamed returns the sensors that the configuration names, and sets the error of a missing one.
func (m *finder) findNamed(to *found) (named []*input) {
	for i := range m.named {
		n := &m.named[i]
		sensors := n.in(to.chips)
		var err error
		switch {
		case len(sensors) == 1:
			s := sensors[0]
			m.seen[i] = true
			f := m.newInput(s, &meaning{driver: s.chip.driver, every: time.Second}, n.Kind, n.domain(s.chip))
			if n.Kind != power.GPU {
				f.zone.MaxWatts = power.MaxPlatformWatts // the sensor may measure all sockets together
			}
			named = append(named, f)
		case len(sensors) > 1:
			err = fmt.Errorf("meters::hwmon::sensors::%s: %d chips %q have a sensor %q: name the device, such as %q", n, len(sensors), n.Chip, n.Sensor, sensors[0].chip.device)
		case !m.seen[i]:
			err = fmt.Errorf("meters::hwmon::sensors::%s: there is no chip %q with a sensor %q", n, strings.TrimSpace(n.Chip+" "+n.Device), n.Sensor)
		}
		to.missing = cmp.Or(to.missing, err)
	}
	return named
}

// in returns the sensors that n names.
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
