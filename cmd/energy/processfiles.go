// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/stall"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// processFiles describes processes of this machine from /proc. A nil *processFiles does not describe any.
type processFiles struct {
	files *stall.Guard[*processFile]
	boot  time.Time
	users map[uint64]string // names by number
	// owners are the users of processes without the attribute for it.
	owners map[snapshot.Identity]string
}

// processFile reads the files of one process at a time.
type processFile struct {
	fs   procfs.FS
	pid  int
	stat procfs.ProcStat
	uid  uint64 // the effective one, as ps(1) shows it
	args []string
	err  error
}

// Close implements stall.Job.
func (*processFile) Close() error { return nil }

func (f *processFile) readStat() {
	var proc procfs.Proc
	if proc, f.err = f.fs.Proc(f.pid); f.err != nil {
		return
	}
	if f.stat, f.err = proc.Stat(); f.err != nil {
		return
	}
	var status procfs.ProcStatus
	status, f.err = proc.NewStatus()
	f.uid = status.UIDs[1]
}

func (f *processFile) readArguments() {
	var proc procfs.Proc
	if proc, f.err = f.fs.Proc(f.pid); f.err == nil {
		f.args, f.err = proc.CmdLine()
	}
}

// newProcessFiles returns what reads the processes of a machine whose root directory is given, or
// nil if it has no /proc.
func newProcessFiles(root string) *processFiles {
	fs, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil
	}
	p := &processFiles{users: map[uint64]string{}, files: stall.New(stall.Options[*processFile]{
		Root: root, New: func() *processFile { return &processFile{fs: fs} },
	})}
	if p.boot, err = cpu.BootTime(root); err != nil {
		return nil
	}
	return p
}

// sameStart is the maximum difference between two creation times of one process. The start of the
// machine, in whole seconds, is part of them, and changes when the clock is set.
const sameStart = 1500 * time.Millisecond

// nameOwners sets the owner of processes that lack the attribute, if they run on this machine.
func (p *processFiles) nameOwners(s *snapshot.Snapshot) {
	if p == nil {
		return
	}
	owners := map[snapshot.Identity]string{}
	for i := range s.Rows {
		r := &s.Rows[i]
		if r.Kind != snapshot.Process || r.Identity[snapshot.Owner] != "" {
			continue
		}
		owner, ok := p.owners[r.Identity]
		if !ok {
			pid, _ := strconv.ParseInt(r.Identity[snapshot.PID], 10, 32)
			found := top.Row{PID: int32(pid)}
			p.describe(&found, r.Identity[snapshot.Created])
			owner = found.Text[top.User]
		}
		owners[r.Identity] = owner // also if it is not found, so that a process has one owner
		r.Identity[snapshot.Owner] = owner
	}
	p.owners = owners
}

// describe adds user, arguments and CPU time to a row, if its process is on this machine. created
// is when it was, in ISO 8601: another process may have the same number.
func (p *processFiles) describe(r *top.Row, created string) {
	if p == nil || r.PID <= 0 {
		return
	}
	told, err := time.Parse(time.RFC3339Nano, created)
	if err != nil {
		return
	}
	f := p.files.Job()
	f.pid = int(r.PID)
	if p.files.Run(r.PID, 0, (*processFile).readStat) != nil || f.err != nil {
		return
	}
	if d := p.boot.Add(time.Duration(f.stat.Starttime) * time.Duration(units.Tick)).Sub(told); d.Abs() > sameStart {
		return
	}
	r.CPUTime = time.Duration(f.stat.UTime+f.stat.STime) * time.Duration(units.Tick)
	r.Text[top.User] = p.userName(f.uid)
	if p.files.Run(r.PID, 0, (*processFile).readArguments) == nil && f.err == nil {
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

// userName returns the name of a user of this machine, or else the number.
func (p *processFiles) userName(uid uint64) string {
	name, known := p.users[uid]
	if !known {
		name = strconv.FormatUint(uid, 10)
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		p.users[uid] = name
	}
	return name
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}
