// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// insideNamespace is an environment variable. This test, run as a process in a cgroup namespace,
// mounts cgroup v2 at its value.
const insideNamespace = "ENERGYRECEIVER_TEST_CGROUP_MOUNT"

// unifiedOf returns the mount point of the version 2 hierarchy, and the cgroup at its root.
func unifiedOf(root string) (mount, mountRoot string, err error) {
	h, err := (&mounts{root: root}).unified()
	if err != nil {
		return "", "", err
	}
	return h.dir.Path(), h.mountRoot, nil
}

// The process of a container with a cgroup namespace of its own sees the host's cgroups as "/..".
func TestTheCgroupNamespaceOfAContainerIsFoundInTheHostsTree(t *testing.T) {
	if mount, ok := os.LookupEnv(insideNamespace); ok {
		if mount != "" {
			require.NoError(t, unix.Mount("none", mount, "cgroup2", 0, ""))
		}
		found, err := NamespaceRoot("/")
		fmt.Printf("<%s %v>", found, err)
		return
	}
	mount, mountRoot, err := unifiedOf("/")
	if err != nil || mountRoot != "/" || os.Getuid() != 0 {
		t.Skip("takes root and a cgroup v2 hierarchy in the initial cgroup namespace:", err, mountRoot)
	}
	cgroup := fmt.Sprintf("/energyreceiver-test-%d", os.Getpid())
	outer := filepath.Join(mount, cgroup)
	if err := os.Mkdir(outer, 0o755); err != nil {
		t.Skip("cgroups cannot be made here:", err)
	}
	defer func() { assert.NoError(t, os.Remove(outer)) }()
	inner := filepath.Join(outer, "container")
	require.NoError(t, os.Mkdir(inner, 0o755))
	defer func() { assert.NoError(t, os.Remove(inner)) }()
	dir, err := os.Open(inner)
	require.NoError(t, err)
	defer func() { _ = dir.Close() }()

	inside := func(mount string) string {
		c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		c.Env = append(os.Environ(), insideNamespace+"="+mount)
		c.SysProcAttr = &syscall.SysProcAttr{
			UseCgroupFD: true, CgroupFD: int(dir.Fd()), Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWCGROUP,
		}
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	assert.Contains(t, inside(t.TempDir()), "<"+path.Join(cgroup, "container")+" <nil>>")
	assert.Contains(t, inside(""), "< "+errNoNamespaceMount.Error()+">")
	found, err := NamespaceRoot("/")
	require.NoError(t, err)
	assert.Equal(t, "/", found, "of who has none")
}

// If the host's first process cannot be read, mounts below root are the host's, and the others are
// the container's.
func TestTheHostsMountsAreFoundAmongTheContainers(t *testing.T) {
	root := filepath.Join(t.TempDir(), "hostfs")
	const line = "57 47 0:38 %s %s rw,relatime - cgroup2 cgroup2 rw\n"
	own := filepath.Join(root, "proc", "7")
	require.NoError(t, os.MkdirAll(own, 0o755))
	require.NoError(t, os.Symlink("7", filepath.Join(root, "proc", "self")))
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(own, "mountinfo"), []byte(text), 0o600))
	}
	unreadable := filepath.Join(root, "proc", "1", "mountinfo")
	require.NoError(t, os.MkdirAll(unreadable, 0o755))
	write(fmt.Sprintf(line, "/", "/sys/fs/cgroup") + fmt.Sprintf(line, "/../..", root+"/sys/fs/cgroup"))
	mount, mountRoot, err := unifiedOf(root)
	require.NoError(t, err)
	assert.Equal(t, []string{root + "/sys/fs/cgroup", "/../.."}, []string{mount, mountRoot})

	require.NoError(t, os.RemoveAll(filepath.Dir(unreadable))) // as with hidepid
	write(fmt.Sprintf(line, "/", "/sys/fs/cgroup"))
	mount, mountRoot, err = unifiedOf(root)
	require.NoError(t, err)
	assert.Equal(t, []string{root + "/sys/fs/cgroup", "/"}, []string{mount, mountRoot}, "a copy of a tree")

	_, err = NamespaceRoot(filepath.Join(root, "none"))
	require.Error(t, err)
}
