// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Users finds the names of users in the host's /etc/passwd (passwd(5)). A Users is not safe for
// concurrent use.
type Users struct {
	file     string
	names    map[uint32]string
	users    map[uint32]*user // results of of
	checked  time.Time
	modified time.Time
	size     int64
}

const (
	// checkUsers is the time between checks of the file for changes.
	checkUsers = time.Minute
	// maxPasswd is the maximum number of bytes read of the file, and maxUsers the maximum number of
	// users kept.
	maxPasswd = 4 << 20
	maxUsers  = 1 << 16
)

// NewUsers returns the users of the host whose root directory is root. It does not read files.
func NewUsers(root string) *Users { return &Users{file: filepath.Join(root, "etc/passwd")} }

// begin reads the file if it has changed. now has a monotonic part.
func (u *Users) begin(now time.Time) {
	if !u.checked.IsZero() && now.Sub(u.checked) < checkUsers {
		return
	}
	u.checked = now
	info, err := os.Stat(u.file)
	if err != nil || info.ModTime().Equal(u.modified) && info.Size() == u.size {
		return // the previous users are kept
	}
	f, err := os.Open(u.file)
	if err != nil {
		return
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPasswd))
	if f.Close() != nil || err != nil {
		return
	}
	u.users = nil // processes get the new names when they are next identified
	u.names, u.modified, u.size = parsePasswd(text), info.ModTime(), info.Size()
}

// parsePasswd returns the names by user ID. If several lines have the same user ID, the first line
// is used, as in getpwuid(3).
func parsePasswd(text []byte) map[uint32]string {
	names := map[uint32]string{}
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte{':'})
		_, rest, _ = bytes.Cut(rest, []byte{':'})
		number, _, ok := bytes.Cut(rest, []byte{':'})
		uid, err := strconv.ParseUint(string(number), 10, 32)
		if !ok || err != nil || len(name) == 0 || len(names) >= maxUsers {
			continue
		}
		if _, known := names[uint32(uid)]; !known {
			names[uint32(uid)] = bound(string(name), maxName)
		}
	}
	return names
}

// user is a user, shared by its processes.
type user struct {
	uid  uint32
	name string // the user ID if the user has no name
}

// mayBe reports whether, according to the scan, the user may be the real user of the process.
func (u *user) mayBe(p *proc.Process) bool {
	return u == noUser || !p.Is(proc.HasUID) || p.UID == u.uid
}

// of returns a user.
func (u *Users) of(uid uint32) *user {
	if known := u.users[uid]; known != nil {
		return known
	}
	if u.users == nil || len(u.users) >= maxUsers {
		u.users = map[uint32]*user{}
	}
	name, ok := u.names[uid]
	if !ok {
		name = strconv.FormatUint(uint64(uid), 10)
	}
	u.users[uid] = &user{uid, name}
	return u.users[uid]
}

// UserName returns the name of a user, or the user ID if the user has no name. It returns an empty
// string if users are not requested.
func (id *Identifier) UserName(uid uint32) string {
	if !id.wanted.Owner {
		return ""
	}
	return id.wanted.Users.of(uid).name
}

// readUser updates the real user of a process. If the source does not provide the user, it is read
// when the process may have executed a program, and some time after the previous read: only a
// privileged process changes its user without executing a program.
func (id *Identifier) readUser(p *proc.Process, e *entry, executed bool, now time.Duration) {
	uid := p.UID
	if !p.Is(proc.HasUID) {
		seconds := int32(now / time.Second)
		if !executed && seconds >= e.reads.userSeen && seconds-e.reads.userSeen < int32(lookSoon/time.Second) {
			return
		}
		status, err := id.readFound(p, e, (*files).readStatus)
		var ok bool
		if uid, ok = parseUID(status); err != nil || !ok {
			return
		}
		e.reads.userSeen = seconds
	}
	e.user = id.wanted.Users.of(uid)
}

// parseUID returns the real user ID in a /proc/<pid>/status (proc_pid_status(5)).
func parseUID(status []byte) (uid uint32, ok bool) {
	_, line, ok := bytes.Cut(status, []byte("\nUid:\t"))
	if !ok {
		return 0, false
	}
	end := bytes.IndexAny(line, "\t\n")
	if end < 0 {
		return 0, false
	}
	n, err := kernfs.ParseUint(line[:end])
	return uint32(n), err == nil && n < 1<<32
}
