// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	uidA = "0a1b2c3d-0000-4000-8000-00000000000a"
	uidB = "0a1b2c3d0000400080000000000000bb" // of a static pod
)

// newPodLogs returns a PodLogs whose directory has a directory with this name.
func newPodLogs(t *testing.T, name string) (p *PodLogs, dir string) {
	dir = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	return NewPodLogs(dir), dir
}

// Pods whose directories were removed may keep processes for a while. The directories are not
// listed again for each of them.
func TestDirectoriesAreNotListedAgainAtOnceForAPodThatHasNone(t *testing.T) {
	p, dir := newPodLogs(t, "a_b_"+uidA)
	assert.Equal(t, "a", p.of(uidA, now).namespace)
	assert.Empty(t, p.of("x", now).namespace)
	assert.Empty(t, p.of("y", now).namespace)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "c_d_x"), 0o755))
	assert.Empty(t, p.of("x", now.Add(time.Hour)), "it waits for all to be looked for")
	assert.False(t, p.lookAgain(now.Add(lookForPodsAgain-1)))
	assert.True(t, p.lookAgain(now.Add(lookForPodsAgain)))
	assert.False(t, p.lookAgain(now.Add(lookForPodsAgain)), "that was reported")
	assert.Equal(t, "c", p.of("x", now.Add(lookForPodsAgain)).namespace)
	assert.False(t, p.lookAgain(now.Add(2*lookForPodsAgain)), "y is missing still")
	assert.False(t, p.lookAgain(now.Add(forgetNames)))
	assert.Empty(t, p.missing, "it was given up")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "e_f_y"), 0o755))
	assert.Equal(t, "e", p.of("y", now.Add(forgetNames+1)).namespace, "until it is asked for again")
}

// As on a node of short jobs.
func TestNewPodsDoNotKeepOthersFromBeingFound(t *testing.T) {
	p, dir := newPodLogs(t, "")
	assert.Empty(t, p.of("x", now).namespace)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "c_d_x"), 0o755))
	now := now.Add(lookForPodsAgain / 2)
	p.of("another", now)
	assert.True(t, p.lookAgain(now))
	assert.Equal(t, "c", p.of("x", now).namespace)
}

func TestAPodIsRememberedForAWhileWithoutItsDirectory(t *testing.T) {
	p, dir := newPodLogs(t, "a_b_x")
	assert.Equal(t, "a", p.of("x", now).namespace)
	now := now.Add(24 * time.Hour) // nothing had to be listed meanwhile
	require.NoError(t, os.Remove(filepath.Join(dir, "a_b_x")))
	for i, after := range []time.Duration{0, forgetNames - 1} {
		p.of(fmt.Sprint("new ", i), now.Add(after))
		assert.Equal(t, "a", p.of("x", now.Add(after)).namespace)
	}
	p.of("newest", now.Add(forgetNames))
	assert.Empty(t, p.of("x", now.Add(forgetNames)).namespace)
}

func TestPodsAreKeptUpToABoundWhileDirectoriesCannotBeListed(t *testing.T) {
	root := t.TempDir()
	p := NewPodLogs(filepath.Join(root, "var/log/pods"))
	assert.Empty(t, p.of("z", now).namespace)
	require.ErrorIs(t, p.failed, fs.ErrNotExist)
	assert.False(t, p.lookAgain(now.Add(forgetNames)))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var/log/pods/g_h_z"), 0o755))
	assert.True(t, p.lookAgain(now.Add(2*forgetNames)))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "var")))
	for i := range 3 * maxMissing {
		p.of(fmt.Sprint(i), now)
	}
	p.lookAgain(now.Add(4 * forgetNames))
	assert.Len(t, p.missing, maxMissing)
}

func FuzzParsePodLogs(f *testing.F) {
	f.Add("kube-system_etcd-node1_" + uidB)
	f.Add("a_b")
	f.Add("__x")
	f.Fuzz(func(t *testing.T, dir string) {
		name, uid, ok := parsePodLogs(dir)
		namespace := name.namespace
		if ok && (namespace == "" || uid == "" || !strings.HasPrefix(dir, namespace+"_") || !strings.HasSuffix(dir, "_"+uid) ||
			strings.Count(dir, "_") != 2) {
			t.Fatal(fmt.Sprint(dir, " is ", namespace, " and ", uid))
		}
	})
}
