// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"strconv"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// count sets the numbers of threads, cores and sockets from the directory sys/devices/system/cpu.
// The kernel provides the topology there for every architecture
// (Documentation/admin-guide/cputopology.rst). If it cannot be read, Threads is not changed.
func (m *Machine) count(path string) {
	t := topology{dir: kernfs.New(path), buf: make([]byte, 32<<10)}
	defer func() { _ = t.dir.Close() }() // it was only read from
	text, err := t.dir.Read("online", t.buf)
	if err != nil {
		return
	}
	if err := kernfs.ParseList(text, func(cpu int) { t.online = append(t.online, cpu) }); err != nil {
		return
	}
	m.Threads = len(t.online)
	// Linux 5.3 added the first name of each list, and keeps the second name.
	m.Cores = t.groups("core_cpus_list", "thread_siblings_list")
	m.Sockets = t.groups("package_cpus_list", "core_siblings_list")
}

type topology struct {
	dir    *kernfs.Dir
	buf    []byte
	online []int
}

// groups returns the number of groups of the online CPUs. Each CPU has a file that lists the
// members of its group. The name of the file is the first of names that exists. It returns 0 if the
// files cannot be read.
func (t *topology) groups(names ...string) (number int) {
	grouped := map[int]bool{}
	for _, cpu := range t.online {
		if grouped[cpu] {
			continue
		}
		list, err := t.list(cpu, names)
		if err != nil || kernfs.ParseList(list, func(member int) { grouped[member] = true }) != nil {
			return 0
		}
		number++
	}
	return number
}

func (t *topology) list(cpu int, names []string) (list []byte, err error) {
	for _, name := range names {
		list, err = t.dir.Read("cpu"+strconv.Itoa(cpu)+"/topology/"+name, t.buf)
		if !errors.Is(err, fs.ErrNotExist) {
			return list, err
		}
	}
	return nil, err
}

// readMemory returns MemTotal of the file proc/meminfo in bytes, or 0 if it cannot be read.
func readMemory(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return memTotal(text)
}

// memTotal returns MemTotal in the text of proc/meminfo, in bytes.
func memTotal(text []byte) uint64 {
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			value, ok = bytes.CutSuffix(value, []byte(" kB\n"))
			kilobytes, err := kernfs.ParseUint(bytes.TrimSpace(value))
			if !ok || err != nil || kilobytes > math.MaxUint64>>10 {
				return 0
			}
			return kilobytes << 10
		}
	}
	return 0
}
