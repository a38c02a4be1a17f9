// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ErrNoZones is returned where the powercap directory is there but holds no zone that can be used:
// none of a wanted kind, or only directories that cannot be entered, as in a container whose runtime
// masks /sys/devices/virtual/powercap.
var ErrNoZones = errors.New("no usable powercap zone")

const (
	powercapDir = "sys/class/powercap"
	// The control type of the CPU's own registers, for Intel and AMD alike. Others may repeat its zones.
	raplControl = "intel-rapl"
	// How much sample time may pass until zones that appeared or vanished are looked for, and how much
	// while something fails.
	discoverEvery = 10 * time.Second
	retryEvery    = time.Second
)

// Powercap is the Meter that reads RAPL through the kernel's powercap interface
// (Documentation/power/powercap/powercap.rst): energy_uj in microjoules, which wraps at
// max_energy_range_uj. Counters are mode 0400, readable by root or with CAP_DAC_READ_SEARCH.
//
// A zone once seen stays known. While it cannot be read its Reading says why and keeps its Total; the
// next good read adds what was missed, as far as its counter shows it. Only a zone whose place was taken
// by another (its ID has a new name, or it turned out to be a repeat) is forgotten, so zones are to be
// told apart by the Zone pointer, which lasts as long as the zone is known.
type Powercap struct {
	root  string
	dir   string
	want  func(Kind) bool
	open  func(path string) (*os.File, error)
	zones []*powercapZone // sorted by ID, aligned with readings

	names    map[string]string // qualified names by ID, of every zone ever seen
	readings []Reading
	buf      [32]byte  // 20 digits and a newline, with room to see what is too long
	listed   time.Time // sample time of the last discovery
	unlisted error     // what that failed with
	fresh    bool      // discovered since the last Read
	again    bool      // something began to fail: discover at the next Read
	failing  bool      // a zone could not be read at the last Read
	closed   bool
}

type powercapZone struct {
	Zone
	qualified string      // own name after the parents', unique within a control type
	file      kernfs.File // energy_uj
	counter   *Counter
	at        time.Time
	failed    time.Time // when it last could not be read
}

// NewPowercap returns a meter for the zones below root, "/" or where the host's root is mounted. want
// says which kinds to read; nil is all. It touches nothing: that is left to Discover and Read.
func NewPowercap(root string, want func(Kind) bool) *Powercap {
	if want == nil {
		want = func(Kind) bool { return true }
	}
	return &Powercap{
		root:  root,
		dir:   filepath.Join(root, powercapDir),
		want:  want,
		open:  os.Open,
		names: make(map[string]string),
		again: true,
	}
}

// SoonestWrap returns how soon a known zone's counter can wrap at the highest power that the zone can have,
// 0 where no range is known, or none that is real.
func (p *Powercap) SoonestWrap() time.Duration {
	var soonest time.Duration
	for _, z := range p.zones {
		if after := z.counter.WrapsAfter(); after > 0 && (soonest == 0 || after < soonest) {
			soonest = after
		}
	}
	return soonest
}

// Source says that RAPL counts are measurements.
func (*Powercap) Source() Source { return Measured }

// Discover lists the zones and returns how many are there now. It opens no counter, so it succeeds
// where they may not be read. The error is fs.ErrNotExist where there is no powercap interface, ErrNoZones
// (joined with what kept zones from being looked at, if anything did) where it has no zone to use, and
// else what kept the directory from being read. Zones known from before stay known.
func (p *Powercap) Discover() (int, error) {
	n, err := p.discover()
	p.fresh, p.again, p.unlisted = err == nil, err != nil, err
	return n, err
}

// Read reads the known zones, those that failed before too. It discovers them at first, after a pass in
// which a zone began to fail, and every 10 s of sample time, or every second as long as anything fails. It
// returns an error, that of the last discovery, only if no zone could be read because of it; after Close it
// returns fs.ErrClosed. In a pass without discoveries and failures it makes one system call per zone and
// allocates nothing.
func (p *Powercap) Read(s Sample) ([]Reading, error) {
	if p.closed {
		return nil, fmt.Errorf("powercap meter: %w", fs.ErrClosed)
	}
	if p.again || !p.fresh && s.At.Sub(p.listed) >= p.discoverEvery() {
		_, p.unlisted = p.Discover()
		// A directory that cannot be listed costs one system call: that is tried at every pass.
		p.again = p.unlisted != nil && !errors.Is(p.unlisted, ErrNoZones)
		p.listed = s.At
	} else if p.fresh {
		p.listed = s.At
	}
	p.fresh = false

	good := false
	p.failing = false
	for i, z := range p.zones {
		r := &p.readings[i]
		*r = Reading{Zone: &z.Zone, Total: z.counter.Total(), At: z.at}
		var raw units.Energy
		if raw, r.Err = p.readZone(z); r.Err != nil {
			p.failing = true
			// It fails for the first time in a while: what is there may not be what was there.
			p.again = p.again || s.At.Sub(z.failed) >= retryEvery
			z.failed = s.At
			continue
		}
		good = true
		z.at = s.At
		_, r.Event = z.counter.Add(raw, s.At)
		r.Total, r.At = z.counter.Total(), s.At
	}
	if good {
		return p.readings, nil
	}
	return p.readings, p.unlisted
}

// discoverEvery is how much sample time may pass until the next discovery. One of all zones takes some
// hundred system calls: too many for a hundred passes a second with a counter that nobody may read.
func (p *Powercap) discoverEvery() time.Duration {
	if p.failing || p.unlisted != nil {
		return retryEvery
	}
	return discoverEvery
}

// Close closes the counters. It may be called again; Read may not.
func (p *Powercap) Close() error {
	p.closed = true
	var errs []error
	for _, z := range p.zones {
		errs = append(errs, z.file.Close())
	}
	return errors.Join(errs...)
}

// readZone returns the raw counter. A sysfs attribute fails with ENODEV once its zone was unregistered.
func (p *Powercap) readZone(z *powercapZone) (units.Energy, error) {
	text, err := z.file.Read(p.buf[:])
	if err != nil {
		return 0, fmt.Errorf("powercap zone %s: %w", z.ID, err)
	}
	raw, err := kernfs.ParseUintLine(text)
	if err != nil {
		z.closeFile()
		return 0, fmt.Errorf("powercap zone %s: %s: %w", z.ID, z.file.Path, err)
	}
	return units.Energy(raw), nil
}

// closeFile makes the next read open the counter again.
func (z *powercapZone) closeFile() { _ = z.file.Close() } // opened for reading: nothing can be lost

// listedZone is what discovery found at one place.
type listedZone struct {
	id, name, control, qualified, dir string
	kind                              Kind
	wrapAt                            units.Energy
}

func (p *Powercap) discover() (int, error) {
	if p.closed {
		return 0, fmt.Errorf("powercap meter: %w", fs.ErrClosed)
	}
	entries, err := os.ReadDir(p.dir)
	_, err = kernfs.Result(p.dir, nil, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.closeAll()
		return 0, fmt.Errorf("no powercap interface below %s: %w", p.root, err)
	case err != nil:
		return 0, fmt.Errorf("list powercap zones: %w", err)
	}
	dirs := zoneDirs(p.dir, entries)
	found, unread, err := p.inspect(dirs)
	p.merge(found, unread)
	if len(found) > 0 {
		return len(found), nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w in %s: %w", ErrNoZones, p.dir, err)
	}
	return 0, fmt.Errorf("%w in %s (%d zone directories)", ErrNoZones, p.dir, len(dirs))
}

// zoneDirs returns the path of every zone directory by ID, given the entries of the class directory. The
// kernel lists all zones flat in it, as links; copies of the tree may keep subzones only in their
// parents, whose ID begins theirs.
func zoneDirs(class string, entries []fs.DirEntry) map[string]string {
	dirs := make(map[string]string, len(entries))
	var parents []string // IDs of zones, names of control types
	for _, e := range entries {
		dirs[e.Name()] = filepath.Join(class, e.Name())
		parents = append(parents, e.Name())
	}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		children, err := os.ReadDir(dirs[parent])
		if err != nil {
			continue // a file, a dangling link, gone meanwhile: inspect says what matters
		}
		for _, e := range children {
			id := e.Name()
			if _, known := dirs[id]; known || !strings.HasPrefix(id, parent+":") {
				continue
			}
			dirs[id] = filepath.Join(dirs[parent], id)
			parents = append(parents, id)
		}
	}
	for id := range dirs {
		if !strings.Contains(id, ":") { // a control type
			delete(dirs, id)
		}
	}
	return dirs
}

// inspect reads what the zone directories say of themselves and returns the zones to use, the IDs that
// could not be looked at although they are there, and the first reason for one.
func (p *Powercap) inspect(dirs map[string]string) (found []listedZone, unread map[string]bool, reason error) {
	ids := make([]string, 0, len(dirs))
	for id := range dirs {
		ids = append(ids, id)
	}
	// intel-rapl comes first: it owns what others repeat. Parents come before their children.
	slices.SortFunc(ids, func(a, b string) int {
		if ra, rb := controlOf(a) == raplControl, controlOf(b) == raplControl; ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return compareIDs(a, b)
	})

	owner := make(map[string]string, len(ids)) // control type by qualified name
	for _, z := range p.zones {                // an owner that is away for now still owns
		if controlOf(z.ID) == raplControl {
			owner[z.qualified] = raplControl
		}
	}
	unread = make(map[string]bool)
	for _, id := range ids {
		z := listedZone{id: id, dir: dirs[id], control: controlOf(id)}
		var err error
		if z.name, err = p.readName(z.dir); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				unread[id] = true
				if reason == nil {
					reason = err
				}
			}
			continue
		}
		z.qualified = z.name
		if parent := parentOf(id); parent != "" {
			above, ok := p.names[parent]
			if !ok { // never seen: its place has to do
				above = strings.TrimPrefix(parent, z.control)
			}
			z.qualified = above + "/" + z.name
		}
		p.names[id] = z.qualified

		var ok bool
		if z.kind, ok = kindOf(z.name); !ok || !p.want(z.kind) {
			continue
		}
		if _, err := os.Stat(filepath.Join(z.dir, "energy_uj")); errors.Is(err, fs.ErrNotExist) {
			continue // limits power without counting energy
		}
		if z.wrapAt, ok = p.readRange(z.dir); !ok && z.control != raplControl {
			continue // not a counter that wraps: dtpm estimates
		}
		if first, taken := owner[z.qualified]; taken && first != z.control {
			continue // the same counter by another way: intel-rapl-mmio
		}
		owner[z.qualified] = z.control
		found = append(found, z)
	}
	return found, unread, reason
}

// merge brings the known zones up to what was found.
func (p *Powercap) merge(found []listedZone, unread map[string]bool) {
	byID := make(map[string]*powercapZone, len(p.zones)+len(found))
	owner := make(map[string]string, len(found)) // as in inspect
	for _, z := range p.zones {
		byID[z.ID] = z
	}
	present := make(map[string]bool, len(found))
	for _, l := range found {
		present[l.id] = true
		owner[l.qualified] = l.control
		path := filepath.Join(l.dir, "energy_uj")
		z := byID[l.id]
		if z != nil && z.qualified != l.qualified { // sockets that came back in another order
			z.closeFile()
			z = nil
		}
		if z == nil {
			byID[l.id] = &powercapZone{
				Zone:      Zone{ID: l.id, Name: l.name, Kind: l.kind, Parent: parentOf(l.id), Source: Measured},
				qualified: l.qualified,
				file:      kernfs.File{Path: path, Open: func(path string) (*os.File, error) { return p.open(path) }},
				counter:   NewCounter(l.kind, l.wrapAt),
			}
			continue
		}
		if l.wrapAt != 0 {
			z.counter.SetWrapAt(l.wrapAt)
		}
		if z.file.Path != path || z.file.Stale() {
			z.closeFile()
			z.file.Path = path
		}
	}

	p.zones = p.zones[:0:0]
	for id, z := range byID {
		if first, taken := owner[z.qualified]; taken && first != controlOf(id) {
			z.closeFile() // a repeat that was seen before its owner
			continue
		}
		if !present[id] && !unread[id] {
			z.closeFile() // vanished; the descriptor of a plain file would go on giving its last value
		}
		p.zones = append(p.zones, z)
	}
	slices.SortFunc(p.zones, func(a, b *powercapZone) int { return compareIDs(a.ID, b.ID) })
	p.readings = make([]Reading, len(p.zones))
}

func (p *Powercap) closeAll() {
	for _, z := range p.zones {
		z.closeFile()
	}
}

// readText returns the text of a small attribute as it is.
func (p *Powercap) readText(path string) (string, error) {
	f := kernfs.File{Path: path, Open: p.open}
	defer func() { _ = f.Close() }()
	text, err := f.Read(make([]byte, 256))
	if err != nil {
		return "", fmt.Errorf("powercap attribute: %w", err)
	}
	return string(text), nil
}

var errNameCut = errors.New("the zone's name has no end of line")

func (p *Powercap) readName(dir string) (string, error) {
	text, err := p.readText(filepath.Join(dir, "name"))
	if err != nil {
		return "", err
	}
	name, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return "", fmt.Errorf("powercap attribute %s: %w", filepath.Join(dir, "name"), errNameCut)
	}
	return strings.TrimSpace(name), nil
}

// readRange returns where the zone's counter wraps, 0 if that cannot be made out, and whether the zone
// says so at all.
func (p *Powercap) readRange(dir string) (units.Energy, bool) {
	text, err := p.readText(filepath.Join(dir, "max_energy_range_uj"))
	if err != nil {
		return 0, !errors.Is(err, fs.ErrNotExist)
	}
	wrapAt, err := kernfs.ParseUintLine([]byte(text))
	if err != nil {
		return 0, true
	}
	return units.Energy(wrapAt), true
}

// kindOf returns what the zone of the name measures. Packages are called package-N, on CPUs of several
// dies package-N-die-M, and the platform zone of a package other than the first psys-N
// (drivers/powercap/intel_rapl_common.c, rapl_add_package and rapl_init_domains).
func kindOf(name string) (Kind, bool) {
	switch k := Kind(name); k {
	case Core, Uncore, DRAM, PSys:
		return k, true
	case Package: // the driver always numbers its packages; dtpm has one without a number
		return "", false
	}
	if number, ok := strings.CutPrefix(name, string(PSys)+"-"); ok && isDigits(number) {
		return PSys, true
	}
	rest, ok := strings.CutPrefix(name, string(Package)+"-")
	if !ok {
		return "", false
	}
	socket, die, dies := strings.Cut(rest, "-die-")
	if !isDigits(socket) || dies && !isDigits(die) {
		return "", false
	}
	return Package, true
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// controlOf returns the control type in a zone's ID: "intel-rapl" of "intel-rapl:0:1".
func controlOf(id string) string {
	control, _, _ := strings.Cut(id, ":")
	return control
}

// parentOf returns the ID of the zone around the given one, empty at the top.
func parentOf(id string) string {
	parent := id[:max(strings.LastIndexByte(id, ':'), 0)]
	if !strings.Contains(parent, ":") {
		return "" // the control type
	}
	return parent
}

// compareIDs orders IDs with their numbers by value: intel-rapl:2 before intel-rapl:10.
func compareIDs(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		dx, dy := digits(x), digits(y)
		if dx == 0 || dy == 0 {
			if x[0] != y[0] {
				return int(x[0]) - int(y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		nx, ny := strings.TrimLeft(x[:dx], "0"), strings.TrimLeft(y[:dy], "0")
		if len(nx) != len(ny) {
			return len(nx) - len(ny)
		}
		if c := strings.Compare(nx, ny); c != 0 {
			return c
		}
		x, y = x[dx:], y[dy:]
	}
	if len(x) != len(y) {
		return len(x) - len(y)
	}
	return strings.Compare(a, b)
}

// digits returns how many digits s begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
