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
