// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

var errNoNamespaceMount = errors.New("cgroup v2 is not mounted from inside of the namespace")

// NamespaceRoot returns where the cgroup namespace of this process begins in the version 2
// hierarchy of the host whose tree is at root: "/" if it begins at the hierarchy's root. Paths in
// /proc/<pid>/cgroup are relative to there (cgroup_namespaces(7)). In a container with a cgroup
// namespace of its own the beginning is found by a walk over the host's hierarchy. It is an error
// if the host's hierarchy or the namespace's own mount cannot be read.
func NamespaceRoot(root string) (string, error) {
	m := mounts{root: root}
	host, err := m.unified()
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(host.mountRoot+"/", "/../") {
		return "/", nil
	}
	own, err := namespaceMount()
	if err != nil {
		return "", err
	}
	begin, err := os.Stat(own)
	if err != nil {
		return "", err
	}
	lookups := newLookups(kernfs.GuardOptions[*finder]{Root: root})
	found, err := findDir(&lookups, host, begin)
	return found, errors.Join(err, lookups.guard.Close(), m.close())
}

// findDir returns the path in a hierarchy, from "/" on, of the directory that is the same as dir.
func findDir(lookups *lookups, h *hierarchy, dir fs.FileInfo) (found string, err error) {
	err = lookups.walk(h, func(below string, info fs.FileInfo) error {
		if !os.SameFile(info, dir) {
			return nil
		}
		found = path.Join("/", below)
		return fs.SkipAll
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	if err == nil && found == "" {
		err = fmt.Errorf("%s does not hold this process's own cgroup", h.dir.Path())
	}
	return found, err
}

// walk calls yield for each directory at and below dir, with its path relative to dir, until yield
// returns an error. Directories that are removed meanwhile are left out.
func walk(dir *kernfs.Dir, yield func(below string, info fs.FileInfo) error) error {
	mount := dir.Path()
	if _, err := os.Lstat(mount); err != nil {
		return err
	}
	return filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a file, or removed meanwhile
		}
		below, err := filepath.Rel(mount, path)
		if err != nil {
			return err
		}
		if !dir.Has(below) { // which looks up the name, in a way that depends on dir
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		return yield(below, info)
	})
}

// namespaceMount returns where this process sees the beginning of its cgroup namespace: where
// cgroup v2 was mounted from inside, as container runtimes do.
func namespaceMount() (string, error) {
	self, err := procfs.Self()
	infos, err := mountInfo(self, err)
	if err != nil {
		return "", err
	}
	for _, info := range infos {
		if info.FSType == "cgroup2" && info.Root == "/" {
			return info.MountPoint, nil
		}
	}
	return "", errNoNamespaceMount
}
