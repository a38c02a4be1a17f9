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
)

// Users finds the names of users in the host's /etc/passwd (passwd(5)). A nil Users finds no names.
// A Users is not safe for concurrent use.
type Users struct {
	file     string
	names    map[uint32]string
	known    map[uint32]*user // that were asked for
	checked  time.Time
	modified time.Time
	size     int64
}

const (
	// checkUsers is the interval at which the file is checked for changes.
	checkUsers = time.Minute
	// maxPasswd is the maximum number of bytes read of the file, and maxUsers the maximum number of
	// users kept.
	maxPasswd = 4 << 20
	maxUsers  = 1 << 16
)

// NewUsers returns the users of the host whose root directory is at root. It reads nothing yet.
func NewUsers(root string) *Users { return &Users{file: filepath.Join(root, "etc/passwd")} }

// begin reads the file if it has changed. now has a monotonic part.
func (u *Users) begin(now time.Time) {
	if u == nil || !u.checked.IsZero() && now.Sub(u.checked) < checkUsers {
		return
	}
	u.checked = now
	info, err := os.Stat(u.file)
	if err != nil || info.ModTime().Equal(u.modified) && info.Size() == u.size {
		return // known users are kept
	}
	f, err := os.Open(u.file)
	if err != nil {
		return
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPasswd))
	if f.Close() != nil || err != nil {
		return
	}
	u.known = nil // processes get the new names when they are next identified
	u.names, u.modified, u.size = parsePasswd(text), info.ModTime(), info.Size()
}

// parsePasswd returns the names by user ID. The first line with a user ID counts, as for
// getpwuid(3).
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

// String returns the name of the user, or an empty string if it is unknown.
func (u *user) String() string {
	if u == nil {
		return ""
	}
	return u.name
}

// of returns a user, or nil if users are not requested.
func (u *Users) of(uid uint32) *user {
	if u == nil {
		return nil
	}
	if known := u.known[uid]; known != nil {
		return known
	}
	if u.known == nil || len(u.known) >= maxUsers {
		u.known = map[uint32]*user{}
	}
	name, ok := u.names[uid]
	if !ok {
		name = strconv.FormatUint(uint64(uid), 10)
	}
	u.known[uid] = &user{uid, name}
	return u.known[uid]
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
