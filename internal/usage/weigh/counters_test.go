// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"cmp"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// kernel simulates a kernel whose counters the test sets.
type kernel struct {
	counted map[string]uint64 // so far, by cgroup
	refused map[string]error  // errors of opening, or of reading once open
	torn    map[string]error  // errors of reading alone
	opened  map[string]int
	ids     map[string]uint64 // changed when a cgroup is recreated
	others  bool              // other CPUs are online than before
	mended  bool              // reopening the counters clears others
	total   int               // counters that were opened
	checks  int               // calls of replaced for cgroups
	cgroups *cgroup.Tree
}

// newKernel returns a kernel that counts cgroups of a tree, and everything.
func newKernel(tree *cgroup.Tree, cgroups ...string) *kernel {
	k := &kernel{
		counted: map[string]uint64{"": 0}, refused: map[string]error{}, torn: map[string]error{},
		opened: map[string]int{}, ids: map[string]uint64{}, cgroups: tree,
	}
	for _, cgroup := range cgroups {
		k.counted[cgroup] = 0
	}
	return k
}

func (k *kernel) cpusChanged() (changed bool) {
	changed, k.others = k.others, false
	return changed
}

func (k *kernel) open(n *cgroup.Node) (count, error) {
	cgroup := ""
	if n != nil {
		cgroup = n.Path()
	}
	if k.mended {
		delete(k.refused, cgroup)
	}
	k.total++
	if err := k.refused[cgroup]; err != nil {
		return nil, err
	}
	k.opened[cgroup]++
	return counted{k, cgroup, k.ids[cgroup]}, nil
}

type counted struct {
	*kernel
	cgroup string
	id     uint64
}

func (c counted) read() (uint64, error) {
	if c.ids[c.cgroup] != c.id {
		return 0, nil // a cgroup that no longer exists
	}
	return c.counted[c.cgroup], cmp.Or(c.refused[c.cgroup], c.torn[c.cgroup])
}

func (c counted) replaced() bool {
	if c.cgroup != "" {
		c.checks++
	}
	_, ok := c.counted[c.cgroup]
	return !ok || c.ids[c.cgroup] != c.id
}

func (c counted) close() error {
	if c.opened[c.cgroup]--; c.opened[c.cgroup] == 0 {
		delete(c.opened, c.cgroup)
	}
	return nil
}

func (k *kernel) count(counts map[string]uint64) {
	for cgroup, n := range counts {
		k.counted[cgroup] += n * uint64(ms)
		if cgroup != "" {
			k.counted[""] += n * uint64(ms)
		}
	}
}

// counting is a kernel with a weight by its instructions.
type counting struct {
	*kernel
	*ByRate
	t  *testing.T
	at time.Time
}

func newCounting(t *testing.T, cgroups ...string) *counting {
	k := newKernel(cgroup.New(cgroup.Options{Root: "/nowhere"}), cgroups...) // which has no directories
	return &counting{k, newByRate(newCounters(k, k.cgroups, Instructions)), t, began}
}

// share is a share with CPU time in ms, of everything that is in no cgroup if the path is empty.
func (c *counting) share(path string, cpu int) *Share {
	return &Share{CPU: units.CPUTime(cpu) * ms, Cgroup: c.cgroups.Node(path)}
}

// weigh returns the work in ms after some time.
func (c *counting) weigh(after time.Duration, shares ...*Share) (work []float64, err error) {
	c.at = c.at.Add(after)
	_, err = c.Weigh(c.at, shares)
	for _, s := range shares {
		work = append(work, float64(s.Work)/float64(ms))
	}
	return work, err
}

// run weighs after a second.
func (c *counting) run(shares ...*Share) []float64 {
	c.t.Helper()
	work, err := c.weigh(time.Second, shares...)
	require.NoError(c.t, err)
	return work
}

// stop closes the weight.
func (c *counting) stop() {
	c.t.Helper()
	require.NoError(c.t, c.Close())
	assert.Empty(c.t, c.opened)
}

// Two containers and everything else: the count of each is divided by CPU time within it.
func TestTheWorkOfACgroupIsItsCount(t *testing.T) {
	c := newCounting(t, "/a", "/b")
	c.counted["/a"], c.counted["/b"] = 1<<20, 77
	shares := []*Share{c.share("/a", 30), c.share("/a", 10), c.share("/b", 50), c.share("", 10), c.share("", 40)}
	c.count(map[string]uint64{"/a": 5, "/b": 6, "": 129})
	assert.InDeltaSlice(t, []float64{30, 10, 50, 10, 40}, c.run(shares...), 1e-3, "the containers' first interval: all together are known")
	c.count(map[string]uint64{"/a": 80, "/b": 20, "": 25})
	assert.InDeltaSlice(t, []float64{60, 20, 20, 5, 20}, c.run(shares...), 1e-3)
	c.count(map[string]uint64{"/a": 40, "/b": 200})
	assert.InDeltaSlice(t, []float64{30, 10, 200, 0, 0}, c.run(shares...), 1e-3)
	c.counted[""] = 0 // reset
	c.count(map[string]uint64{"/a": 40, "/b": 50})
	assert.InDeltaSlice(t, []float64{30, 10, 50, 0, 0}, c.run(shares...), 1e-3)
	c.stop()
}

// The counter of a cgroup includes those of the cgroups inside.
func TestAContainerInAContainerIsCountedOnce(t *testing.T) {
	c := newCounting(t, "/a", "/a/x/b")
	shares := []*Share{c.share("/a/x/b", 90), c.share("/a", 10), c.share("", 50)}
	c.run(shares...)
	c.count(map[string]uint64{"/a": 10, "": 50})
	c.counted["/a"] += 90 * uint64(ms)
	c.count(map[string]uint64{"/a/x/b": 90})
	assert.InDeltaSlice(t, []float64{90, 10, 50}, c.run(shares...), 1e-3)
	// The inner cgroup's events count for the outer one until its own counter is known.
	c.refused["/a/x/b"] = errors.New("refused")
	c.count(map[string]uint64{"/a": 200, "": 50})
	work, err := c.weigh(time.Second, shares...)
	require.ErrorContains(t, err, "some cgroups cannot be counted: refused")
	assert.InDeltaSlice(t, []float64{180, 20, 50}, work, 1e-3)
}

// In procfs, a process that runs for a millisecond now and then gets its CPU time in ticks.
func TestCountsWaitForTheirCPUTime(t *testing.T) {
	c := newCounting(t, "/a")
	c.run(c.share("/a", 1))
	sum := 0.0
	for range 3 {
		for range 9 {
			c.count(map[string]uint64{"/a": 1})
			c.run()
		}
		c.count(map[string]uint64{"/a": 1})
		sum += c.run(c.share("/a", 10))[0]
	}
	assert.InDelta(t, 30, sum, 1e-3)
}

func TestAnUncountableCgroupIsCountedWithTheOneAroundItAndRetried(t *testing.T) {
	refusal := errors.New("too many open files")
	c := newCounting(t, "/a", "/b")
	shares := []*Share{c.share("/a", 10), c.share("/b", 20), c.share("", 40)}
	c.refused["/b"] = refusal
	for _, step := range []struct {
		after       time.Duration
		before      func()
		a, b, other uint64    // counted
		want        []float64 // nil: any
		err         error
	}{
		{time.Second, nil, 0, 0, 0, nil, refusal},
		{time.Second, nil, 30, 20, 10, []float64{30, 10, 20}, refusal}, // though it is not tried again yet
		{time.Second, func() { delete(c.refused, "/b") }, 0, 0, 0, nil, refusal},
		{retryAfter, nil, 30, 0, 0, nil, nil},
		{time.Second, nil, 30, 20, 10, []float64{30, 20, 10}, nil},
		// An open counter fails to be read. It is closed.
		{time.Second, func() { c.refused["/a"] = refusal }, 30, 80, 10, []float64{8, 80, 32}, refusal},
		{retryAfter, func() {
			assert.Equal(t, map[string]int{"": 1, "/b": 1}, c.opened)
			delete(c.refused, "/a")
		}, 1000, 0, 0, nil, nil}, // unwatched counts are unattributed
		{time.Second, nil, 30, 80, 10, []float64{30, 80, 10}, nil},
	} {
		if step.before != nil {
			step.before()
		}
		c.count(map[string]uint64{"/a": step.a, "/b": step.b, "": step.other})
		work, err := c.weigh(step.after, shares...)
		require.ErrorIs(t, err, step.err)
		if step.want != nil {
			assert.InDeltaSlice(t, step.want, work, 1e-3)
		}
	}
	c.stop()
}

func TestTheCountersOfACgroupThatIsGoneAreClosed(t *testing.T) {
	c := newCounting(t, "/a", "/b", "/c")
	c.cgroups.Enter("/a", true)
	ends := c.cgroups.Enter("/b", true)
	c.run(c.share("/a", 1), c.share("/b", 1), c.share("/c", 1))
	require.Len(t, c.opened, 4)
	c.cgroups.Sweep()
	assert.Equal(t, map[string]int{"": 1, "/a": 1, "/b": 1}, c.opened, "no process was ever seen in c")
	ends.Leave()
	c.count(map[string]uint64{"/b": 30, "": 10})
	assert.InDeltaSlice(t, []float64{30, 10}, c.run(c.share("/b", 10), c.share("", 10)), 1e-3, "what it counted until its end is its own")
	c.cgroups.Sweep()
	assert.Equal(t, map[string]int{"": 1, "/a": 1}, c.opened)
	c.stop()
}

// The CPU time of its last processes is claimed in the cgroup around.
func TestCountsOfARemovedCgroupGoToTheOneAroundIt(t *testing.T) {
	c := newCounting(t, "/a", "/a/b")
	c.cgroups.Enter("/a", true)
	c.run(c.share("/a", 1), c.share("/a/b", 1), c.share("", 1))
	c.counted["/a"] += 50 * uint64(ms)
	c.count(map[string]uint64{"/a/b": 50})
	c.run(c.share("/a", 1))
	c.cgroups.Sweep()
	require.NotContains(t, c.opened, "/a/b")
	assert.InDeltaSlice(t, []float64{50}, c.run(c.share("/a", 10)), 1e-3)
}

// A cgroup that disappears between two reads is no error. One that is never found is.
func TestARemovedCgroupIsAnErrorIfItsProcessesRun(t *testing.T) {
	c := newCounting(t)
	c.refused["/a"] = fs.ErrNotExist
	c.run(c.share("/a", 1))
	c.at = c.at.Add(retryAfter)
	c.run(c.share("", 1))
	_, err := c.weigh(retryAfter, c.share("/a", 1))
	require.ErrorContains(t, err, "some cgroups cannot be counted")

	delete(c.refused, "/a")
	c.at = c.at.Add(retryAfter)
	c.run(c.share("/a", 1))
	c.others, c.refused["/a"] = true, fs.ErrNotExist
	c.run(c.share("/a", 1))
}

func TestACounterThatCannotBeReadIsClosed(t *testing.T) {
	c := newCounting(t)
	c.torn["/a"] = errors.New("torn")
	_, err := c.weigh(time.Second, c.share("/a", 1))
	require.ErrorIs(t, err, c.torn["/a"])
	assert.Equal(t, map[string]int{"": 1}, c.opened)
}

// Docker restarts a container under its old path.
func TestARecreatedCgroupGetsANewCounter(t *testing.T) {
	c := newCounting(t, "/a")
	run := func() []float64 {
		c.count(map[string]uint64{"/a": 90, "": 10})
		return c.run(c.share("/a", 50), c.share("", 50))
	}
	run()
	assert.InDeltaSlice(t, []float64{90, 10}, run(), 1e-3)
	c.run()
	assert.Zero(t, c.checks, "no process ran in it")
	c.ids["/a"] = 2
	assert.InDeltaSlice(t, []float64{50, 50}, run(), 1e-3, "it is noticed")
	assert.InDeltaSlice(t, []float64{90, 10}, run(), 1e-3)
	c.stop()
}

// The CPU time of a short-lived probe in a container is that of its starter, outside of the
// container.
func TestCountsWithoutCPUTimeGoToTheCgroupAround(t *testing.T) {
	c := newCounting(t, "/a", "/a/b")
	c.run(c.share("/a", 1), c.share("/a/b", 1), c.share("", 1))
	count := func(inner, other uint64) {
		c.counted["/a"] += inner * uint64(ms)
		c.count(map[string]uint64{"/a/b": inner, "": other})
		c.at = c.at.Add(9 * time.Second)
	}
	for i := range 360 {
		count(50, 9_950)
		assert.InDelta(t, 9_950+i%2*100, c.run(c.share("", 10_000))[0], 1e-3, "counts of two windows go to the window with CPU time")
	}
	count(1, 10_000)
	assert.InDeltaSlice(t, []float64{1, 10_000}, c.run(c.share("/a/b", 1), c.share("", 10_000)), 1e-3, "nothing of an hour ago")
}

func TestForgottenCountsAreNotAttributed(t *testing.T) {
	c := newCounting(t, "/a")
	c.run(c.share("/a", 1), c.share("", 1))
	c.count(map[string]uint64{"/a": 30_000, "": 30_000})
	c.run()
	c.Forget()
	c.count(map[string]uint64{"/a": 10, "": 100})
	work, err := c.weigh(keepOwn, c.share("", 10))
	require.NoError(t, err)
	assert.InDeltaSlice(t, []float64{100}, work, 1e-3, "what waits since then has not waited for long")
	c.count(map[string]uint64{"": 100})
	assert.InDeltaSlice(t, []float64{10, 100}, c.run(c.share("/a", 10), c.share("", 10)), 1e-3)
}

// A CPU that came online is counted from then on, also in cgroups that were counted before.
func TestCountersReopenWhenCPUsComeOrGo(t *testing.T) {
	for name, spoil := range map[string]func(*kernel){
		"others are online":           func(k *kernel) { k.others = true },
		"one went and came meanwhile": func(k *kernel) { k.refused[""], k.mended = errStopped, true },
	} {
		c := newCounting(t, "/a")
		shares := []*Share{c.share("/a", int(silentLimit/ms)), c.share("", int(silentLimit/ms))}
		run := func() []float64 {
			c.count(map[string]uint64{"/a": 1800, "": 200})
			return c.run(shares...)
		}
		run()
		assert.InDeltaSlice(t, []float64{1800, 200}, run(), 1e-3, name)
		c.counted[""] += 1 << 50 // counts of the old counters are not used, even if they wait for CPU time
		c.run()
		c.counted[""] += 1 << 50
		spoil(c.kernel)
		opened := c.total
		measured, err := c.Weigh(c.at.Add(time.Second), shares)
		require.NoError(t, err, name)
		assert.False(t, measured, name)
		assert.Equal(t, opened+2, c.total, name)
		assert.Equal(t, map[string]int{"": 1, "/a": 1}, c.opened, name)
		assert.InDeltaSlice(t, []float64{1800, 200}, run(), 1e-3, name)
		c.stop()
	}
}

// As on a virtual machine whose hypervisor pretends to have counters.
func TestCountersThatCountNothingAreReported(t *testing.T) {
	c := newCounting(t)
	half := c.share("", int(silentLimit/ms/2))
	c.run(half)
	_, err := c.weigh(time.Second, half)
	require.ErrorIs(t, err, errCountless)
	c.count(map[string]uint64{"": 1})
	c.run(half, half)
}
