// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	service = "/system.slice/a.service"
	ms      = units.CPUTime(time.Millisecond)
)

// node is a copy of a host's cgroups, and the tree that reads it.
type node struct {
	testing.TB
	*Tree
}

// newNode returns a host without cgroups. The first call of set mounts version 2.
func newNode(t testing.TB) *node {
	n := &node{TB: t, Tree: New(Options{Root: t.TempDir()})}
	t.Cleanup(func() { assert.NoError(t, n.Close()) })
	return n
}

func (n *node) write(text string, elem ...string) {
	n.Helper()
	path := filepath.Join(append([]string{n.Root()}, elem...)...)
	require.NoError(n, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(n, os.WriteFile(path, []byte(text), 0o600))
}

// set sets the counters of cgroups, which it makes.
func (n *node) set(usage units.CPUTime, paths ...string) {
	n.Helper()
	if _, err := os.Stat(filepath.Join(n.Root(), "proc/1/mountinfo")); err != nil {
		n.write(mountV2, "proc/1/mountinfo")
	}
	for _, path := range paths {
		n.write(fmt.Sprintf("usage_usec %d\n", time.Duration(usage).Microseconds()), v2, path, "cpu.stat")
	}
}

// count sets the counter of a cgroup and reads all counters.
func (n *node) count(path string, usage units.CPUTime) {
	n.Helper()
	n.set(usage, path)
	n.ReadCPUTime()
}

// remove removes a cgroup of a hierarchy. As in the kernel, its open files have no text any more, and
// files of later cgroups have other numbers.
func (n *node) remove(hierarchy, path string) {
	dir := filepath.Join(n.Root(), hierarchy, path)
	counters, err := filepath.Glob(filepath.Join(dir, "cpu*"))
	require.NoError(n, err)
	for _, counter := range counters {
		require.NoError(n, os.Truncate(counter, 0))
	}
	require.NoError(n, os.Rename(dir, filepath.Join(n.TempDir(), "removed")))
}

// makeAgain removes a cgroup and makes another one at the same path.
func (n *node) makeAgain(hierarchy, path string) {
	n.remove(hierarchy, path)
	require.NoError(n, os.Mkdir(filepath.Join(n.Root(), hierarchy, path), 0o755))
}

// cpuTime returns the CPU counter of a cgroup. It is not ok if no hierarchy has the counter.
func (n *node) cpuTime(of *Node) (used units.CPUTime, ok bool) {
	r := n.readCPU(of)
	return r.counter, r.ok
}

// shortLived returns the short-lived time of a cgroup.
func (n *node) shortLived(of *Node) (found units.CPUTime) {
	n.ShortLived(2*units.Tick, 0, func(in *Node, _ int32, used units.CPUTime, _ bool) {
		if in == of {
			found += used
		}
	})
	return found
}

// tracked returns a node whose first counter and first process have been read.
func (n *node) tracked(path string) *Node {
	n.Helper()
	a := n.Enter(path, true)
	n.count(path, 0)
	a.Account(0, 0)
	require.Zero(n, n.shortLived(a))
	return a
}

// step is an interval of a cgroup's counter, what its process accounts for, and what must be found, in
// ms. before is called first.
type step struct {
	before                    func(n *node)
	counter, accounted, found units.CPUTime
}

// What one process's times are rounded by, 20 ms, is not found.
func TestShortLivedTimeIsWhatTheCounterShowsBeyondTheProcesses(t *testing.T) {
	entered := func(newborn bool) func(n *node) { return func(n *node) { n.Enter(service, newborn) } }
	left := func(n *node) { n.Node(service).Leave() }
	stays := func(n *node) {
		left(n)
		n.count(service, 5000*ms)
		n.Sweep()
		n.Enter(service, true)
	}
	remove := func(n *node) { n.remove(v2, service) }
	made := func(n *node) { n.makeAgain(v2, service) }
	ownPast := func(n *node) {
		past := n.AppendPast(nil)
		n.Restart()
		n.Resume(past)
		n.Enter(service, false)
	}
	restarted := func(n *node) {
		n.Restart()
		n.Enter(service, false)
		n.ReadNew()
	}
	again := func(newborn bool) func(n *node) {
		return func(n *node) {
			n.again()
			n.Enter(service, newborn)
		}
	}
	for name, steps := range map[string][]step{
		"once": {{entered(true), 0, 0, 0}, {nil, 1000, 300, 680}, {nil, 1000, 0, 0}, {nil, 1500, 100, 400}},
		"processes that were read after the counter are ahead of it": {
			{entered(true), 0, 0, 0}, {nil, 100, 400, 0}, {nil, 400, 0, 0}, {nil, 520, 0, 100},
		},
		"a new cgroup has what was used before its first reading, too": {{entered(true), 630, 130, 480}},
		"an older one has not":                         {{entered(false), 3601000, 30, 0}, {nil, 3602000, 300, 650}},
		"one that older processes entered later has":   {{entered(true), 0, 0, 0}, {nil, 500, 500, 0}, {func(n *node) { left(n); n.Enter(service, false) }, 1000, 100, 380}},
		"an empty one begins anew":                     {{entered(true), 0, 0, 0}, {stays, 6000, 100, 880}},
		"a counter that goes back shows nothing":       {{entered(true), 0, 0, 0}, {nil, 500, 500, 0}, {nil, 10, 0, 0}},
		"or is another cgroup's, all of it":            {{entered(true), 0, 0, 0}, {nil, 500, 400, 80}, {nil, 300, 50, 230}},
		"as that of a cgroup after one that was swept": {{entered(true), 0, 0, 0}, {nil, 5000, 4980, 0}, {func(n *node) { left(n); remove(n); n.Sweep(); n.Enter(service, true) }, 7000, 100, 6880}},

		"a counter goes on after a restart":        {{entered(true), 0, 0, 0}, {nil, 1000, 300, 680}, {again(false), 5000, 1000, 3000}, {nil, 5100, 0, 100}},
		"processes that were ahead are so still":   {{entered(true), 0, 0, 0}, {nil, 100, 400, 0}, {again(false), 520, 0, 100}},
		"a cgroup of the time down":                {{again(true), 5000, 1000, 3980}, {nil, 5100, 0, 100}},
		"an older one that was not tracked before": {{again(false), 5000, 1000, 0}},
		"one that took the place of one of before": {{entered(true), 0, 0, 0}, {nil, 9000, 9000, 0}, {again(true), 5000, 1000, 3980}},
		"a restart without a past":                 {{entered(true), 0, 0, 0}, {nil, 5000, 0, 4980}, {restarted, 6000, 100, 880}},
		"a tree goes on from a past of its own":    {{entered(true), 0, 0, 0}, {made, 700, 700, 0}, {ownPast, 800, 0, 80}},
	} {
		n := newNode(t)
		for i, s := range steps {
			if s.before != nil {
				s.before(n)
			}
			n.count(service, s.counter*ms)
			n.Node(service).Account(0, s.accounted*ms)
			assert.Equal(t, s.found*ms, n.shortLived(n.Node(service)), "%s: step %d", name, i)
		}
		left(n)
		remove(n)
		n.Sweep()
		assert.Empty(t, n.Nodes(), name)
	}
}

func TestACounterThatIsGoneStandsStill(t *testing.T) {
	n := newNode(t)
	a := n.tracked(service)
	n.count(service, 500*ms)
	n.remove(v2, service)
	for _, found := range []units.CPUTime{400*ms - 2*units.Tick, 0} {
		n.ReadCPUTime()
		n.ShortLived(2*units.Tick, 0, func(n *Node, _ int32, _ units.CPUTime, _ bool) {
			assert.Fail(t, "no process was accounted for", n.Path())
		})
		a.Account(0, 100*ms)
		assert.Equal(t, found, n.shortLived(a), "what it last said holds")
	}
}

func TestACgroupMadeSinceTheLastScanHasItsTimeAtOnce(t *testing.T) {
	n := newNode(t)
	n.count(service, 900*ms)
	a := n.Enter(service, true)
	a.Account(0, 100*ms)
	var first bool
	n.ShortLived(2*units.Tick, 0, func(_ *Node, _ int32, _ units.CPUTime, is bool) { first = is })
	assert.True(t, first)
	assert.Equal(t, 800*ms-2*units.Tick, a.cpu.shortLived)
	n.Sweep()
	n.count(service, 950*ms)
	a.Account(0, 0)
	n.ShortLived(2*units.Tick, 0, func(_ *Node, _ int32, _ units.CPUTime, is bool) { first = is })
	assert.False(t, first)
	assert.Equal(t, 850*ms-2*units.Tick, a.cpu.shortLived, "and later only what is new")
}

// The time of its one process may be 5 ms behind, and that of those that moved there 20 ms.
func TestWhatMayBeLateIsNotShortLived(t *testing.T) {
	n := newNode(t)
	a := n.tracked(service)
	var found []units.CPUTime
	for _, counter := range []units.CPUTime{100 * ms, 125 * ms, 140 * ms} {
		n.count(service, counter)
		a.Account(0, 0)
		n.ShortLived(5*ms, 20*ms, func(_ *Node, _ int32, used units.CPUTime, _ bool) { found = append(found, used) })
	}
	assert.Equal(t, []units.CPUTime{75 * ms, 25 * ms, 15 * ms}, found)
}

func TestTheCounterOfAnOuterCgroupIncludesTheInnerOne(t *testing.T) {
	n := newNode(t)
	outer, inner := n.tracked("/a"), n.tracked("/a/x/b")
	n.set(800*ms, "/a/x/b")
	n.count("/a", 1500*ms)
	outer.Account(1, 100*ms)
	inner.Account(2, 300*ms)
	var order []string
	found := map[int32]units.CPUTime{}
	n.ShortLived(2*units.Tick, 0, func(n *Node, claimant int32, used units.CPUTime, _ bool) {
		order, found[claimant] = append(order, n.Path()), used
	})
	assert.Equal(t, []string{"/a/x/b", "/a"}, order)
	assert.Equal(t, 500*ms-2*units.Tick, found[2])
	// The rounding of both processes, and that of the inner one again.
	assert.Equal(t, 1500*ms-100*ms-300*ms-found[2]-3*2*units.Tick, found[1])
}

func TestInferredTimeIsClampedToTheCounters(t *testing.T) {
	n := newNode(t)
	outer, inner := n.tracked("/a"), n.tracked("/a/b")
	unread := n.Enter("/a/b/c", true)
	n.set(800*ms, "/a/b")
	n.count("/a", 1000*ms)
	outer.Account(0, 500*ms)
	assert.Equal(t, 500*ms, inner.Clamp(600*ms))
	assert.Equal(t, 500*ms, unread.Clamp(600*ms))
	inner.Account(0, 450*ms)
	assert.Equal(t, 50*ms, inner.Clamp(600*ms))
	assert.Equal(t, 600*ms, (*Node)(nil).Clamp(600*ms))
}

func TestTimeOfAMovedProcessStaysInItsFormerCgroup(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		want     []string // cgroups that account for it, other than its own
	}{
		"out of all":        {"/a/b", "", []string{"/a", "/a/b"}},
		"into one":          {"", "/a", nil},
		"beside":            {"/a/b", "/a/c", []string{"/a/b"}},
		"in":                {"/a", "/a/b", nil},
		"out":               {"/a/b", "/a", []string{"/a/b"}},
		"nowhere":           {"/a", "/a", nil},
		"names begin alike": {"/a", "/ab", []string{"/a"}},
	} {
		tree := New(Options{})
		tree.Node("/a")
		AccountMove(tree.Node(c.from), tree.Node(c.to), ms)
		var reported []string
		for _, n := range tree.Nodes() {
			if n.cpu.accounted > 0 {
				reported = append(reported, n.Path())
			}
		}
		assert.ElementsMatch(t, c.want, reported, name)
	}
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
			n := newNode(t)
			n.write(c.mounts, "proc/1/mountinfo")
			for path, text := range c.files {
				n.write(text, path)
			}
			got, ok := n.cpuTime(n.Node(service))
			require.True(t, ok)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestHierarchiesAreLookedForOnceInAnInterval(t *testing.T) {
	n := newNode(t)
	a := n.Enter(service, true)
	for _, c := range []struct {
		mounts string
		want   error
	}{{"", fs.ErrNotExist}, {mountOther + mountTmpfs, errNoHierarchy}, {mountTmpfs + mountMemory, nil}} {
		if c.mounts != "" {
			n.write(c.mounts, "proc/1/mountinfo")
			_, ok := n.cpuTime(a)
			assert.False(t, ok)
			require.Error(t, n.mounts.failed, "no second look in the interval")
		}
		n.Sweep() // ends the interval
		_, err := n.mounts.hierarchies()
		require.ErrorIs(t, err, c.want)
	}
	n.ReadCPUTime()
	a.Account(0, 0)
	assert.Zero(t, n.shortLived(a), "without a counter nothing is short-lived")
}

func TestACgroupOutsideOfTheNamespaceIsNotRead(t *testing.T) {
	n := newNode(t)
	n.write(mountCPU+mountUnified, "proc/1/mountinfo")
	for _, outside := range []string{"..", "../x", "/..", "/../../other", "/a/../../b"} {
		n.write("usage_usec 5\n", hybrid, "a", outside, "cpu.stat")
		_, ok := n.cpuTime(n.Node(outside))
		assert.False(t, ok, outside)
		assert.False(t, n.exists(n.Node(outside)), outside)
	}
}

func TestTruncatedCountersAreRejected(t *testing.T) {
	for text, want := range map[string]uint64{
		"usage_usec 0\nuser_usec 0\n":                       0,
		"user_usec 1\nsystem_usec 2\nusage_usec 3\n":        3000,
		"usage_usec 18446744073709551\n":                    18446744073709551000,
		"nr_periods 0\nusage_usec 7\nusage_usec_other 9 \n": 7000,
	} {
		got, err := parseCPUStat([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, number := range []string{"", " ", " x\n", " -1\n", " 5", " 1.5\n", " 18446744073709552\n", "\nuser_usec 1\n"} {
		got, err := parseCPUStat([]byte("usage_usec" + number))
		require.Error(t, err, "%q", number)
		assert.Zero(t, got, "%q", number)
	}
}

func FuzzParseCPUStat(f *testing.F) {
	for _, s := range []string{"usage_usec 5\nuser_usec 5\n", "user_usec 5\nusage_usec 7", "usage_usec 18446744073709551615\n", "usage_usec \n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseCPUStat(b)
		if err != nil {
			assert.Zero(t, n)
			return
		}
		if n%1000 != 0 || !strings.Contains(string(b), strconv.FormatUint(n/1000, 10)) {
			t.Fatalf("%q is %d", b, n)
		}
	})
}

func FuzzPathsOfCgroupsStayInside(f *testing.F) {
	for _, s := range []string{service, "/..", "/../x", "/a/..b/c", "/", "", "/a//b", "/...", "..", "//x", "///"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if dir := dirOf(path); dir != "" {
			assert.True(t, filepath.IsLocal(dir), "%q leads to %q", path, dir)
		}
	})
}
