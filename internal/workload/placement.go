// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// cgroupText is the text of a cgroup file, or the path of a version 2 cgroup, and the placement of
// its processes.
type cgroupText struct {
	Placement
	text   string      // a path begins with a slash, a file does not
	own    string      // path of the process's own cgroup
	owner  cgroupOwner // owner of the virtual machine, otherwise of the process
	placed *Placement  // placement of the last process
}

// place returns a Placement that equals p and that processes in the same cgroup share.
func (c *cgroupText) place(p *Placement) *Placement {
	switch {
	case c.placed != nil && *c.placed == *p:
	case c.Placement == *p:
		c.placed = &c.Placement
	default:
		own := *p
		c.placed = &own
	}
	return c.placed
}

// isInside reports whether the cgroup belongs to a workload other than a systemd unit. If version 1
// is in use, a process in a container may still be in the version 2 cgroup of the daemon that
// started the container.
func (c *cgroupText) isInside() bool {
	w := c.Workload
	w.Unit = identity.SystemdUnit{}
	return w != identity.Workload{}
}

// isUnified reports whether the process is only in a version 2 cgroup.
func (c *cgroupText) isUnified() bool {
	return strings.HasPrefix(c.text, "/") || strings.HasPrefix(c.text, unified)
}

// readCgroup reads the process's cgroup file. It returns noCgroup if the file could not be read or
// has not changed.
func (id *Identifier) readCgroup(p *proc.Process, e *entry) (*cgroupText, error) {
	text, err := id.readFound(p, e, (*files).readCgroup)
	if err != nil || len(text) == 0 {
		return noCgroup, err
	}
	e.reads.stray, id.version1 = false, !bytes.HasPrefix(text, []byte(unified))
	if string(text) == e.in.text {
		return noCgroup, nil
	}
	if known := id.cgroups[string(text)]; known != nil {
		return known, nil
	}
	return id.textOf(string(text)), nil
}

// cgroupOf returns the cgroup in the scan of a process whose cgroup file cannot be read. It returns
// noCgroup if the path is not available, if only the file shows the cgroup (version 1), or if the
// cgroup has not changed. If the path is not available, the process is stray: cgroupOf is called
// again in the next scan.
func (id *Identifier) cgroupOf(p *proc.Process, e *entry) *cgroupText {
	isNew := e.in == noCgroup
	if id.wanted.CgroupPath == nil || p.Cgroup == 0 || !isNew && (p.Cgroup == e.reads.cgroup && !e.reads.stray || !e.in.isUnified()) {
		return noCgroup
	}
	path := id.wanted.CgroupPath(p.Cgroup)
	e.reads.stray = path == ""
	if e.reads.stray || isNew && path == "/" {
		return noCgroup
	}
	in := id.textOf(path)
	if isNew && id.version1 && !in.isInside() {
		return noCgroup
	}
	return in
}

// textOf returns the text of a cgroup file, or the path of a version 2 cgroup, with the placement
// of its processes.
func (id *Identifier) textOf(text string) *cgroupText {
	c := id.cgroups[text]
	if c == nil {
		if len(id.cgroups) > len(id.known) {
			clear(id.cgroups) // most of their processes exited
		}
		file := fileOf(text)
		if !strings.HasPrefix(text, "/") {
			file = id.namespace.absolute([]byte(text))
		}
		c = &cgroupText{text: text}
		c.Placement, c.owner = id.parse(file)
		if id.wanted.ProcessCgroup {
			c.own = ProcessCgroup(file)
		}
		id.cgroups[text] = c
	}
	return c
}

// fileOf returns the cgroup file of a process that is only in the version 2 cgroup with this path.
func fileOf(path string) []byte { return []byte(unified + path) }

// parse parses a cgroup file, and omits the unit unless it is wanted.
func (id *Identifier) parse(file []byte) (Placement, cgroupOwner) {
	p, owner := parseCgroup(file)
	if !id.wanted.Unit {
		p.Unit = identity.SystemdUnit{}
	}
	return p, owner
}

// PlaceShortLived returns the placement of short-lived processes, which were not identified, by the
// path of their cgroup in version 2.
func (id *Identifier) PlaceShortLived(path string) Placement {
	if id.all != nil {
		return *id.all
	}
	p, _ := id.parse(fileOf(path))
	var by *holder
	if p.Container.ID, by = id.holders.idOf(&p); by != nil {
		p.Names = by.names
	} else {
		p.Names = id.namesOf(&p)
	}
	return p
}

// Outside returns an error if the cgroups of some processes cannot be read, because they are
// outside of the reader's cgroup namespace and only the end of their path is available. Outside
// searches again for a namespace that could not be found.
func (id *Identifier) Outside(now time.Time) error {
	n := &id.namespace
	if n.outside && n.findAgain(now) {
		id.placeAgain()
	}
	if n.outside {
		n.outside = slices.ContainsFunc(id.known, func(e entry) bool { return e.isOutside() })
	}
	if !n.outside {
		return nil
	}
	return fmt.Errorf("counters and requests of containers' cgroups cannot be read from the receiver's cgroup namespace: %w",
		cmp.Or(n.failed, errElsewhere))
}

var errElsewhere = errors.New("their paths lead out of the mounted hierarchy")

// placeAgain places all processes again, because the paths of their cgroups have changed.
func (id *Identifier) placeAgain() {
	clear(id.cgroups)
	clear(id.holders)
	for i := range id.known {
		id.known[i].holder = nil
	}
	for i := range id.known {
		if e := &id.known[i]; !e.isEmpty() && e.in != noCgroup {
			before := *e
			id.place(e, id.textOf(e.in.text))
			e.compare(&before)
		}
	}
	id.guests.unsettled = true // sleeping processes are identified again as well
}

// isOutside reports whether the path of the process's cgroup is outside of the mounted hierarchy.
func (e *entry) isOutside() bool {
	return !e.isEmpty() && (strings.HasPrefix(e.placed.Cgroup, "/..") || strings.HasPrefix(e.in.own, "/.."))
}
