// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/cgroups"
)

// cgroupPaths tells the paths of cgroups of the v2 hierarchy by their ids: of those that were created since it
// listens, and of those that are there when it is asked for one that it does not know. Ids are never used again.
type cgroupPaths struct {
	root    string
	created creations // nil where the kernel does not allow it: then only the walk tells
	refused error     // why
	note    func(id uint64, path string)

	// recent and older hold what is known, an empty path for an id that no longer has a directory. Older is
	// dropped when recent is full.
	recent, older map[uint64]string
	room          int

	nextWalk time.Time
	now      func() time.Time
	shared   map[uint64]int // scratch of share: rows of the table's UnseenIn
}

// creations tells which cgroups were created.
type creations interface {
	Drain(yield func(id uint64, path string)) error
	Close() error
}

const (
	// maxPaths is how many paths are remembered at the least.
	maxPaths = 8192
	// walkEvery is how long the tree is not walked again; walkShare bounds the time that walks take to this
	// part of all.
	walkEvery = 10 * time.Second
	walkShare = 100
)

// openCreations is a variable so that a test can refuse it.
var openCreations = func() (creations, error) {
	return orNil[creations](cgroups.OpenCreations(cgroups.CreationsBuffer))
}

// newCgroupPaths returns the paths of the host whose tree is at root. It touches nothing.
func newCgroupPaths(root string) *cgroupPaths {
	c := &cgroupPaths{
		root: root, recent: map[uint64]string{}, room: maxPaths, now: time.Now, shared: map[uint64]int{},
	}
	c.note = c.remember
	return c
}

// listen makes the kernel tell of every cgroup that is created from now on, if it allows that.
func (c *cgroupPaths) listen() {
	c.created, c.refused = openCreations()
}

// learn takes in what was created since the last call.
func (c *cgroupPaths) learn() {
	if c.created != nil {
		_ = c.created.Drain(c.note) // what it does not tell the walk does
	}
}

func (c *cgroupPaths) close() error {
	if c.created == nil {
		return nil
	}
	return c.created.Close()
}

func (c *cgroupPaths) remember(id uint64, path string) {
	if len(c.recent) >= c.room {
		c.older, c.recent = c.recent, map[uint64]string{}
	}
	c.recent[id] = path
}

func (c *cgroupPaths) known(id uint64) (path string, ok bool) {
	if path, ok = c.recent[id]; ok {
		return path, true
	}
	if path, ok = c.older[id]; ok {
		c.remember(id, path)
	}
	return path, ok
}

// path returns the path of a cgroup below the root of the hierarchy, empty where it is not known.
func (c *cgroupPaths) path(id uint64) string {
	p, ok := c.known(id)
	if !ok && c.walk() == nil {
		if p, ok = c.known(id); !ok {
			c.remember(id, "")
		}
	}
	return p
}

// walk looks at all cgroups that are there now.
func (c *cgroupPaths) walk() error {
	began := c.now()
	if began.Before(c.nextWalk) {
		return errWalked
	}
	c.room = math.MaxInt // whatever their number, none may push out another
	err := c.lookAtAll()
	c.room = max(maxPaths, 2*len(c.recent))
	ended := c.now()
	c.nextWalk = ended.Add(max(walkEvery, walkShare*ended.Sub(began)))
	return err
}

var errWalked = errors.New("the cgroups were walked a moment ago")

func (c *cgroupPaths) lookAtAll() error {
	mount, above, err := unifiedMount(c.root)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(mount); err != nil {
		return err
	}
	return filepath.WalkDir(mount, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a file, or removed meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		// The inode's number is the id (fs/kernfs, since Linux 5.5).
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			if below, err := filepath.Rel(mount, dir); err == nil {
				c.remember(stat.Ino, path.Join("/", above, below))
			}
		}
		return nil
	})
}

// share adds what was used in a cgroup that no row is in, and of which nothing else is known, to the table.
func (c *cgroupPaths) share(t *Table, id uint64, used units.CPUTime) {
	i, ok := c.shared[id]
	if !ok {
		i = -1
		if path := c.path(id); path != "" {
			i = len(t.UnseenIn)
			t.UnseenIn = append(t.UnseenIn, CgroupTime{Path: path})
		}
		c.shared[id] = i
	}
	if i >= 0 {
		t.UnseenIn[i].Used += used
	}
}
