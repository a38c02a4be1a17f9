// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// event is an event of a PMU.
type event struct {
	name string
	kind power.Kind
}

// The events of the power PMU and of power_core, which counts each core by itself (arch/x86/events/rapl.c).
var (
	packageEvents = []event{
		{"energy-pkg", power.Package}, {"energy-cores", power.Core}, {"energy-gpu", power.Uncore},
		{"energy-ram", power.DRAM}, {"energy-psys", power.PSys},
	}
	coreEvents = []event{{"energy-core", power.Core}}
)

// pmu is a PMU as its directory describes it.
type pmu struct {
	name    string
	number  uint32
	cpus    []int // one for each package, die or core
	events  []event
	configs []uint64 // of events
	scales  []scale  // of events
}

// place is where a CPU is. die is 0 where packages are counted as a whole.
type place struct{ physical, die uint64 }

// find finds the zones and the CPUs that count them. It opens no counter, so it succeeds where
// that is not permitted. Zones known from before stay known. Only the function that it returns
// changes zones.
func (s *source) find() func() error {
	pmus, reason := s.pmus()
	var f found
	if len(pmus) > 0 {
		f = found{pmus: pmus, keys: make([][]groupKey, len(pmus)), wholePackages: s.countsWholePackages()}
		if err := s.kernel.check(s.root); err != nil {
			return func() error { return fmt.Errorf("perf: %w: %w", power.ErrNoZones, err) }
		}
	}
	for i := range pmus {
		for _, cpu := range pmus[i].cpus {
			key, err := s.keyOf(pmus[i].name, cpu)
			if err != nil {
				return func() error { return fmt.Errorf("perf: place of CPU %d: %w", cpu, err) }
			}
			f.keys[i] = append(f.keys[i], key)
		}
	}
	return func() error { return s.takeOver(f, reason) }
}

// found is the result of a discovery.
type found struct {
	pmus          []pmu
	keys          [][]groupKey // of the CPUs of each PMU
	wholePackages bool         // see countsWholePackages
}

// takeOver makes what was found known. The reason is why an event cannot be used.
func (s *source) takeOver(f found, reason error) error {
	pmus := f.pmus
	switch {
	case errors.Is(reason, fs.ErrNotExist) && len(pmus) == 0:
		s.drop(nil)
		return fmt.Errorf("no power PMU below %s: %w", s.root, reason)
	case len(pmus) == 0 && reason != nil:
		return fmt.Errorf("perf: %w in the power PMU: %w", power.ErrNoZones, reason)
	case len(pmus) == 0:
		return fmt.Errorf("perf: %w in the power PMU", power.ErrNoZones)
	}
	s.merge(s.locate(&f))
	return nil
}

// pmus returns the PMUs that have wanted events, and why an event cannot be used.
func (s *source) pmus() ([]pmu, error) {
	var found []pmu
	whole, reason := s.readPMU("power", packageEvents)
	if len(whole.events) > 0 {
		found = append(found, whole)
	}
	hasCores := slices.ContainsFunc(whole.events, func(e event) bool { return e.kind == power.Core })
	if hasCores || errors.Is(reason, fs.ErrNotExist) || !s.want(power.Core) {
		return found, reason
	}
	cores, err := s.readPMU("power_core", coreEvents)
	if len(cores.events) > 0 {
		found = append(found, cores)
	}
	if reason == nil && !errors.Is(err, fs.ErrNotExist) {
		reason = err
	}
	return found, reason
}

// readPMU reads the description of a PMU. The error is fs.ErrNotExist if there is no such PMU, else
// why an event cannot be used.
func (s *source) readPMU(name string, events []event) (pmu, error) {
	// The target of /sys/bus/event_source/devices, which a container may not have from the host.
	dir := filepath.Join(s.root, "sys/devices", name)
	number, err := perfevent.ReadNumber(filepath.Join(dir, "type"), "")
	if err != nil {
		return pmu{}, err
	}
	p := pmu{name: name, number: uint32(number)}
	mask, err := readText(filepath.Join(dir, "cpumask"))
	if err != nil {
		return pmu{}, unusable(err)
	}
	if err := kernfs.ParseList([]byte(mask), func(cpu int) { p.cpus = append(p.cpus, cpu) }); err != nil {
		return pmu{}, fmt.Errorf("%s/cpumask: %q is not understood", dir, mask)
	}
	var reason error
	for _, e := range events {
		if !s.want(e.kind) {
			continue
		}
		config, scale, err := readEvent(filepath.Join(dir, "events", e.name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			reason = err
		default:
			p.events, p.configs, p.scales = append(p.events, e), append(p.configs, config), append(p.scales, scale)
		}
	}
	return p, reason
}

// unusable returns an error that is not fs.ErrNotExist, for a file that a PMU must have.
func unusable(err error) error { return fmt.Errorf("the PMU is not complete: %v", err) } //nolint:errorlint // that is meant

// readEvent reads the config of an event and what one count is. The error is fs.ErrNotExist where
// the PMU does not have it.
func readEvent(path string) (uint64, scale, error) {
	config, err := perfevent.ReadNumber(path, "event=")
	if err != nil {
		return 0, scale{}, err
	}
	unit, err := readText(path + ".unit")
	if err != nil {
		return 0, scale{}, unusable(err)
	}
	if strings.TrimSpace(unit) != "Joules" {
		return 0, scale{}, fmt.Errorf("%s.unit: %q is not understood", path, unit)
	}
	text, err := readText(path + ".scale")
	if err != nil {
		return 0, scale{}, unusable(err)
	}
	s, err := parseScale(text)
	if err != nil {
		return 0, scale{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, s, nil
}

func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	text, err = kernfs.Result(path, text, err)
	return string(text), err
}

// locate returns a group for each CPU of the PMUs' masks.
func (s *source) locate(f *found) []*group {
	var groups []*group
	for i := range f.pmus {
		p := &f.pmus[i]
		for j, cpu := range p.cpus {
			groups = append(groups, &group{
				key: f.keys[i][j], pmu: p.number, cpu: cpu, configs: p.configs, counts: make([]uint64, len(p.configs)),
				events: make([]groupEvent, len(p.events)),
			})
		}
	}
	if f.wholePackages {
		groups = firstOfPackages(groups)
	}
	if !s.byDie && countsByDie(groups) { // only one die of each package was online: what was called the package was a die
		s.drop(nil)
		s.byDie, s.zones = true, nil
	}
	for i, g := range groups {
		if !s.byDie && g.key.pmu == "power" {
			groups[i].key.at.die = 0
		}
	}
	for i := range f.pmus {
		s.assign(&f.pmus[i], groups)
	}
	return groups
}

// countsWholePackages reports whether an event of the power PMU is the package's, on whichever of
// its dies it is counted. AMD's are. From 6.9 until 6.12 the kernel has a CPU of each die in the
// mask all the same ("perf/x86/rapl: Fix the energy-pkg event for AMD CPUs").
func (s *source) countsWholePackages() bool {
	text, err := os.Open(filepath.Join(s.root, "proc/cpuinfo"))
	if err != nil {
		return false
	}
	defer func() { _ = text.Close() }() // it was only read from
	for lines := bufio.NewScanner(text); lines.Scan(); {
		if key, vendor, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == "vendor_id" {
			vendor = strings.TrimSpace(vendor)
			return vendor == "AuthenticAMD" || vendor == "HygonGenuine"
		}
	}
	return false
}

// firstOfPackages leaves out the groups of the power PMU on further dies of a package.
func firstOfPackages(groups []*group) []*group {
	seen := map[uint64]bool{}
	return slices.DeleteFunc(groups, func(g *group) bool {
		repeats := g.key.pmu == "power" && seen[g.key.at.physical]
		seen[g.key.at.physical] = seen[g.key.at.physical] || g.key.pmu == "power"
		return repeats
	})
}

// countsByDie reports whether the power PMU counts on several CPUs of a package.
func countsByDie(groups []*group) bool {
	seen := map[uint64]bool{}
	for _, g := range groups {
		if g.key.pmu != "power" {
			continue
		}
		if seen[g.key.at.physical] {
			return true
		}
		seen[g.key.at.physical] = true
	}
	return false
}

// keyOf returns where a CPU of a PMU's mask is. Kernels before 5.2 have no die_id.
func (s *source) keyOf(pmu string, cpu int) (groupKey, error) {
	key := groupKey{pmu: pmu}
	dir := filepath.Join(s.root, "sys/devices/system/cpu/cpu"+strconv.Itoa(cpu), "topology")
	var err error
	if key.at.physical, err = perfevent.ReadNumber(filepath.Join(dir, "physical_package_id"), ""); err != nil {
		return key, err
	}
	if key.at.die, err = perfevent.ReadNumber(filepath.Join(dir, "die_id"), ""); err != nil {
		key.at.die = 0
	}
	if pmu == "power_core" {
		key.core, err = perfevent.ReadNumber(filepath.Join(dir, "core_id"), "")
		return key, err
	}
	return key, nil
}

// assign gives each event of the PMU's groups its zone, and makes those that are new.
func (s *source) assign(p *pmu, groups []*group) {
	for _, g := range groups {
		if g.key.pmu != p.name {
			continue
		}
		for i, e := range p.events {
			g.events[i] = groupEvent{zone: s.zone(g.key, e), scale: p.scales[i]}
		}
	}
}

// zone returns the zone of an event at a place.
func (s *source) zone(key groupKey, e event) *zone {
	at := strconv.FormatUint(key.at.physical, 10)
	pkg := "package-" + at
	if s.byDie {
		die := strconv.FormatUint(key.at.die, 10)
		at += ":" + die
		pkg += "-die-" + die
	}
	id := key.pmu + ":" + e.name + ":" + at
	i, known := slices.BinarySearchFunc(s.zones, id, func(z *zone, id string) int { return power.CompareIDs(z.ID, id) })
	if known {
		return s.zones[i]
	}
	z := &zone{Zone: power.Zone{
		ID: id, Name: string(e.kind), Kind: e.kind, Method: power.Measured, Domain: units.Domain(pkg), MaxWatts: power.MaxWatts(e.kind),
		Prompt: e.kind != power.PSys,
	}}
	switch e.kind {
	case power.Package:
		z.Name = pkg
	case power.Core, power.Uncore:
		z.Parent = "power:energy-pkg:" + at
	case power.PSys:
		z.Domain = units.NodeCPUs
	}
	s.zones = slices.Insert(s.zones, i, z)
	return z
}

// merge takes over the groups. Those that already count go on.
func (s *source) merge(groups []*group) {
	for i, g := range groups {
		at := slices.IndexFunc(s.groups, func(known *group) bool { return known.same(g) })
		if at < 0 {
			continue
		}
		s.groups[at].cpu = g.cpu
		groups[i] = s.groups[at]
	}
	s.drop(groups)
	for _, g := range groups {
		for i := range g.events {
			g.events[i].zone.groups++
		}
	}
}

// drop replaces the groups, and closes those that are gone. What these have counted last is not lost.
func (s *source) drop(groups []*group) {
	for _, g := range s.groups {
		if slices.Contains(groups, g) {
			continue
		}
		if g.open != nil {
			_ = g.collect() // their CPUs are gone
			_ = g.close()   // they were only read from
		}
	}
	s.groups = groups
	for _, z := range s.zones {
		z.groups = 0
	}
}
