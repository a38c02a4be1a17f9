// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"math"
	"path"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// Paths finds the paths of version 2 cgroups by their IDs. It holds the cgroups that were passed to
// Remember, and adds all existing cgroups when Path is called with another ID. The kernel never
// reuses an ID.
//
// A path is kept after its cgroup was removed, because Path is called after a process of that
// cgroup has exited. Paths drops the least recently requested paths, independently of Tree.Sweep.
// Paths is not safe for concurrent use.
type Paths struct {
	mounts  mounts
	lookups lookups

	// recent and older hold the paths, and an empty path for an ID without a directory. older is
	// dropped when recent is full.
	recent, older map[uint64]string
	room          int

	nextWalk time.Time
	now      func() time.Time
}

const (
	// maxPaths is the minimum number of paths that are kept.
	maxPaths = 8192
	// walkEvery is the minimum time between walks. Walks take at most 1/walkShare of the time.
	walkEvery = 10 * time.Second
	walkShare = 100
)

// NewPaths returns the paths of the host whose root directory is root. It does not access the
// machine.
func NewPaths(root string) *Paths {
	lookups := newLookups(kernfs.GuardOptions[*finder]{Root: root})
	return &Paths{mounts: mounts{root: root}, lookups: lookups, recent: map[uint64]string{}, room: maxPaths, now: time.Now}
}

// Remember stores the path of a cgroup.
func (p *Paths) Remember(id uint64, path string) {
	if len(p.recent) >= p.room {
		p.older, p.recent = p.recent, map[uint64]string{}
	}
	p.recent[id] = path
}

func (p *Paths) known(id uint64) (path string, ok bool) {
	if path, ok = p.recent[id]; ok {
		return path, true
	}
	if path, ok = p.older[id]; ok {
		p.Remember(id, path)
	}
	return path, ok
}

// Path returns the path of a cgroup below the root of the hierarchy, or "" if it is not available.
// It may walk the hierarchy, at most every ten seconds and for at most a hundredth of the time.
func (p *Paths) Path(id uint64) string {
	found, ok := p.known(id)
	if !ok && p.walk() {
		if found, ok = p.known(id); !ok {
			p.Remember(id, "")
		}
	}
	return found
}

// walk stores the paths of all cgroups that exist. It returns false if a walk is not allowed yet,
// or if it failed.
func (p *Paths) walk() bool {
	began := p.now()
	if began.Before(p.nextWalk) {
		return false
	}
	p.room = math.MaxInt // a walk never drops paths that it has just found
	err := p.rememberAll()
	p.room = max(maxPaths, 2*len(p.recent))
	ended := p.now()
	p.nextWalk = ended.Add(max(walkEvery, walkShare*ended.Sub(began)))
	return err == nil
}

func (p *Paths) rememberAll() error {
	p.mounts.retry()
	p.lookups.begin()
	host, err := p.mounts.unified()
	if err != nil {
		return err
	}
	defer func() { _ = p.lookups.close() }() // walks are rare, and only read
	all, err := p.lookups.walk(host)
	for _, d := range all {
		// The inode's number is the id (fs/kernfs, since Linux 5.5).
		if stat, ok := d.info.Sys().(*syscall.Stat_t); ok {
			p.Remember(stat.Ino, path.Join("/", host.mountRoot, d.below))
		}
	}
	return err
}
