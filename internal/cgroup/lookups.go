// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"hash/maphash"
	"io/fs"
	"os"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// lookups finds files of cgroups by their paths. Any user can hold the lock of a cgroup's directory
// forever, and a cgroup file system never looks up a name without that lock (dev/kernel-reads.md),
// so lookups have a deadline.
type lookups struct {
	guard *kernfs.Guard[*finder]
	seed  maphash.Seed
}

// finder looks up one file at a time.
type finder struct {
	dirs, known map[string]*kernfs.Dir // by mount point
	buf         []byte

	// The parameters: a mount point, a cgroup relative to it, and a file of the cgroup.
	mount, sub, name string

	// The results.
	kept  kernfs.Kept
	inode uint64
	text  []byte
	has   bool
	found []directory
	names []string
	err   error
}

// directory is a cgroup that a walk found, by its path relative to the mount point.
type directory struct {
	below string
	info  fs.FileInfo
}

func newLookups(options kernfs.GuardOptions[*finder]) lookups {
	options.Everywhere = true // hierarchies that cannot be blocked are read without the Guard
	options.New = func() *finder {
		return &finder{dirs: map[string]*kernfs.Dir{}, known: map[string]*kernfs.Dir{}, buf: make([]byte, fileRoom)}
	}
	return lookups{guard: kernfs.NewGuard(options), seed: maphash.MakeSeed()}
}

// Close implements kernfs.Job.
func (f *finder) Close() error {
	errs := []error{f.kept.Close()}
	for _, d := range f.dirs {
		errs = append(errs, d.Close())
	}
	for _, d := range f.known {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

func (f *finder) dir() *kernfs.Dir {
	d := f.dirs[f.mount]
	if d == nil {
		d = kernfs.NewKillable(f.mount)
		f.dirs[f.mount] = d
	}
	return d
}

// dirOfKnown returns the mount point for files that were looked up before. The kernel finds them in
// its cache, which takes a fifth of the time of a killable lookup.
func (f *finder) dirOfKnown() *kernfs.Dir {
	d := f.known[f.mount]
	if d == nil {
		d = kernfs.New(f.mount)
		f.known[f.mount] = d
	}
	return d
}

// The lookups. open opens a file into kept, openKnown opens a file that was opened before, read
// reads a file, look determines whether a cgroup exists, walk finds all cgroups, and list finds the
// outermost ones.
func (f *finder) open()      { f.inode, f.err = f.dir().OpenIn(&f.kept, f.sub, f.name) }
func (f *finder) openKnown() { f.inode, f.err = f.dirOfKnown().OpenIn(&f.kept, f.sub, f.name) }
func (f *finder) read()      { f.text, f.err = f.dir().ReadIn(f.sub, f.name, f.buf) }
func (f *finder) look()      { f.has, f.err = f.dir().Has(f.sub), nil }

func (f *finder) walk() {
	f.found = nil
	f.err = walk(f.dir(), func(below string, info fs.FileInfo) error {
		f.found = append(f.found, directory{below, info})
		return nil
	})
}

func (f *finder) list() { f.names, f.err = list(f.mount) }

// list returns the names of the directories in a directory.
func list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// find runs a lookup and returns the finder with its results, which are valid until the next
// lookup.
func (l *lookups) find(h *hierarchy, sub, name string, lookup func(*finder)) (*finder, error) {
	f := l.guard.Job()
	f.mount, f.sub, f.name = h.dir.Path(), sub, name
	if err := l.guard.Do(kernfs.Subject{ID: maphash.String(l.seed, sub)}, lookup); err != nil {
		return nil, err
	}
	return f, f.err
}

// open opens a file of a cgroup into k. known reports whether it was opened before.
func (l *lookups) open(h *hierarchy, k *kernfs.Kept, sub, name string, known bool) (inode uint64, err error) {
	if !h.guarded {
		return h.dir.OpenIn(k, sub, name)
	}
	open := (*finder).open
	if known {
		open = (*finder).openKnown
	}
	f, err := l.find(h, sub, name, open)
	if err != nil {
		return 0, err
	}
	*k, f.kept = f.kept, kernfs.Kept{}
	return f.inode, nil
}

// read reads a file of a cgroup into buf, or into another buffer.
func (l *lookups) read(h *hierarchy, sub, name string, buf []byte) ([]byte, error) {
	if !h.guarded {
		return h.dir.ReadIn(sub, name, buf)
	}
	f, err := l.find(h, sub, name, (*finder).read)
	if err != nil {
		return nil, err
	}
	return f.text, nil
}

// has reports whether a hierarchy has a cgroup. It returns true if that cannot be determined.
func (l *lookups) has(h *hierarchy, sub string) bool {
	if !h.guarded {
		return h.dir.Has(sub)
	}
	f, err := l.find(h, sub, "", (*finder).look)
	return err != nil || f.has
}

// walk calls yield for each cgroup of a hierarchy until yield returns an error.
func (l *lookups) walk(h *hierarchy, yield func(below string, info fs.FileInfo) error) error {
	if !h.guarded {
		return walk(h.dir, yield)
	}
	f, err := l.find(h, "", "", (*finder).walk)
	if err != nil {
		return err
	}
	found := f.found
	f.found = nil
	for _, d := range found {
		if err := yield(d.below, d.info); err != nil {
			return err
		}
	}
	return nil
}

// outermost returns the paths of the cgroups of a hierarchy that are directly below its root.
func (l *lookups) outermost(h *hierarchy) (names []string, err error) {
	if !h.guarded {
		return list(h.dir.Path())
	}
	f, err := l.find(h, "", "", (*finder).list)
	if err != nil {
		return nil, err
	}
	return f.names, nil
}

// begin begins a scan.
func (l *lookups) begin() { l.guard.Begin(time.Now()) }

// err returns an error if users lock directories, or if lookups take too long.
func (l *lookups) err() error {
	switch err := l.guard.Err(""); {
	case err == nil:
		return nil
	case errors.Is(err, kernfs.ErrSlow):
		return errors.New("counters of some cgroups are not read, because lookups in their directories are slow")
	}
	return errors.New("counters of some cgroups are not read, because a user blocks lookups in their directories")
}
