// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// keptStats are the files /proc/<pid>/stat that stay open between scans: to read an open file takes
// half of the time of opening it anew (BenchmarkPass). The zero keptStats holds none.
//
// An open file stays that of its process, also when another process gets the same PID
// (fs/proc/base.c, get_proc_task).
type keptStats struct {
	files     []keptStat       // by ascending PID
	next      int              // where the scan is: all before it have a lower PID than the last one that was asked for
	allowance kernfs.Allowance // holds one for each of files
}

type keptStat struct {
	pid  int32
	file kernfs.Kept
}

const (
	// maxKept is the maximum number of files that one source keeps open. Each takes a descriptor
	// and 4.4 KiB of kernel memory.
	maxKept = 1024
	// keepWithin is the longest time between two scans for which files are kept open. If it is
	// longer, opening files costs little.
	keepWithin = 2 * time.Second
)

// of returns the open file of a process, nil if there is none. It is fast if called by ascending
// PID, as /proc lists them.
func (k *keptStats) of(pid int32) *kernfs.Kept {
	ordered := k.next == 0 || k.files[k.next-1].pid < pid
	for ordered && k.next < len(k.files) && k.files[k.next].pid < pid {
		k.next++
	}
	if !ordered {
		k.next, _ = slices.BinarySearchFunc(k.files, pid, func(f keptStat, pid int32) int { return cmp.Compare(f.pid, pid) })
	}
	if k.next < len(k.files) && k.files[k.next].pid == pid && k.files[k.next].file.IsOpen() {
		return &k.files[k.next].file
	}
	return nil
}

// update closes the files of processes that exited, and opens those of processes that two
// consecutive scans have shown.
func (k *keptStats) update(proc *kernfs.Dir, t *scan.Table) {
	row, before := 0, len(k.files)
	k.files = slices.DeleteFunc(k.files, func(f keptStat) bool {
		for row < len(t.Processes) && t.Processes[row].PID < f.pid {
			row++
		}
		ended := row == len(t.Processes) || t.Processes[row].PID != f.pid
		if ended {
			_ = f.file.Close() // it was only read from
		}
		return ended || !f.file.IsOpen()
	})
	known := len(k.files)
	k.allowance.GiveBack(before - known)
	if k.allowance.Held >= k.allowance.Most || t.Now-t.BeforeNow > keepWithin {
		return
	}
	i := 0
	for r := range t.Processes {
		p := &t.Processes[r]
		for i < known && k.files[i].pid < p.PID {
			i++
		}
		if p.Born || i < known && k.files[i].pid == p.PID {
			continue
		}
		if !k.allowance.Take() {
			break
		}
		f := keptStat{pid: p.PID}
		if err := proc.OpenOf(&f.file, p.PID, "stat"); err != nil {
			k.allowance.GiveBack(1)
			if kernfs.NoDescriptorLeft(err) {
				k.halveCache()
				break
			}
			continue
		}
		k.files = append(k.files, f)
	}
	if len(k.files) == known {
		return
	}
	slices.SortFunc(k.files, func(a, b keptStat) int { return cmp.Compare(a.pid, b.pid) })
}

// halveCache closes half of the files and halves the allowance, permanently: the process has no
// descriptor left.
func (k *keptStats) halveCache() {
	k.allowance.Most = len(k.files) / 2
	for i := k.allowance.Most; i < len(k.files); i++ {
		_ = k.files[i].file.Close() // it was only read from
	}
}

func (k *keptStats) close() {
	for i := range k.files {
		_ = k.files[i].file.Close() // it was only read from
	}
	k.allowance.GiveBack(len(k.files))
	k.files = nil
}
