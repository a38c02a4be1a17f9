// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

var errNoNamespaceMount = errors.New("cgroup v2 is not mounted from inside of the namespace")

// NamespaceRoot returns the root of this process's cgroup namespace, as a path in the version 2
// hierarchy of the host whose root directory is root. Paths in /proc/<pid>/cgroup are relative to
// it (cgroup_namespaces(7)). In a container with its own cgroup namespace, NamespaceRoot walks the
// host's hierarchy. It returns an error if it cannot read the host's hierarchy, or the hierarchy
// that is mounted in the namespace.
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
	all, err := lookups.walk(host)
	if err := errors.Join(err, lookups.close(), m.close()); err != nil {
		return "", err
	}
	for _, d := range all {
		if os.SameFile(d.info, begin) {
			return path.Join("/", d.below), nil
		}
	}
	return "", fmt.Errorf("%s does not hold this process's own cgroup", host.dir.Path())
}

// namespaceMount returns the mount point of the root of this process's cgroup namespace. It exists
// if cgroup v2 was mounted from inside the namespace, as container runtimes do.
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
