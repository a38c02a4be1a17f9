// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes keep a Ctrl-C from the collector, whose last samples are needed, and end it if this program is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// inPIDNamespace reports whether PIDs here are not those of the host (PROC_PID_INIT_INO in linux/proc_ns.h).
func inPIDNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link != "pid:[4026531836]"
}

// missing returns what the profiler needs and does not have here.
func missing() (names []string) {
	var have [2]unix.CapUserData
	if unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &have[0]) == nil {
		for _, c := range []struct {
			name string
			bit  uint32
		}{{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"CAP_SYS_RESOURCE", unix.CAP_SYS_RESOURCE}} {
			if have[0].Effective&(1<<c.bit) == 0 {
				names = append(names, c.name)
			}
		}
	}
	if _, err := os.Stat("/sys/kernel/tracing/events"); os.IsNotExist(err) {
		names = append(names, "tracefs at /sys/kernel/tracing")
	}
	return names
}
