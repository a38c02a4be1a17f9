// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const service = "/system.slice/a.service"

// grouped is a made-up host and the groups that are watched there.
type grouped struct {
	*hostsim.Host
	testing.TB
	*Groups
}

func newGrouped(t testing.TB) *grouped {
	h := hostsim.New(t.TempDir())
	return &grouped{Host: h, TB: t, Groups: NewGroups(h.Root())}
}

// count sets the counter of a cgroup and reads the groups.
func (g *grouped) count(path string, usage units.CPUTime) {
	g.Helper()
	g.Cgroups[path] = time.Duration(usage)
	require.NoError(g, g.Render())
	g.Read()
}

func (g *grouped) write(text string, elem ...string) {
	g.Helper()
	path := filepath.Join(append([]string{g.Root()}, elem...)...)
	require.NoError(g, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(g, os.WriteFile(path, []byte(text), 0o600))
}

// tracked returns a group whose first counter and first process have been seen.
func (g *grouped) tracked(path string) Group {
	g.Helper()
	i := g.Watch(path)
	g.count(path, 0)
	g.Explain(i, 0)
	require.Zero(g, g.Unseen(i))
	return i
}

func TestGroupShowsWhatNoneOfItsProcessesExplains(t *testing.T) {
	g := newGrouped(t)
	i := g.tracked(service)
	g.count(service, 1000*ms)
	g.Explain(i, 300*ms)
	assert.Equal(t, 1000*ms-300*ms-2*Tick, g.Unseen(i), "less what one process's times are rounded by")
	assert.Zero(t, g.Unseen(i), "once")

	g.count(service, 1500*ms)
	g.Explain(i, 100*ms)
	assert.Equal(t, 400*ms, g.Unseen(i))
	g.count(service, 1500*ms)
	g.Explain(i, 0)
	assert.Zero(t, g.Unseen(i))
}

func TestGroupTakesRoundingForNobodysTime(t *testing.T) {
	g := newGrouped(t)
	i := g.tracked(service)
	var explained units.CPUTime
	for round := range units.CPUTime(50) {
		// Three processes, each up to two ticks ahead of what /proc shows of it.
		g.count(service, explained+(3*2*Tick-ms)*(round%2))
		for range 3 {
			g.Explain(i, 7*Tick)
			explained += 7 * Tick
		}
		require.Zero(t, g.Unseen(i), "round %d", round)
	}
	g.count(service, explained+3*2*Tick+5*ms)
	for range 3 {
		g.Explain(i, 0)
	}
	assert.Equal(t, 5*ms, g.Unseen(i))
}

func TestGroupThatIsAheadIsMadeUpForBeforeAnythingIsUnseen(t *testing.T) {
	g := newGrouped(t)
	i := g.tracked(service)
	g.count(service, 100*ms)
	g.Explain(i, 400*ms) // the processes were read later than the counter
	assert.Zero(t, g.Unseen(i))
	g.count(service, 400*ms)
	g.Explain(i, 0)
	assert.Zero(t, g.Unseen(i))
	g.count(service, 520*ms)
	g.Explain(i, 0)
	assert.Equal(t, 100*ms, g.Unseen(i))
}

func TestAllThatANewbornGroupCountedIsItsProcesses(t *testing.T) {
	g := newGrouped(t)
	i := g.Watch(service)
	g.Explain(i, 30*ms)
	assert.Zero(t, g.Unseen(i), "no counter was read yet")
	g.count(service, 630*ms)
	g.Explain(i, 100*ms)
	assert.Equal(t, 500*ms-2*Tick, g.Unseen(i), "what was used before its first reading, too")
}

func TestWhatAnOlderGroupCountedBeforeIsNobodysNow(t *testing.T) {
	g := newGrouped(t)
	g.count(service, 3600*units.Second)
	i := g.Watch(service)
	g.Older(i)
	g.Explain(i, 30*ms)
	assert.Zero(t, g.Unseen(i))
	g.count(service, 3601*units.Second)
	g.Explain(i, 0)
	assert.Zero(t, g.Unseen(i), "the baseline")
	g.count(service, 3602*units.Second)
	g.Explain(i, 300*ms)
	assert.Equal(t, 700*ms-2*Tick, g.Unseen(i))
}

func TestGroupThatTurnsOutOlderLaterKeepsWhatItHas(t *testing.T) {
	g := newGrouped(t)
	i := g.tracked(service)
	g.count(service, 500*ms)
	g.Older(i) // a process from before has moved in
	g.Explain(i, 100*ms)
	assert.Equal(t, 400*ms-2*Tick, g.Unseen(i))
}

func TestCounterThatVanishedStandsStill(t *testing.T) {
	g := newGrouped(t)
	i := g.tracked(service)
	g.count(service, 500*ms)
	require.NoError(t, os.RemoveAll(filepath.Join(g.Root(), "sys/fs/cgroup", service)))
	g.Read()
	g.Explain(i, 100*ms)
	assert.Equal(t, 400*ms-2*Tick, g.Unseen(i), "what it last said holds")
	g.Read()
	g.Explain(i, 100*ms)
	assert.Zero(t, g.Unseen(i))
}

func TestCounterThatIsGarbageStandsStill(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "a word": "usage_usec much\n", "another field": "user_usec 99999999\n", "negative": "usage_usec -5\n",
		"beyond all numbers": "usage_usec 18446744073709551615\n",
	} {
		g := newGrouped(t)
		i := g.tracked(service)
		g.write(text, "sys/fs/cgroup", service, "cpu.stat")
		g.Read()
		g.Explain(i, 0)
		assert.Zero(t, g.Unseen(i), name)
		g.count(service, 500*ms)
		g.Explain(i, 0)
		assert.Equal(t, 500*ms-2*Tick, g.Unseen(i), name)
	}
}

func TestCounterThatGoesBackShowsNothing(t *testing.T) {
	g := newGrouped(t)
	i := g.tracked(service)
	g.count(service, 500*ms)
	g.Explain(i, 500*ms)
	assert.Zero(t, g.Unseen(i))
	g.count(service, 10*ms)
	g.Explain(i, 0)
	assert.Zero(t, g.Unseen(i))
}

func TestForgottenGroupLeavesNothingToTheNext(t *testing.T) {
	g := newGrouped(t)
	i := g.tracked(service)
	other := g.tracked("/other")
	g.count(service, 5000*ms)
	g.Explain(i, 0)
	g.Older(i)
	g.Forget(i)
	assert.Equal(t, group{}, g.groups[i], "nothing is left to read")
	g.Read()

	next := g.Watch("/next")
	assert.Equal(t, i, next, "its number is given on")
	assert.NotEqual(t, other, next)
	g.count("/next", 700*ms)
	g.Explain(next, 100*ms)
	assert.Equal(t, 600*ms-2*Tick, g.Unseen(next))
	assert.NotEqual(t, next, g.Watch("/third"))
}

func TestGroupsAreSeparate(t *testing.T) {
	g := newGrouped(t)
	a, b := g.tracked("/a"), g.tracked("/b")
	g.count("/a", 100*ms)
	g.count("/b", 900*ms)
	g.Explain(a, 0)
	g.Explain(b, 0)
	assert.Equal(t, 100*ms-2*Tick, g.Unseen(a))
	assert.Equal(t, 900*ms-2*Tick, g.Unseen(b))
}

const (
	mountV2      = "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountCPU     = "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
	mountMemory  = "31 24 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory\n"
	mountUnified = "25 24 0:23 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountOther   = "22 1 0:20 / /proc rw,nosuid - proc proc rw\n23 1 0:21 / /sys rw - sysfs sysfs rw\n40 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
	mountTmpfs   = "24 23 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
	v1           = "sys/fs/cgroup/cpu,cpuacct"
	hybrid       = "sys/fs/cgroup/unified"
	v2           = "sys/fs/cgroup"
)

func TestCounterIsFoundInEveryLayoutOfHierarchies(t *testing.T) {
	for name, c := range map[string]struct {
		mounts string
		files  map[string]string
		want   units.CPUTime
	}{
		"v2": {
			mountOther + mountV2,
			map[string]string{v2 + service + "/cpu.stat": "usage_usec 1500\n"}, 1_500_000,
		},
		"v1": {
			mountOther + mountTmpfs + mountMemory + mountCPU,
			map[string]string{v1 + service + "/cpuacct.usage": "1500123\n", "sys/fs/cgroup/memory" + service + "/cpuacct.usage": "9\n"}, 1_500_123,
		},
		"hybrid: the controller is in v1": {
			mountOther + mountTmpfs + mountUnified + mountMemory + mountCPU,
			map[string]string{v1 + service + "/cpuacct.usage": "1500123\n"}, 1_500_123,
		},
		"hybrid: only in v2": {
			mountOther + mountTmpfs + mountCPU + mountUnified,
			map[string]string{hybrid + service + "/cpu.stat": "user_usec 1\nusage_usec 70\n"}, 70_000,
		},
		"hybrid: garbage in v1": {
			mountOther + mountTmpfs + mountCPU + mountUnified,
			map[string]string{v1 + service + "/cpuacct.usage": "\n", hybrid + service + "/cpu.stat": "usage_usec 70\n"}, 70_000,
		},
		"elsewhere": {
			"24 1 0:22 / /mnt/control rw - cgroup2 none rw\n",
			map[string]string{"mnt/control" + service + "/cpu.stat": "usage_usec 1\n"}, 1000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrouped(t)
			g.write(c.mounts, "proc/1/mountinfo")
			for path, text := range c.files {
				g.write(text, path)
			}
			got, err := g.usage(service)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestCgroupsThatCannotBeReadSayWhy(t *testing.T) {
	g := newGrouped(t)
	_, err := g.usage(service)
	require.ErrorIs(t, err, fs.ErrNotExist, "no proc")

	g.Read() // another round
	g.write(mountOther+mountTmpfs+mountMemory, "proc/1/mountinfo")
	_, err = g.usage(service)
	require.ErrorIs(t, err, errNoHierarchy)

	g.Read()
	g.write(mountCPU+mountUnified, "proc/1/mountinfo")
	_, err = g.usage(service)
	require.ErrorIs(t, err, fs.ErrNotExist, "no cgroup of that path")
	require.ErrorContains(t, err, "cpuacct.usage")
	require.ErrorContains(t, err, "cpu.stat", "both places are named")

	for _, outside := range []string{"..", "../x", "/..", "/../../other", "/a/../../b"} {
		_, err = g.usage(outside)
		assert.ErrorIs(t, err, errOutside, outside)
	}

	g.write(mountOther, "proc/1/mountinfo")
	fresh := NewGroups(g.Root())
	i := fresh.Watch(service)
	fresh.Read()
	fresh.Explain(i, 0)
	assert.Zero(t, fresh.Unseen(i), "without a counter nothing is unseen")
}

func TestHierarchiesThatAreMountedLaterAreFound(t *testing.T) {
	g := newGrouped(t)
	i := g.Watch(service)
	g.Read()
	g.count(service, 100*ms)
	g.Explain(i, 0)
	assert.Equal(t, 100*ms-2*Tick, g.Unseen(i))
}

func TestMountsAreLookedForOnceInARound(t *testing.T) {
	g := newGrouped(t)
	first := g.Watch(service)
	second := g.Watch("/b")
	g.Read()
	require.ErrorIs(t, g.unmounted, fs.ErrNotExist, "no proc")
	g.Cgroups[service], g.Cgroups["/b"] = time.Second, time.Second
	require.NoError(t, g.Render())
	_, err := g.usage(service)
	assert.ErrorIs(t, err, fs.ErrNotExist, "no second look in the round")
	g.Read()
	for _, i := range []Group{first, second} {
		g.Explain(i, 0)
		assert.Equal(t, units.Second-2*Tick, g.Unseen(i), "but in the next")
	}
}

func TestOwnMountsServeWhereThoseOfTheFirstProcessCannotBeRead(t *testing.T) {
	for name, spoil := range map[string]func(*grouped) (restore func()){
		"not permitted": func(g *grouped) func() {
			require.NoError(g, os.Chmod(filepath.Join(g.Root(), "proc/1/mountinfo"), 0))
			return nobody(g)
		},
		"unreadable": func(g *grouped) func() {
			path := filepath.Join(g.Root(), "proc/1/mountinfo")
			require.NoError(g, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
			return func() {}
		},
		"hidden": func(g *grouped) func() {
			require.NoError(g, os.RemoveAll(filepath.Join(g.Root(), "proc/1")))
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrouped(t)
			g.Cgroups[service] = time.Second
			require.NoError(t, g.Render())
			own := strconv.Itoa(os.Getpid())
			g.write(mountV2, "proc", own, "mountinfo")
			require.NoError(t, os.Symlink(own, filepath.Join(g.Root(), "proc/self")))
			reachable(t, g.Root())
			restore := spoil(g)
			got, err := g.usage(service)
			restore()
			require.NoError(t, err)
			assert.Equal(t, units.Second, got)
		})
	}
}

// reachable lets everybody read a tree, and reach it.
func reachable(t testing.TB, root string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return os.Chmod(path, 0o755)
	}))
	for dir := filepath.Dir(root); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
}

func FuzzParseCPUAcct(f *testing.F) {
	for _, s := range []string{"0\n", "77000000000\n", "18446744073709551615\n", "18446744073709551616\n", "77", "-5\n", " 5 \n", "5 6\n", "\n", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseCPUAcct(b)
		want, wantErr := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		if wantErr == nil && !strings.HasSuffix(string(b), "\n") {
			wantErr = errTruncated
		}
		if (err == nil) != (wantErr == nil) || err == nil && uint64(got) != want {
			t.Fatalf("%q: %d, %v; want %d, %v", b, got, err, want, wantErr)
		}
	})
}

func FuzzCgroupPathsStayInside(f *testing.F) {
	for _, s := range []string{service, "/..", "/../x", "/a/..b/c", "/", "", "/a//b", "/..."} {
		f.Add(s)
	}
	f.Add("..")
	f.Fuzz(func(t *testing.T, path string) {
		const mount = "/nowhere/at/all"
		g := &Groups{counters: []counterFile{{mount, "cpu.stat", parseCPUStat}}}
		_, err := g.usage(path)
		require.Error(t, err)
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			rel, err := filepath.Rel(mount, pathErr.Path)
			require.NoError(t, err)
			assert.True(t, filepath.IsLocal(rel), "%q leads to %q", path, pathErr.Path)
		}
	})
}
