// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// MaxDomains is how many domains a node's CPUs are divided into at most.
const MaxDomains = 16

// ErrTooManyDomains is the error of a node with more domains than MaxDomains.
var ErrTooManyDomains = fmt.Errorf("the node has more than %d CPU packages or dies", MaxDomains)

// Other reasons why a Topology does not divide a node's CPUs.
var (
	errOneDomain = errors.New("the node has one CPU package")
	errNoPackage = errors.New("a CPU without a package")
)

// Topology divides the CPUs of a node into domains. A domain is a package, or a die if packages
// have several dies with energy counters of their own.
//
// The domains are fixed when the Topology is opened, by the CPUs that are online then. A CPU that
// comes online later belongs to the domain of its package, or to the first domain if its package is
// new. A Topology is not safe for concurrent use.
type Topology struct {
	online  *Online
	byDie   bool
	places  []place // of the domains, in order
	domains []units.Domain
	of      []int32  // the domain of each CPU, by its number
	cpus    []uint64 // how many CPUs of each domain are online
	changes int      // how often the online CPUs have changed
}

// place is the location of a CPU. die is 0 if domains are packages.
type place struct{ physical, die uint64 }

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.physical, o.physical), cmp.Compare(p.die, o.die))
}

// OpenTopology reads the topology of the machine whose root directory is at root. It returns an
// error if that cannot be read, and if there are fewer than two domains or more than MaxDomains.
func OpenTopology(root string) (*Topology, error) {
	t := &Topology{online: NewOnline(root)}
	if err := t.open(root); err != nil {
		_ = t.online.Close() // it was only read from
		return nil, fmt.Errorf("CPU topology: %w", err)
	}
	return t, nil
}

func (t *Topology) open(root string) error {
	if _, err := t.online.Read(); err != nil {
		return err
	}
	var places []place
	for _, cpu := range t.online.CPUs() {
		p, err := t.place(cpu)
		if err != nil {
			return err
		}
		places = append(places, p)
	}
	slices.SortFunc(places, place.compare)
	places = slices.Compact(places)
	packages := slices.CompactFunc(slices.Clone(places), func(a, b place) bool { return a.physical == b.physical })
	if t.byDie = len(places) > len(packages) && countsByDie(root); !t.byDie {
		for i := range packages {
			packages[i].die = 0
		}
		places = packages
	}
	switch {
	case len(places) < 2:
		return errOneDomain
	case len(places) > MaxDomains:
		first, last := places[0].domain(t.byDie), places[len(places)-1].domain(t.byDie)
		return fmt.Errorf("%w: it has %d, %s to %s. The energy of each is attributed by the CPU time on the whole node",
			ErrTooManyDomains, len(places), first, last)
	}
	t.places = places
	for _, p := range places {
		t.domains = append(t.domains, p.domain(t.byDie))
	}
	t.assign()
	return nil
}

// countsByDie reports whether each die of a package has energy counters of its own, as the names of
// powercap's zones show. Counters that Intel's TPMI interface has are the package's
// (drivers/powercap/intel_rapl_common.c). Without zones the vendor has to do: AMD's are the
// package's (arch/x86/events/rapl.c).
func countsByDie(root string) bool {
	names, _ := filepath.Glob(filepath.Join(root, "sys/class/powercap/*/name")) // the pattern is well-formed
	byPackage := false
	for _, name := range names {
		text, _ := os.ReadFile(name) // a zone that has just gone has no name
		rest, ok := strings.CutPrefix(string(text), "package-")
		if strings.Contains(rest, "-die-") {
			return true
		}
		byPackage = byPackage || ok
	}
	if byPackage {
		return false
	}
	cpus, err := ReadCPUs(root)
	return err != nil || len(cpus) == 0 || cpus[0].Vendor != "AuthenticAMD" && cpus[0].Vendor != "HygonGenuine"
}

func (p place) domain(byDie bool) units.Domain {
	name := "package-" + strconv.FormatUint(p.physical, 10)
	if byDie {
		name += "-die-" + strconv.FormatUint(p.die, 10)
	}
	return units.Domain(name)
}

// place reads the location of a CPU. The kernel prints -1 for an unidentified package, and kernels
// before 5.2 have no die_id.
func (t *Topology) place(cpu int) (place, error) {
	dir := "cpu" + strconv.Itoa(cpu) + "/topology/"
	physical, err := t.number(dir + "physical_package_id")
	if err != nil {
		return place{}, fmt.Errorf("CPU %d: %w: %w", cpu, errNoPackage, err)
	}
	die, err := t.number(dir + "die_id")
	if err != nil {
		die = 0
	}
	return place{physical, die}, nil
}

func (t *Topology) number(name string) (uint64, error) {
	b, err := t.online.dir.Read(name, t.online.buf[:32])
	if err != nil {
		return 0, err
	}
	return kernfs.ParseUintLine(b)
}

// Refresh reads the topology again if the online CPUs have changed. It checks at most once a
// second; now is the time since boot. What cannot be read stays as it was.
func (t *Topology) Refresh(now time.Duration) {
	if t.online.Refresh(now) {
		t.assign()
	}
}

// assign finds the domains of the online CPUs.
func (t *Topology) assign() {
	of, cpus := slices.Clone(t.of), make([]uint64, len(t.domains))
	for _, cpu := range t.online.CPUs() {
		for len(of) <= cpu {
			of = append(of, 0)
		}
		if p, err := t.place(cpu); err == nil {
			of[cpu] = int32(t.at(p))
		}
		cpus[of[cpu]]++
	}
	t.of, t.cpus = of, cpus
	t.changes++
}

// at returns the domain of a place, or the first domain.
func (t *Topology) at(p place) int {
	if !t.byDie {
		p.die = 0
	}
	return max(slices.Index(t.places, p), 0)
}

// Domains returns the names of the domains.
func (t *Topology) Domains() []units.Domain { return t.domains }

// Of returns the index of the domain of a CPU. A CPU that was never online is in the first domain.
func (t *Topology) Of(cpu int32) int {
	if cpu < 0 || int(cpu) >= len(t.of) {
		return 0
	}
	return int(t.of[cpu])
}

// Changes returns how often the online CPUs have changed.
func (t *Topology) Changes() int { return t.changes }

// ByCPU returns the index of the domain of each CPU by its number. The caller must not change the
// slice.
func (t *Topology) ByCPU() []int32 { return t.of }

// Online returns how many CPUs of a domain are online.
func (t *Topology) Online(domain int) uint64 { return t.cpus[domain] }

// Index returns the index of a domain by its name, and reports whether the topology has it. If
// domains are packages, the name of a die is in the domain of its package.
func (t *Topology) Index(d units.Domain) (int, bool) {
	i := slices.Index(t.domains, d)
	if i < 0 && !t.byDie {
		whole, _, _ := strings.Cut(string(d), "-die-")
		i = slices.Index(t.domains, units.Domain(whole))
	}
	return max(i, 0), i >= 0
}

// Close closes the directory that the topology is read from.
func (t *Topology) Close() error { return t.online.Close() }
