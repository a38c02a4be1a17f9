// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// processFiles describes processes of this machine from /proc. A nil *processFiles does not
// describe any.
type processFiles struct {
	files *kernfs.Guard[*processFile]
	boot  time.Time
}

// processFile reads the files of one process at a time.
type processFile struct {
	fs   procfs.FS
	pid  int
	stat procfs.ProcStat
	args []string
	err  error
}

// Close implements kernfs.Job.
func (*processFile) Close() error { return nil }

func (f *processFile) read() {
	var proc procfs.Proc
	if proc, f.err = f.fs.Proc(f.pid); f.err != nil {
		return
	}
	if f.stat, f.err = proc.Stat(); f.err == nil {
		f.args, f.err = proc.CmdLine()
	}
}

// newProcessFiles returns a reader of the processes of the machine below a root directory, or nil if
// there is no /proc.
func newProcessFiles(root string) *processFiles {
	fs, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil
	}
	boot, err := cpu.BootTime(root)
	if err != nil {
		return nil
	}
	return &processFiles{boot: boot, files: kernfs.NewGuard(kernfs.GuardOptions[*processFile]{
		Root: root, New: func() *processFile { return &processFile{fs: fs} },
	})}
}

// sameStart is the maximum difference between two creation times of one process. The start of the
// machine, in whole seconds, is part of them, and changes when the clock is set.
const sameStart = 1500 * time.Millisecond

// describe adds arguments and CPU time to a row, if its process is on this machine. created is
// its creation time in ISO 8601: another process may have the same PID.
func (p *processFiles) describe(r *top.Row, created string) {
	if p == nil || r.PID <= 0 {
		return
	}
	reported, err := time.Parse(time.RFC3339Nano, created)
	if err != nil {
		return
	}
	f := p.files.Job()
	f.pid = int(r.PID)
	if p.files.Do(kernfs.Subject{PID: r.PID}, (*processFile).read) != nil || f.err != nil {
		return
	}
	if d := p.boot.Add(time.Duration(f.stat.Starttime) * time.Duration(units.Tick)).Sub(reported); d.Abs() <= sameStart {
		r.CPUTime = time.Duration(f.stat.UTime+f.stat.STime) * time.Duration(units.Tick)
		r.Text[top.Arguments] = argumentsOf(f.args)
	}
}

// begin begins a frame, which waits only briefly for processes that block reads of their files.
func (p *processFiles) begin(now time.Time) {
	if p != nil {
		p.files.Begin(now)
	}
}

// argumentsOf returns a process's arguments without its name. A process that wrote its own title
// has one argument, of several words.
func argumentsOf(args []string) string {
	if len(args) == 1 {
		_, title, _ := strings.Cut(args[0], " ")
		return title
	}
	return strings.Join(args[min(1, len(args)):], " ")
}
