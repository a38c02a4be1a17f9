// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// charges is a node whose memory is read interval by interval.
type charges struct {
	*node
	now time.Time
}

// read reads the memory of cgroups, with one page resident in each.
func (c *charges) read(after time.Duration, paths ...string) {
	c.now = c.now.Add(after)
	c.BeginMemory(c.now)
	for _, p := range paths {
		c.AddResident(c.Node(p), 4096)
	}
	c.EndMemory()
}

// of returns the memory of a cgroup. It is not ok if the cgroup has no memory file.
func (c *charges) of(path string) (bytes uint64, ok bool) { return c.Node(path).Memory(4096) }

func (c *charges) own(path string) uint64 {
	c.Helper()
	bytes, ok := c.of(path)
	require.True(c, ok, path)
	return bytes
}

func newCharges(t *testing.T, mounts string) *charges {
	c := &charges{newNode(t), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.node.write(mounts, "proc/1/mountinfo")
	return c
}

func (c *charges) write(cgroup, text string) {
	c.node.write(text, "sys/fs/cgroup/memory", cgroup, "memory.usage_in_bytes")
}

func TestMemoryIsReadOncePerSecondIfReadable(t *testing.T) {
	c := newCharges(t, mountTmpfs+mountCPU+mountMemory)
	known := func() bool { _, ok := c.of("/a"); return ok }
	c.read(0, "/a")
	assert.False(t, known(), "there is none")
	c.write("a", "4096\n")
	c.read(0, "/a")
	assert.False(t, known(), "it is not looked for each time")
	c.read(rereadMemory, "/a")
	assert.EqualValues(t, 4096, c.own("/a"), "as version 1 has it")
	for name, text := range map[string]string{"empty": "", "cut short": "40", "a word": "max\n", "negative": "-1\n"} {
		c.write("a", text)
		c.read(2*rereadMemory, "/a")
		assert.False(t, known(), name)
	}
}

func TestTheMemoryOfACgroupExcludesInnerCgroups(t *testing.T) {
	c := newCharges(t, mountTmpfs+mountMemory)
	c.write("a", "5000\n")
	c.write("a/b", "3000\n")
	c.write("a/b/c", "1000\n")
	c.read(0, "/a/b/c", "/a", "/a/b")
	for cgroup, want := range map[string]uint64{"/a": 2000, "/a/b": 2000, "/a/b/c": 1000} {
		assert.Equal(t, want, c.own(cgroup), "without the cgroups inside, %s", cgroup)
	}
	c.read(2*rereadMemory, "/a/b/c", "/a")
	assert.EqualValues(t, 4000, c.own("/a"), "no process is in the one between them")
	c.write("a/b", "what is not read counts for the one around it\n")
	c.read(2*rereadMemory, "/a/b/c", "/a", "/a/b")
	assert.EqualValues(t, 4000, c.own("/a"), "without the innermost")
	c.read(2*rereadMemory, "/a")
	assert.EqualValues(t, 5000, c.own("/a"), "no process is in the others any more")
	require.NoError(t, os.RemoveAll(filepath.Join(c.Root(), "sys/fs/cgroup/memory/a/b")))
	c.Enter("/a", true)
	c.Sweep()
	assert.Len(t, c.Nodes(), 1)
	c.read(20*time.Minute, "/a")
	assert.EqualValues(t, 5000, c.own("/a"), "after a pause, too")
}

func TestProcessesDivideTheMemoryOfTheirCgroupByResidentMemory(t *testing.T) {
	c := newCharges(t, mountV2)
	c.node.write("9000\n", "sys/fs/cgroup/a/memory.current")
	a := c.Node("/a")
	c.BeginMemory(c.now)
	c.AddResident(a, 100)
	c.AddResident(a, 200)
	c.EndMemory()
	for resident, want := range map[uint64]uint64{100: 3000, 200: 6000} {
		bytes, ok := a.Memory(resident)
		assert.True(t, ok)
		assert.Equal(t, want, bytes)
	}
}

func TestMemoryIsFoundWhereTheControllerIsMounted(t *testing.T) {
	for name, c := range map[string]struct{ mounts, file string }{
		"v2":        {mountV2, v2 + "/a/memory.current"},
		"v1":        {mountTmpfs + mountMemory, "sys/fs/cgroup/memory/a/memory.usage_in_bytes"},
		"hybrid":    {mountTmpfs + mountUnified + mountMemory, "sys/fs/cgroup/memory/a/memory.usage_in_bytes"},
		"elsewhere": {strings.ReplaceAll(mountMemory, "/sys/fs/cgroup/memory", "/mnt"), "mnt/a/memory.usage_in_bytes"},
	} {
		n := newCharges(t, c.mounts)
		n.node.write("77\n", c.file)
		n.read(0, "/a")
		assert.EqualValues(t, 77, n.own("/a"), name)
	}
}

func TestUnknownMemoryIsReportedOnceAProcessContinues(t *testing.T) {
	c := newCharges(t, mountV2)
	c.node.write("", v2, "cgroup.procs")
	c.read(0, "/gone")
	require.NoError(t, c.MemoryErr(), "one that ends meanwhile is no error")
	c.read(rereadMemory, "/gone")
	const prefix = "the memory of some containers is what is resident: that of their cgroups cannot be read: "
	require.EqualError(t, c.MemoryErr(), prefix+"no such file or directory")
	c.read(rereadMemory)
	require.NoError(t, c.MemoryErr(), "no process is in it")

	c = newCharges(t, mountTmpfs+mountCPU)
	c.read(0, "/a")
	c.read(rereadMemory, "/a")
	require.EqualError(t, c.MemoryErr(), prefix+errNoMemory.Error())
	c = newCharges(t, mountV2)
	c.read(0, "/../a")
	c.read(rereadMemory, "/../a")
	require.ErrorIs(t, c.MemoryErr(), errOutside)
}
