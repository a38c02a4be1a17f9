// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// IdleClock counts the time that the CPUs of a node are idle, by /proc/uptime. The kernel measures
// the idle time (fs/proc/stat.c, get_idle_time). CPU time of a task between two ticks is therefore
// not counted as idle time. There are two exceptions:
//
//   - With periodic ticks (nohz=off or CONFIG_HZ_PERIODIC), the kernel samples the idle time at
//     ticks. CPU time of a task that runs only between ticks is counted as idle time, here and in
//     /proc/stat, so power models do not count it as busy time either.
//   - Before Linux 5.16, idle time of a CPU is counted when the CPU stops being idle
//     (fs/proc/uptime.c). The clock is late, and may count more time than passed.
//
// An IdleClock is not safe for concurrent use.
type IdleClock struct {
	file   kernfs.File
	online *divide.Online
	buf    [64]byte
}

// NewIdleClock returns the clock of the machine whose root directory is at root. It does not access
// the machine.
func NewIdleClock(root string) *IdleClock {
	return &IdleClock{file: kernfs.File{Path: filepath.Join(root, "proc/uptime"), Quick: true}, online: divide.NewOnline(root)}
}

// Read returns the idle time of all CPUs since the boot, in hundredths of a second. It makes one
// raw system call.
func (c *IdleClock) Read() (units.CPUTime, error) {
	b, err := c.file.Read(c.buf[:])
	if err != nil {
		return 0, err
	}
	f := fields{rest: b}
	f.skip(1)
	idle, err := ParseUptime(f.rest)
	return units.CPUTime(idle), err
}

// CPUs returns the number of CPUs that are online, 0 if it cannot be read.
func (c *IdleClock) CPUs() int {
	if _, err := c.online.Read(); err != nil {
		return 0
	}
	return len(c.online.CPUs())
}

// Close closes the files.
func (c *IdleClock) Close() error {
	_ = c.file.Close() // it was only read from
	return c.online.Close()
}
