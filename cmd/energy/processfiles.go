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

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// processFiles describes processes of this machine from /proc. A nil *processFiles describes none.
type processFiles struct {
	fs    procfs.FS
	boot  time.Time
	users map[uint64]string // names by number
}

// newProcessFiles returns what reads the processes of a machine whose root directory is given, or nil where it has no /proc.
func newProcessFiles(root string) *processFiles {
	p := &processFiles{users: map[uint64]string{}}
	var err error
	if p.fs, err = procfs.NewFS(filepath.Join(root, "proc")); err != nil {
		return nil
	}
	if p.boot, err = cpu.BootTime(root); err != nil {
		return nil
	}
	return p
}

// sameStart is how much two statements of when a process was created may differ: they are in whole seconds of the machine's start, whose
// date changes when the clock is set.
const sameStart = 1500 * time.Millisecond

// describe adds user, arguments and CPU time to a row, if its process is on this machine. created is when it was, in ISO 8601: another
// process may have the same number.
func (p *processFiles) describe(r *top.Row, created string) {
	if p == nil || r.PID <= 0 {
		return
	}
	told, err := time.Parse(time.RFC3339Nano, created)
	if err != nil {
		return
	}
	proc, err := p.fs.Proc(int(r.PID))
	if err != nil {
		return
	}
	stat, err := proc.Stat()
	if err != nil {
		return
	}
	if d := p.boot.Add(time.Duration(stat.Starttime) * time.Duration(units.Tick)).Sub(told); d.Abs() > sameStart {
		return
	}
	r.CPUTime = time.Duration(stat.UTime+stat.STime) * time.Duration(units.Tick)
	if status, err := proc.NewStatus(); err == nil {
		r.Text[top.User] = p.userName(status.UIDs[1]) // the effective one, as ps(1) shows it
	}
	if args, err := proc.CmdLine(); err == nil {
		r.Text[top.Arguments] = argumentsOf(args)
	}
}

// argumentsOf returns a process's arguments without its name. A process that wrote its own title has one argument, of several words.
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
