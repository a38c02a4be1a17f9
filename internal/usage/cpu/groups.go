// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Groups finds what the processes of a cgroup used without being seen, by the cgroup's own counter: the
// kernel counts there whatever ran, however short. A round is Read, then the pass over the processes, then
// Explain for all that the pass showed, then Unseen.
type Groups struct {
	root      string
	counters  []counterFile
	unmounted error // why there are none, as far as was looked in this round
	groups    []group
	unused    []Group
}

// Group numbers a cgroup that is watched.
type Group int32

type group struct {
	path      string
	members   int
	known     bool          // the counter was read before
	first     bool          // it was read in this round for the first time
	current   bool          // it was read in this round
	gone      bool          // there was no such cgroup in this round
	base      units.CPUTime // the counter when watching began
	counter   units.CPUTime
	explained units.CPUTime // what processes were seen to use since then
	unseen    units.CPUTime // what was handed out as unseen
	older     bool          // than its first processes
}

// NewGroups returns the groups of the host whose tree is at root. It touches nothing.
func NewGroups(root string) *Groups {
	return &Groups{root: root}
}

// Watch returns a group for the cgroup at path, which is below each hierarchy's mount point. It is taken
// for one that is no older than the processes of this pass, so that all it ever counted is theirs.
func (g *Groups) Watch(path string) Group {
	fresh := group{path: path}
	if n := len(g.unused); n > 0 {
		i := g.unused[n-1]
		g.unused = g.unused[:n-1]
		g.groups[i] = fresh
		return i
	}
	g.groups = append(g.groups, fresh)
	return Group(len(g.groups) - 1)
}

// Older says that a group has processes from before the pass that showed it first: what it counted until
// its first reading was used when it was not watched.
func (g *Groups) Older(i Group) { g.groups[i].older = true }

// Empty says that the group has no processes, and returns whether it is still there to be watched: the next process
// in it is not to be taken for the one that used what it has counted.
func (g *Groups) Empty(i Group) (there bool) {
	w := &g.groups[i]
	if w.known && w.current {
		w.base, w.explained, w.unseen = w.counter, 0, 0
	}
	return !w.gone
}

// Forget ends the watching of a group.
func (g *Groups) Forget(i Group) {
	g.groups[i] = group{}
	g.unused = append(g.unused, i)
}

// Read reads the counters. They must be read before the processes are: what they are ahead of the
// processes would look like time that nobody was seen to use.
func (g *Groups) Read() {
	g.unmounted = nil
	for i := range g.groups {
		w := &g.groups[i]
		w.members = 0
		if w.path == "" {
			continue
		}
		counter, err := g.usage(w.path)
		w.first = false
		w.current, w.gone = err == nil, errors.Is(err, errNoCgroup)
		if err != nil {
			continue // as with a cgroup that was removed: what was last read stands
		}
		if counter < w.counter { // another cgroup has taken its place
			*w = group{path: w.path, current: true}
		}
		if !w.known {
			w.known, w.first = true, true
			if w.older {
				w.base, w.explained = counter, 0
			}
		}
		w.counter = counter
	}
}

// Explain says that a process of the group is seen, and what it used.
func (g *Groups) Explain(i Group, used units.CPUTime) {
	w := &g.groups[i]
	w.members++
	w.explained += used
}

// Room returns the most that is left to explain in the group, Unbounded where its counter does not tell.
func (g *Groups) Room(i Group) units.CPUTime {
	w := &g.groups[i]
	if !w.current {
		return Unbounded
	}
	return units.Advance(w.base+w.explained+w.unseen, w.counter)
}

// First says that the counter was read for the first time in this round: it may hold what was used before the group was
// watched.
func (g *Groups) First(i Group) bool { return g.groups[i].first }

// Unseen returns what the group used beyond what was explained, since it was last asked. A process's
// times are rounded down to a tick twice, so as much per process is not taken for anybody's.
func (g *Groups) Unseen(i Group) units.CPUTime {
	w := &g.groups[i]
	if !w.known {
		return 0
	}
	rounding := units.CPUTime(w.members) * 2 * Tick
	unseen := units.Advance(w.base+w.explained+w.unseen+rounding, w.counter)
	w.unseen += unseen
	return unseen
}

var (
	errOutside     = errors.New("outside of the cgroup namespace")
	errNoHierarchy = errors.New("no mounted hierarchy counts CPU time")
	errNoCgroup    = errors.New("no hierarchy has the cgroup")
)

// mounts finds the mounts unless they are known or could not be found in this round.
func (g *Groups) mounts() error {
	if g.counters == nil && g.unmounted == nil {
		g.unmounted = g.findMounts()
	}
	return g.unmounted
}

// findMounts finds where the CPU counters of cgroups are: the mount points of the hierarchies that
// have one, as the host's first process sees them, or else this one.
func (g *Groups) findMounts() error {
	infos, err := hostMounts(g.root)
	if err != nil {
		return err
	}
	for _, info := range infos {
		_, accounts := info.SuperOptions["cpuacct"]
		switch {
		case info.FSType == "cgroup" && accounts:
			g.counters = append(g.counters, counterFile{info.MountPoint, "cpuacct.usage", parseCPUAcct})
		case info.FSType == "cgroup2":
			g.counters = append(g.counters, counterFile{info.MountPoint, "cpu.stat", parseCPUStat})
		}
	}
	if len(g.counters) == 0 {
		return errNoHierarchy
	}
	return nil
}

// counterFile is a file of each cgroup of one hierarchy.
type counterFile struct {
	mount, name string
	parse       func([]byte) (units.CPUTime, error)
}

// usage reads the CPU time that a cgroup has used.
func (g *Groups) usage(path string) (units.CPUTime, error) {
	if strings.Contains("/"+path+"/", "/../") {
		return 0, errOutside
	}
	if err := g.mounts(); err != nil {
		return 0, err
	}
	var errs error
	gone := true
	for _, c := range g.counters {
		name := filepath.Join(c.mount, path, c.name)
		b, err := os.ReadFile(name)
		b, err = kernfs.Result(name, b, err)
		if err == nil {
			var t units.CPUTime
			if t, err = c.parse(b); err == nil {
				return t, nil
			}
		}
		gone = gone && errors.Is(err, fs.ErrNotExist)
		errs = errors.Join(errs, err)
	}
	if gone {
		return 0, errors.Join(errNoCgroup, errs)
	}
	return 0, errs
}

// parseCPUAcct reads cpuacct.usage of cgroup v1, in nanoseconds (cgroup-v1/cpuacct.rst).
func parseCPUAcct(b []byte) (units.CPUTime, error) {
	digits, whole := bytes.CutSuffix(b, []byte{'\n'})
	if !whole {
		return 0, errTruncated
	}
	n, err := parseUint(bytes.TrimSpace(digits))
	return units.CPUTime(n), err
}

// parseCPUStat reads usage_usec of cpu.stat of cgroup v2 (cgroup-v2.rst). It is there whether or not the
// cpu controller is enabled.
func parseCPUStat(b []byte) (units.CPUTime, error) {
	for line := range bytes.Lines(b) {
		if digits, ok := bytes.CutPrefix(line, []byte("usage_usec ")); ok {
			if !bytes.HasSuffix(line, []byte{'\n'}) { // the number may be cut short
				return 0, errTruncated
			}
			n, err := parseUint(bytes.TrimSpace(digits))
			if n > math.MaxUint64/1000 {
				return 0, errNumber
			}
			return units.CPUTime(n) * 1000, err
		}
	}
	return 0, errTruncated
}
