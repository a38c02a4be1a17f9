// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// placement is all that a cgroup file says.
type placement struct {
	Placement
	text     string
	own      string   // path of the process's own cgroup
	delegate delegate // of the virtual machine, else of the process
}

// readCgroup returns what the process's cgroup file says, if that could be read and is something new.
func (id *Identifier) readCgroup(p *cpu.Process, e *entry) (in *placement, isNew bool, err error) {
	text, err := id.readFile(p.PID, "cgroup")
	if err != nil || len(text) == 0 || string(text) == e.cgroup {
		return nil, false, err
	}
	known := id.placements[string(text)]
	if known == nil {
		known = id.placementOf(string(text))
	}
	e.cgroup = known.text // processes in the same cgroup share it
	return known, true, nil
}

// placementOf parses the text of a cgroup file, or knows it already.
func (id *Identifier) placementOf(text string) *placement {
	p := id.placements[text]
	if p == nil {
		if len(id.placements) > len(id.known) {
			clear(id.placements) // it outgrew the processes: most of it is of some that ended
		}
		absolute := id.namespace.absolute([]byte(text))
		p = &placement{text: text}
		p.Placement, p.delegate = id.parse(absolute)
		if id.wanted.ProcessCgroup {
			p.own = ProcessCgroup(absolute)
		}
		id.placements[text] = p
	}
	return p
}

// parse reads a cgroup file, and leaves out what is not wanted.
func (id *Identifier) parse(file []byte) (Placement, delegate) {
	p, by := parseCgroup(file)
	if !id.wanted.Unit {
		p.Unit = units.SystemdUnit{}
	}
	return p, by
}

// PlaceShortLived returns where processes were that ran in the cgroup at path, in version 2, and were not identified.
func (id *Identifier) PlaceShortLived(path string) Placement {
	p, _ := id.parse([]byte("0::" + path))
	p.Container.ID, _ = id.holders.idOf(&p)
	return p
}

// Outside tells why cgroups cannot be looked at, nil while they can or there are none: of those that are outside of the
// reader's cgroup namespace only the end of the path is known. Where the namespace could not be found it is looked for
// again.
func (id *Identifier) Outside(now time.Time) error {
	if id.outside && id.namespace.findAgain(now) {
		clear(id.placements)
		clear(id.holders) // by cgroups that have other paths now
		for i := range id.known {
			id.known[i].holder = nil
		}
		for i := range id.known {
			if e := &id.known[i]; e.cgroup != "" {
				before := e.identity
				id.place(e, id.placementOf(e.cgroup))
				e.compare(&before)
			}
		}
		id.unsettled = true // those that sleep are looked at, too
	}
	id.outside = id.outside && slices.ContainsFunc(id.known, func(e entry) bool { return e.isOutside() })
	if !id.outside {
		return nil
	}
	return fmt.Errorf("what containers' cgroups count and request cannot be read from the receiver's cgroup namespace: %w",
		cmp.Or(id.namespace.failed, errElsewhere))
}

var errElsewhere = errors.New("their paths lead out of the mounted hierarchy")

func (e *entry) isOutside() bool {
	return strings.HasPrefix(e.identity.Cgroup, "/..") || strings.HasPrefix(e.identity.ProcessCgroup, "/..")
}
