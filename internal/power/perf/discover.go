// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// event is an event of a PMU.
type event struct {
	name  string
	kind  power.Kind
	scale scale // energy of one count
}

// The events of the power PMU and of power_core, which counts each core separately
// (arch/x86/events/rapl.c).
var (
	packageEvents = []event{
		{name: "energy-pkg", kind: power.Package}, {name: "energy-cores", kind: power.Core}, {name: "energy-gpu", kind: power.Uncore},
		{name: "energy-ram", kind: power.DRAM}, {name: "energy-psys", kind: power.PSys},
	}
	coreEvents = []event{{name: "energy-core", kind: power.Core}}
)

// pmu is the description of a PMU in its directory.
type pmu struct {
	name    string
	number  uint32
	cpus    []int // one CPU of each package, die or core
	events  []event
	configs []uint64 // configs of events
}

// find finds the zones and the CPUs that count them. It opens no counter, so it succeeds even if
// opening counters is not permitted. Zones that were found earlier are kept. Only the returned
// function changes zones. If two consecutive searches read every file and found the same masks of
// CPUs, later searches read only the masks. One search is not enough, because the kernel adds the
// events of a PMU after its other files.
func (s *source) find() func() error {
	masks := s.readMasks()
	if s.settled && masks == s.masks {
		return func() error { return nil }
	}
	pmus, reason := s.pmus()
	groups, err := s.newGroups(pmus)
	return func() error {
		s.settled = reason == nil && masks == s.masks
		s.masks = ""
		switch {
		case errors.Is(reason, fs.ErrNotExist) && len(pmus) == 0:
			s.replace(nil)
			return fmt.Errorf("no power PMU below %s: %w", s.root, reason)
		case len(pmus) == 0 && reason != nil:
			return fmt.Errorf("perf: %w in the power PMU: %w", power.ErrNoZones, reason)
		case len(pmus) == 0:
			return fmt.Errorf("perf: %w in the power PMU", power.ErrNoZones)
		case err != nil:
			return fmt.Errorf("perf: %w", err)
		}
		s.masks = masks
		s.merge(groups)
		return nil
	}
}

// readMasks returns the numbers of the PMUs and the lists of CPUs that they count on.
func (s *source) readMasks() string {
	var masks []byte
	for _, file := range [...]string{"power/type", "power/cpumask", "power_core/type", "power_core/cpumask"} {
		text, _ := kernfs.ReadSmall(filepath.Join(s.root, "sys/devices", file), s.buf[:]) // most CPUs have no power_core
		masks = append(append(masks, text...), 0)
	}
	return string(masks)
}

// pmus returns the PMUs that have wanted events, and an error if an event cannot be used.
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

// readPMU reads the description of a PMU. The error is fs.ErrNotExist if the PMU does not exist.
// Any other error is the reason why an event cannot be used.
func (s *source) readPMU(name string, events []event) (pmu, error) {
	// This directory is the target of a link in /sys/bus/event_source/devices, which may not be
	// mounted in a container.
	dir := filepath.Join(s.root, "sys/devices", name)
	number, err := perfevent.ReadNumber(filepath.Join(dir, "type"), "")
	if err != nil {
		return pmu{}, err
	}
	p := pmu{name: name, number: uint32(number)}
	mask, err := kernfs.ReadSmall(filepath.Join(dir, "cpumask"), s.buf[:])
	if err != nil {
		return pmu{}, unusable(err)
	}
	if err := kernfs.ParseList(mask, func(cpu int) { p.cpus = append(p.cpus, cpu) }); err != nil {
		return pmu{}, fmt.Errorf("%s/cpumask: cannot parse %q", dir, mask)
	}
	var reason error
	for _, e := range events {
		if !s.want(e.kind) {
			continue
		}
		var config uint64
		config, e.scale, err = s.readEvent(filepath.Join(dir, "events", e.name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			reason = err
		default:
			p.events, p.configs = append(p.events, e), append(p.configs, config)
		}
	}
	return p, reason
}

// unusable returns an error that is not fs.ErrNotExist, for a file that a PMU must have.
func unusable(err error) error { return fmt.Errorf("the PMU is not complete: %v", err) } //nolint:errorlint // not fs.ErrNotExist

// readEvent reads the config of an event and the energy of one count. The error is fs.ErrNotExist
// if the PMU does not have the event.
func (s *source) readEvent(path string) (config uint64, one scale, err error) {
	if config, err = perfevent.ReadNumber(path, "event="); err != nil {
		return 0, scale{}, err
	}
	text, err := kernfs.ReadSmall(path+".unit", s.buf[:])
	if err != nil {
		return 0, scale{}, unusable(err)
	}
	if string(bytes.TrimSpace(text)) != "Joules" {
		return 0, scale{}, fmt.Errorf("%s.unit: %q is not supported", path, text)
	}
	if text, err = kernfs.ReadSmall(path+".scale", s.buf[:]); err != nil {
		return 0, scale{}, unusable(err)
	}
	if one, err = parseScale(string(text)); err != nil {
		return 0, scale{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, one, nil
}

// newGroups returns a group for each CPU of the PMUs' masks.
func (s *source) newGroups(pmus []pmu) (groups []*group, err error) {
	if len(pmus) == 0 {
		return nil, nil
	}
	if err = s.kernel.check(s.root); err != nil {
		return nil, fmt.Errorf("%w: %w", power.ErrNoZones, err)
	}
	for i := range pmus {
		p := &pmus[i]
		for _, cpu := range p.cpus {
			g := &group{pmu: p, cpu: cpu, counts: make([]uint64, len(p.configs))}
			if g.key, err = s.keyOf(p.name, cpu); err != nil {
				return nil, fmt.Errorf("topology of CPU %d: %w", cpu, err)
			}
			for _, e := range p.events {
				g.events = append(g.events, groupEvent{event: e})
			}
			groups = append(groups, g)
		}
	}
	first := firstOfPackages(groups)
	if len(first) == len(groups) { // each group has its own package, so /proc/cpuinfo, which may be hidden, is not needed
		return groups, nil
	}
	if whole, err := s.countsWholePackages(); err != nil || !whole {
		return groups, err
	}
	return first, nil
}

// countsWholePackages reports whether an event of the power PMU counts the whole package on each
// die, as on AMD. Linux 6.9 to 6.12 nevertheless list a CPU of each die in the mask
// ("perf/x86/rapl: Fix the energy-pkg event for AMD CPUs").
func (s *source) countsWholePackages() (bool, error) {
	text, err := kernfs.ReadSmall(filepath.Join(s.root, "proc/cpuinfo"), s.buf[:]) // the first CPU is enough
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for line := range bytes.Lines(text) {
		if key, vendor, _ := bytes.Cut(line, []byte{':'}); string(bytes.TrimSpace(key)) == "vendor_id" {
			vendor := string(bytes.TrimSpace(vendor))
			return vendor == "AuthenticAMD" || vendor == "HygonGenuine", nil
		}
	}
	return false, nil
}

// firstOfPackages returns the groups without the groups of the power PMU on further dies of a
// package.
func firstOfPackages(groups []*group) (first []*group) {
	seen := map[uint64]bool{}
	for _, g := range groups {
		isPower := g.key.pmu == "power"
		if !isPower || !seen[g.key.physical] {
			first = append(first, g)
		}
		seen[g.key.physical] = seen[g.key.physical] || isPower
	}
	return first
}

// keyOf returns the key of the group that a CPU of a PMU's mask counts. Kernels before 5.2 have no
// die_id.
func (s *source) keyOf(pmu string, cpu int) (groupKey, error) {
	key := groupKey{pmu: pmu}
	dir := filepath.Join(s.root, "sys/devices/system/cpu/cpu"+strconv.Itoa(cpu), "topology")
	var err error
	if key.physical, err = perfevent.ReadNumber(filepath.Join(dir, "physical_package_id"), ""); err != nil {
		return key, err
	}
	if key.die, err = perfevent.ReadNumber(filepath.Join(dir, "die_id"), ""); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if pmu == "power_core" {
		key.core, err = perfevent.ReadNumber(filepath.Join(dir, "core_id"), "")
		return key, err
	}
	return key, nil
}

// merge adopts the groups of a discovery. Groups that are already open continue to count.
func (s *source) merge(groups []*group) {
	if !s.byDie && len(firstOfPackages(groups)) < len(groups) {
		// Until now only one die of each package was online, and its zone had the ID of the package.
		s.replace(nil)
		s.byDie, s.zones = true, nil
	}
	for i, g := range groups {
		if !s.byDie && g.key.pmu == "power" {
			g.key.die = 0
		}
		if known := slices.IndexFunc(s.groups, g.same); known >= 0 {
			s.groups[known].cpu = g.cpu
			groups[i] = s.groups[known]
			continue
		}
		for j := range g.events {
			g.events[j].zone = s.zone(&g.key, &g.events[j].event)
		}
	}
	s.replace(groups)
}

// zone returns the zone of a group's event, and adds the zone if it is new.
func (s *source) zone(key *groupKey, e *event) *zone {
	at := strconv.FormatUint(key.physical, 10)
	pkg := "package-" + at
	if s.byDie {
		die := strconv.FormatUint(key.die, 10)
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

// replace replaces the groups, and closes the groups that are no longer listed. It collects their
// last counts first, so that no energy is lost.
func (s *source) replace(groups []*group) {
	for _, g := range s.groups {
		if g.open != nil && !slices.Contains(groups, g) {
			_ = g.collect() // its CPU is offline
			_ = g.close()   // no data is lost: the counters were only read
		}
	}
	s.groups = groups
	for _, z := range s.zones {
		z.offline = true
	}
	for _, g := range groups {
		for i := range g.events {
			g.events[i].zone.offline = false
		}
	}
}
