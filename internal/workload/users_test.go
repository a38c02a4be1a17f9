// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func TestUsersHaveTheirNamesOfPasswd(t *testing.T) {
	u := NewUsers("/nowhere")
	u.names = parsePasswd([]byte("root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\n\nbroken\nodd:x:none:0::/:\n:x:5:5::/:\n" +
		"alice:x:1000:1000::/:\nlast:x:4294967295:0::/:"))
	for uid, want := range map[uint32]string{0: "root", 1000: "alice", 5: "5", 77: "77", 1<<32 - 1: "last"} {
		assert.Equal(t, want, u.of(uid).name)
	}
	first, again := u.of(77), u.of(77)
	assert.Same(t, first, again)
}

func TestPasswdIsReadAgainWhenItChanges(t *testing.T) {
	root, now := t.TempDir(), time.Now()
	write := func(text string, modified time.Time) {
		file := filepath.Join(root, "etc/passwd")
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(file, modified, modified))
	}
	u := NewUsers(root)
	u.begin(now)
	assert.Equal(t, "1000", u.of(1000).name, "there is no file")
	write("alice:x:1000:0::/:\n", now)
	u.begin(now.Add(checkUsers / 2))
	assert.Equal(t, "1000", u.of(1000).name, "too soon")
	u.begin(now.Add(checkUsers))
	assert.Equal(t, "alice", u.of(1000).name)
	write("bob:x:1000:0::/:\n", now.Add(time.Second))
	u.begin(now.Add(2 * checkUsers))
	assert.Equal(t, "bob", u.of(1000).name)
	require.NoError(t, os.Remove(filepath.Join(root, "etc/passwd")))
	u.begin(now.Add(3 * checkUsers))
	assert.Equal(t, "bob", u.of(1000).name, "what is known stays")
}

func TestALargePasswdIsReadInPart(t *testing.T) {
	line := "a:x:1:1:" + strings.Repeat("x", 1000) + ":/:\n"
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(strings.Repeat(line, 6000)+"late:x:2:2::/:\n"), 0o600))
	u := NewUsers(root)
	u.begin(time.Now())
	assert.Equal(t, "a", u.of(1).name)
	assert.Equal(t, "2", u.of(2).name)
}

func TestTheRealUserIsReadOfAStatus(t *testing.T) {
	for text, want := range map[string]int64{
		"Name:\tUid:\t7\nState:\tS\nUid:\t1000\t0\t0\t0\n": 1000,
		"Name:\ta\nUid:\t4294967294\t0\t0\t0\n":            4294967294,
		"Name:\ta\nUid:\t4294967296\t0\n":                  -1,
		"Name:\ta\nUid:\t12":                               -1, // cut
		"Name:\ta\nUid:\t\t0\n":                            -1,
		"Name:\ta\n":                                       -1,
	} {
		uid, ok := parseUID([]byte(text))
		assert.Equal(t, want >= 0, ok, "%q", text)
		if ok {
			assert.EqualValues(t, want, uid, "%q", text)
		}
	}
}

// With procfs the user is read when the process is identified, after an execution and every minute.
func TestTheUserOfAProcessIsReadSeldom(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "proc/10")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	write := func(uid string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte("Name:\ta\nUid:\t"+uid+"\t0\t0\t0\n"), 0o600))
	}
	exec := func(exe string) {
		_ = os.Remove(filepath.Join(dir, "exe"))
		require.NoError(t, os.Symlink(exe, filepath.Join(dir, "exe")))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/\n"), 0o600))
	id := NewIdentifier(root, Wanted{Users: NewUsers(root), Owner: true, Parent: true})
	p := &proc.Process{Sight: proc.Sight{ID: proc.ID{PID: 10}, Parent: 7}}
	owner := func(now time.Duration) string {
		id.Begin(time.Unix(0, 0).Add(now))
		id.Identify(p, now)
		found, _ := id.Identity(p.Slot)
		return found.Owner
	}
	exec("/bin/a")
	write("1000")
	assert.Equal(t, "1000", owner(time.Second))
	write("0")
	assert.Equal(t, "1000", owner(2*time.Second))
	assert.Equal(t, "0", owner(2*time.Second+lookSoon))
	write("33")
	exec("/bin/b")
	assert.Equal(t, "33", owner(3*time.Second+lookSoon))
	p.Flags, p.UID = proc.HasUID, 44
	assert.Equal(t, "44", owner(4*time.Second+lookSoon), "the source tells it")
	p.Parent = 1
	found, changed := id.Identity(p.Slot)
	assert.False(t, changed)
	assert.EqualValues(t, 7, found.Parent, "as first seen")
}
