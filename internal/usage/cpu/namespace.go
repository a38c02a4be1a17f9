// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

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
