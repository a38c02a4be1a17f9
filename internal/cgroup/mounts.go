// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

var (
	errNoHierarchy = errors.New("no cgroup hierarchy is mounted")
	errNoUnified   = errors.New("cgroup v2 is not mounted")
)

// hierarchy is a mounted hierarchy of cgroups.
type hierarchy struct {
	dir *kernfs.Dir // the mount point, as this process can open it
	// mountRoot is the mount's root as mountinfo shows it: "/", or "/.." per level outside the
	// namespace.
	mountRoot string
	// controllers are the controllers of a version 1 hierarchy. It is 0 for version 2, which has
	// all files in one hierarchy.
	controllers controllers
	v2          bool
	// guarded reports whether lookups need a deadline: the mount is a cgroup file system, not a
	// copy of one.
	guarded bool
}

// controllers is a set of version 1 controllers.
type controllers uint8

const (
	controllerCPU controllers = 1 << iota
	controllerCPUAcct
	controllerMemory
)

// The names of controllers in the options of a mount (cgroup-v1/cgroups.rst).
var controllerNames = map[string]controllers{
	"cpu": controllerCPU, "cpuacct": controllerCPUAcct, "memory": controllerMemory,
}

func (h *hierarchy) has(c controllers) bool { return h.controllers&c != 0 }

// version is a version of cgroups.
type version int8

const (
	anyVersion version = iota
	version1
	version2
)

func (h *hierarchy) is(v version) bool { return v == anyVersion || h.v2 == (v == version2) }

// mounts finds the hierarchies of the host whose root directory is root. It reads them once.
type mounts struct {
	root   string
	known  []hierarchy
	failed error // the reason if the hierarchies cannot be read; they are not read again before retry
}

// hierarchies returns the mounted hierarchies: version 2 first, then version 1 in the order of
// mounting.
func (m *mounts) hierarchies() ([]hierarchy, error) {
	if m.known == nil && m.failed == nil {
		m.known, m.failed = findHierarchies(m.root)
	}
	return m.known, m.failed
}

// retry makes hierarchies read the mounts again if that failed.
func (m *mounts) retry() { m.failed = nil }

// close closes the mount points. A later lookup opens them again.
func (m *mounts) close() error {
	var errs []error
	for i := range m.known {
		errs = append(errs, m.known[i].dir.Close())
	}
	return errors.Join(errs...)
}

func findHierarchies(root string) ([]hierarchy, error) {
	infos, err := hostMounts(root)
	if err != nil {
		return nil, err
	}
	var unified, found []hierarchy
	for _, info := range infos {
		h := hierarchy{mountRoot: info.Root, v2: info.FSType == "cgroup2"}
		if info.FSType == "cgroup" {
			for name, controller := range controllerNames {
				if _, ok := info.SuperOptions[name]; ok {
					h.controllers |= controller
				}
			}
		}
		if !h.v2 && h.controllers == 0 {
			continue
		}
		h.dir, h.guarded = kernfs.New(info.MountPoint), kernfs.IsCgroup(info.MountPoint)
		if h.v2 {
			unified = append(unified, h)
		} else {
			found = append(found, h)
		}
	}
	if found = append(unified, found...); found == nil {
		return nil, errNoHierarchy
	}
	return found, nil
}

// unified returns the version 2 hierarchy.
func (m *mounts) unified() (*hierarchy, error) {
	all, err := m.hierarchies()
	if err != nil {
		return nil, err
	}
	if !all[0].v2 {
		return nil, errNoUnified
	}
	return &all[0], nil
}

// hostMounts returns the mounts of the host whose root directory is root. The mount points are
// paths that this process can open. hostMounts reads the mounts of the host's first process, or, if
// that fails, the mounts of this process.
func hostMounts(root string) ([]*procfs.MountInfo, error) {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil, err
	}
	infos, err := mountInfo(proc.Proc(1))
	if err != nil { // not permitted, or hidden altogether (hidepid)
		if infos, err = mountInfo(proc.Self()); err != nil {
			return nil, err
		}
		// The host's are mounted below root, unless root only holds a /proc.
		below := strings.TrimSuffix(root, "/") + "/"
		mounted := func(info *procfs.MountInfo) bool { return strings.HasPrefix(info.MountPoint, below) }
		if slices.ContainsFunc(infos, mounted) {
			return slices.DeleteFunc(infos, func(info *procfs.MountInfo) bool { return !mounted(info) }), nil
		}
	}
	for _, info := range infos {
		info.MountPoint = filepath.Join(root, info.MountPoint)
	}
	return infos, nil
}

func mountInfo(p procfs.Proc, err error) ([]*procfs.MountInfo, error) {
	if err != nil {
		return nil, err
	}
	return p.MountInfo()
}
