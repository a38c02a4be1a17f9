// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
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
	owner  cgroupOwner // of the virtual machine, else of the process
	placed *Placement  // of the process that was placed last
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

// readCgroup reads the process's cgroup file. It returns nil if the file could not be read or is
// the same as before.
func (id *Identifier) readCgroup(p *proc.Process, e *entry) (*cgroupText, error) {
	text, err := id.readFound(p, e, (*files).readCgroup)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	e.stray, id.version1 = false, !bytes.HasPrefix(text, []byte(unified))
	if e.in != nil && string(text) == e.in.text {
		return nil, nil
	}
	known := id.cgroups[string(text)]
	if known == nil {
		known = id.textOf(string(text))
	}
	return known, nil
}

// cgroupOf returns the cgroup of a process by the ID in the scan, for a process whose cgroup file
// cannot be read. It returns nil if the path is unknown, if only the file shows the cgroup (version
// 1), or if the cgroup is the one that is already known. If the path is unknown, the process is
// stray: cgroupOf is called again in the next scan.
func (id *Identifier) cgroupOf(p *proc.Process, e *entry) *cgroupText {
	if id.wanted.CgroupPath == nil || p.Cgroup == 0 || e.in != nil && (p.Cgroup == e.group && !e.stray || !e.in.isUnified()) {
		return nil
	}
	path := id.wanted.CgroupPath(p.Cgroup)
	if e.stray = path == ""; e.stray {
		return nil
	}
	if e.in != nil {
		return id.textOf(path)
	}
	if path == "/" {
		return nil
	}
	in := id.textOf(path)
	if id.version1 && !in.isInside() {
		return nil
	}
	return in
}

// isInside reports whether the cgroup is in a workload other than a systemd unit. If version 1 is
// in use, a process in a container may still be in the version 2 cgroup of the daemon that started
// the container.
func (c *cgroupText) isInside() bool {
	w := c.Workload
	w.Unit, w.Names = identity.SystemdUnit{}, nil
	return w != identity.Workload{}
}

// isUnified reports whether the process is only in a version 2 cgroup.
func (c *cgroupText) isUnified() bool {
	return strings.HasPrefix(c.text, "/") || strings.HasPrefix(c.text, unified)
}

// fileOf returns the cgroup file of a process that is only in the version 2 cgroup with this path.
func fileOf(path string) []byte { return []byte(unified + path) }

// textOf returns the text of a cgroup file, or the path of a version 2 cgroup, with the placement
// of its processes.
func (id *Identifier) textOf(text string) *cgroupText {
	p := id.cgroups[text]
	if p == nil {
		if len(id.cgroups) > len(id.known) {
			clear(id.cgroups) // it outgrew the processes: most of them ended
		}
		absolute := fileOf(text)
		if !strings.HasPrefix(text, "/") {
			absolute = id.namespace.absolute([]byte(text))
		}
		p = &cgroupText{text: text}
		p.Placement, p.owner = id.parse(absolute)
		if id.wanted.ProcessCgroup {
			p.own = ProcessCgroup(absolute)
		}
		id.cgroups[text] = p
	}
	return p
}

// parse reads a cgroup file, and leaves out what is not wanted.
func (id *Identifier) parse(file []byte) (Placement, cgroupOwner) {
	p, by := parseCgroup(file)
	if !id.wanted.Unit {
		p.Unit = identity.SystemdUnit{}
	}
	return p, by
}

// PlaceShortLived returns the placement of short-lived processes, which were not identified, by the
// path of their cgroup in version 2.
func (id *Identifier) PlaceShortLived(path string) Placement {
	if id.wanted.Everything != "" {
		return Placement{Workload: identity.Workload{Container: identity.Container{ID: id.wanted.Everything}}}
	}
	p, _ := id.parse(fileOf(path))
	var by *holder
	if p.Container.ID, by = id.holders.idOf(&p); by != nil {
		p.Names = by.names
	} else {
		p.Names = id.wanted.Names.of(&p)
	}
	return p
}

// Outside returns why the cgroups of some processes cannot be read, nil if all can: only the end of
// the path is known of a cgroup outside of the reader's cgroup namespace. It looks again for a
// namespace that could not be found.
func (id *Identifier) Outside(now time.Time) error {
	if id.outside && id.namespace.findAgain(now) {
		clear(id.cgroups)
		clear(id.holders) // by cgroups that have other paths now
		for i := range id.known {
			id.known[i].holder = nil
		}
		for i := range id.known {
			if e := &id.known[i]; e.in != nil {
				before := *e
				id.place(e, id.textOf(e.in.text))
				e.compare(&before)
			}
		}
		id.unsettled = true // those that sleep are looked at, too
	}
	if id.outside {
		id.outside = false
		for i := range id.known {
			id.outside = id.outside || id.known[i].isOutside()
		}
	}
	if !id.outside {
		return nil
	}
	return fmt.Errorf("what containers' cgroups count and request cannot be read from the receiver's cgroup namespace: %w",
		cmp.Or(id.namespace.failed, errElsewhere))
}

var errElsewhere = errors.New("their paths lead out of the mounted hierarchy")

func (e *entry) isOutside() bool {
	return e.in != nil && (strings.HasPrefix(e.placed.Cgroup, "/..") || strings.HasPrefix(e.in.own, "/.."))
}
