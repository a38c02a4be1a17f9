// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// kthreadd is the PID of the kernel's thread that starts the others, in the first PID namespace.
const kthreadd = 2

var (
	errNamespace = errors.New("it shows one PID namespace only: run the receiver in the host's " +
		"(hostPID: true on Kubernetes, --pid=host with Docker)")
	errFiltered = errors.New("its list is incomplete: a sandbox or a security module filters it, or scans had too little CPU time")
)

// whyHidden returns the likely cause of processes that a scan of root into t could not see or read,
// and what to do.
func whyHidden(root string, t *proc.Table) error {
	dir := filepath.Join(root, "proc")
	if option := hidepid(dir); option != "" {
		return fmt.Errorf("%s is mounted with hidepid=%s: grant the receiver CAP_SYS_PTRACE, or mount it with gid= of one of its groups",
			dir, option)
	}
	if p := t.Find(kthreadd); p != nil && p.Is(proc.Kernel) {
		return fmt.Errorf("%s: %w", dir, errFiltered)
	}
	return fmt.Errorf("%s: %w", dir, errNamespace)
}

// hidepid returns the mount option hidepid of a proc file system (proc(5)), or an empty string if
// no process is hidden.
func hidepid(mountPoint string) (option string) {
	self, err := procfs.Self()
	if err != nil {
		return ""
	}
	infos, err := self.MountInfo()
	if err != nil {
		return ""
	}
	for _, info := range infos { // the last mount covers the others
		if info.FSType == "proc" && info.MountPoint == mountPoint {
			option = info.SuperOptions["hidepid"]
		}
	}
	if option == "0" || option == "off" {
		return ""
	}
	return option
}
