// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// lookups finds files of cgroups by their paths. Any user can hold the lock of a cgroup's directory
// forever, and cgroup file systems take this lock for each lookup (dev/kernel-reads.md). Therefore
// lookups have a deadline.
type lookups struct {
	guard *kernfs.Guard[*finder]
	plain *finder // for hierarchies that cannot be blocked
	seed  maphash.Seed
}

// finder looks up one file at a time.
type finder struct {
	dirs map[mountPoint]*kernfs.Dir
	buf  []byte

	// The parameters: a mount point, a cgroup relative to it, and a file of the cgroup.
	mountPoint
	sub, name string

	// The results.
	kept  kernfs.Kept
	inode uint64
	text  []byte
	has   bool
	found []directory
	names []string
	err   error
}

// mountPoint identifies a directory of a finder: the mount point, and whether its files were looked
// up before. The kernel finds such files in its cache, which takes a fifth of the time of a
// killable lookup.
type mountPoint struct {
	mount string
	known bool
}

// directory is a cgroup that a walk found, by its path relative to the mount point.
type directory struct {
	below string
	info  fs.FileInfo
}

func newLookups(options kernfs.GuardOptions[*finder]) lookups {
	options.Everywhere = true // hierarchies that cannot be blocked are read without the Guard
	options.New = func() *finder {
		return &finder{dirs: map[mountPoint]*kernfs.Dir{}, buf: make([]byte, fileRoom)}
	}
	return lookups{guard: kernfs.NewGuard(options), plain: options.New(), seed: maphash.MakeSeed()}
}

// close closes the directories. Later lookups open them again.
func (l *lookups) close() error { return errors.Join(l.guard.Close(), l.plain.Close()) }

// Close implements kernfs.Job.
func (f *finder) Close() error {
	errs := []error{f.kept.Close()}
	for _, d := range f.dirs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

func (f *finder) dir() *kernfs.Dir {
	d := f.dirs[f.mountPoint]
	if d == nil {
		d = kernfs.NewKillable(f.mount)
		if f.known {
			d = kernfs.New(f.mount)
		}
		f.dirs[f.mountPoint] = d
	}
	return d
}

// The lookups. open opens a file into kept, read reads a file, look determines whether a cgroup
// exists, walk finds all cgroups, and list finds the cgroups directly below the root.
func (f *finder) open() { f.inode, f.err = f.dir().OpenIn(&f.kept, f.sub, f.name) }
func (f *finder) read() { f.text, f.err = f.dir().ReadIn(f.sub, f.name, f.buf) }
func (f *finder) look() { f.has, f.err = f.dir().Has(f.sub), nil }

// walk omits directories that are removed during the walk.
func (f *finder) walk() {
	f.found = nil
	if _, f.err = os.Lstat(f.mount); f.err != nil {
		return
	}
	f.err = filepath.WalkDir(f.mount, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a file, or a directory that was removed
		}
		below, err := filepath.Rel(f.mount, path)
		if err != nil || !f.dir().Has(below) { // a killable lookup, unlike Info
			return err
		}
		if info, err := d.Info(); err == nil {
			f.found = append(f.found, directory{below, info})
		}
		return nil
	})
}

func (f *finder) list() {
	entries, err := os.ReadDir(f.mount)
	f.names, f.err = nil, err
	for _, e := range entries {
		if e.IsDir() {
			f.names = append(f.names, e.Name())
		}
	}
}

// find runs a lookup and returns the finder with its results, which are valid until the next
// lookup. known reports whether the file was opened before.
func (l *lookups) find(h *hierarchy, sub, name string, known bool, lookup func(*finder)) (*finder, error) {
	f := l.plain
	if h.guarded {
		f = l.guard.Job()
	}
	f.mountPoint, f.sub, f.name = mountPoint{h.dir.Path(), known}, sub, name
	if !h.guarded {
		lookup(f)
		return f, f.err
	}
	if err := l.guard.Do(kernfs.Subject{ID: maphash.String(l.seed, sub)}, lookup); err != nil {
		return nil, err
	}
	return f, f.err
}

// open opens a file of a cgroup into k. known reports whether it was opened before.
func (l *lookups) open(h *hierarchy, k *kernfs.Kept, sub, name string, known bool) (inode uint64, err error) {
	f, err := l.find(h, sub, name, known, (*finder).open)
	if err != nil {
		return 0, err
	}
	*k, f.kept = f.kept, kernfs.Kept{}
	return f.inode, nil
}

// read reads a file of a cgroup. The text is valid until the next lookup.
func (l *lookups) read(h *hierarchy, sub, name string) ([]byte, error) {
	f, err := l.find(h, sub, name, false, (*finder).read)
	if err != nil {
		return nil, err
	}
	return f.text, nil
}

// has reports whether a hierarchy has a cgroup. It returns true if that cannot be determined.
func (l *lookups) has(h *hierarchy, sub string) bool {
	f, err := l.find(h, sub, "", false, (*finder).look)
	return err != nil || f.has
}

// walk returns all cgroups of a hierarchy.
func (l *lookups) walk(h *hierarchy) ([]directory, error) {
	f, err := l.find(h, "", "", false, (*finder).walk)
	if err != nil {
		return nil, err
	}
	return f.found, nil
}

// outermost returns the paths of the cgroups of a hierarchy that are directly below its root.
func (l *lookups) outermost(h *hierarchy) (names []string, err error) {
	f, err := l.find(h, "", "", false, (*finder).list)
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
