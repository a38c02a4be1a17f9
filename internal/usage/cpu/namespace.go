// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// NamespaceRoot returns where the cgroup namespace of this process begins in the tree of cgroup v2 of the host whose tree
// is at root: "/" where it sees all of it. Paths in /proc/<pid>/cgroup are relative to there (cgroup_namespaces(7)),
// as in a container that has a namespace of its own. It is an error where the host's tree or the namespace's cannot be
// looked at.
func NamespaceRoot(root string) (string, error) {
	mount, above, err := unifiedMount(root)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(above+"/", "/../") {
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
	found := ""
	err = filepath.WalkDir(mount, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a file, or removed meanwhile
		}
		if info, err := d.Info(); err != nil || !os.SameFile(info, begin) {
			return nil
		}
		below, err := filepath.Rel(mount, dir)
		found = path.Join("/", below)
		if err != nil {
			return err
		}
		return fs.SkipAll
	})
	if err == nil && found == "" {
		err = fmt.Errorf("%s does not hold this process's own cgroup", mount)
	}
	return found, err
}

var errNoNamespaceMount = errors.New("cgroup v2 is not mounted from inside of the namespace")

// namespaceMount returns where this process sees the beginning of its cgroup namespace: where cgroup v2 was mounted from
// inside, as container runtimes do.
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

// unifiedMount returns where the v2 hierarchy of the host is mounted, and which of its cgroups that shows.
func unifiedMount(root string) (mount, above string, err error) {
	infos, err := hostMounts(root)
	if err != nil {
		return "", "", err
	}
	for _, info := range infos {
		if info.FSType == "cgroup2" {
			return info.MountPoint, info.Root, nil
		}
	}
	return "", "", errNoHierarchy
}

// hostMounts returns the mounts of the host whose tree is at root, with their mount points as this process can open them:
// as the host's first process has them, or else as this one has.
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
