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

// tree returns the tree of the counted cgroups. Their directories do not exist.
func (k *kernel) tree() *cgroup.Tree {
	if k.cgroups == nil {
		k.cgroups = cgroup.New(cgroup.Options{Root: "/nowhere"})
	}
	return k.cgroups
}

func (k *kernel) node(path string) *cgroup.Node { return k.tree().Node(path) }

func pathOf(n *cgroup.Node) string {
	if n == nil {
		return ""
	}
	return n.Path()
}

func (k *kernel) cpusChanged() (changed bool) {
	changed, k.others = k.others, false
	return changed
}

func (k *kernel) open(n *cgroup.Node) (count, error) {
	cgroup := pathOf(n)
	if k.mended {
		delete(k.refused, cgroup)
	}
	k.total++
	if err := k.refused[cgroup]; err != nil {
		return nil, err
	}
	if k.opened == nil {
		k.opened = map[string]int{}
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

// Two containers and everything else: the count of each is divided by CPU time within it.
func TestTheWorkOfACgroupIsItsCount(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 1 << 40, "/a": 1 << 20, "/b": 77}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	at := began
	run := func() []float64 {
		at = at.Add(time.Second)
		return workOf(t, m, at,
			Share{CPU: 30 * ms, Cgroup: k.node("/a")}, Share{CPU: 10 * ms, Cgroup: k.node("/a")}, Share{CPU: 50 * ms, Cgroup: k.node("/b")},
			Share{CPU: 10 * ms}, Share{CPU: 40 * ms})
	}
	k.count(map[string]uint64{"/a": 5, "/b": 6, "": 129})
	assert.InDeltaSlice(t, []float64{30, 10, 50, 10, 40}, run(), 1e-3, "the containers' first interval: all together are known")
	k.count(map[string]uint64{"/a": 80, "/b": 20, "": 25})
	assert.InDeltaSlice(t, []float64{60, 20, 20, 5, 20}, run(), 1e-3)
	k.count(map[string]uint64{"/a": 40, "/b": 200})
	assert.InDeltaSlice(t, []float64{30, 10, 200, 0, 0}, run(), 1e-3)
	k.counted[""] = 1 << 40 // reset
	k.count(map[string]uint64{"/a": 40, "/b": 50})
	assert.InDeltaSlice(t, []float64{30, 10, 50, 0, 0}, run(), 1e-3)
	require.NoError(t, m.Close())
	assert.Empty(t, k.opened)
}

// The counter of a cgroup includes those of the cgroups inside.
func TestAContainerInAContainerIsCountedOnce(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0, "/a/x/b": 0}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	at := began
	run := func() []float64 {
		at = at.Add(time.Second)
		return workOf(t, m, at, Share{CPU: 90 * ms, Cgroup: k.node("/a/x/b")}, Share{CPU: 10 * ms, Cgroup: k.node("/a")}, Share{CPU: 50 * ms})
	}
	run()
	k.count(map[string]uint64{"/a": 10, "": 50})
	k.counted["/a"] += 90 * uint64(ms)
	k.count(map[string]uint64{"/a/x/b": 90})
	assert.InDeltaSlice(t, []float64{90, 10, 50}, run(), 1e-3)
	// The inner cgroup's events count for the outer one until its own counter is known.
	k.refused = map[string]error{"/a/x/b": errors.New("refused")}
	k.count(map[string]uint64{"": 50})
	k.counted["/a"] += 200 * uint64(ms)
	k.counted[""] += 200 * uint64(ms)
	at = at.Add(time.Second)
	shares := []Share{{CPU: 90 * ms, Cgroup: k.node("/a/x/b")}, {CPU: 10 * ms, Cgroup: k.node("/a")}, {CPU: 50 * ms}}
	measured, err := m.Weigh(at, shares)
	assert.True(t, measured)
	require.ErrorContains(t, err, "some cgroups cannot be counted: refused")
	assert.InDelta(t, 180, float64(shares[0].Work)/float64(ms), 1e-3)
	assert.InDelta(t, 20, float64(shares[1].Work)/float64(ms), 1e-3)
	assert.InDelta(t, 50, float64(shares[2].Work)/float64(ms), 1e-3)
}

// In procfs, a process that runs for a millisecond now and then gets its CPU time in ticks.
func TestCountsWaitForTheirCPUTime(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	at := began
	workOf(t, m, at, Share{CPU: ms, Cgroup: k.node("/a")})
	sum := 0.0
	for i := range 30 {
		k.count(map[string]uint64{"/a": 1})
		at = at.Add(time.Second)
		if i%10 == 9 {
			sum += workOf(t, m, at, Share{CPU: 10 * ms, Cgroup: k.node("/a")})[0]
		} else {
			workOf(t, m, at)
		}
	}
	assert.InDelta(t, 30, sum, 1e-3)
}

func TestAnUncountableCgroupIsCountedWithTheOneAroundItAndRetried(t *testing.T) {
	refusal := errors.New("too many open files")
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0, "/b": 0}, refused: map[string]error{"/b": refusal}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	at := began
	run := func(after time.Duration) (work []float64, err error) {
		at = at.Add(after)
		shares := []Share{{CPU: 10 * ms, Cgroup: k.node("/a")}, {CPU: 20 * ms, Cgroup: k.node("/b")}, {CPU: 40 * ms}}
		_, err = m.Weigh(at, shares)
		for i := range shares {
			work = append(work, float64(shares[i].Work)/float64(ms))
		}
		return work, err
	}
	_, err := run(time.Second)
	require.ErrorIs(t, err, refusal)
	k.count(map[string]uint64{"/a": 30, "/b": 20, "": 10})
	got, err := run(time.Second)
	require.ErrorIs(t, err, refusal, "though it is not tried again yet")
	assert.InDeltaSlice(t, []float64{30, 10, 20}, got, 1e-3)
	k.refused = nil
	_, err = run(time.Second)
	require.Error(t, err)
	k.count(map[string]uint64{"/a": 30})
	_, err = run(retryAfter)
	require.NoError(t, err)
	k.count(map[string]uint64{"/a": 30, "/b": 20, "": 10})
	got, err = run(time.Second)
	require.NoError(t, err)
	assert.InDeltaSlice(t, []float64{30, 20, 10}, got, 1e-3)

	k.refused = map[string]error{"/a": refusal} // open counters fail to be read
	k.count(map[string]uint64{"/a": 30, "/b": 80, "": 10})
	got, err = run(time.Second)
	require.ErrorIs(t, err, refusal)
	assert.InDeltaSlice(t, []float64{8, 80, 32}, got, 1e-3)
	assert.Equal(t, map[string]int{"": 1, "/b": 1}, k.opened, "it is closed")
	k.refused = nil
	k.count(map[string]uint64{"/a": 1000})
	_, err = run(retryAfter)
	require.NoError(t, err)
	k.count(map[string]uint64{"/a": 30, "/b": 80, "": 10})
	got, err = run(time.Second)
	require.NoError(t, err)
	assert.InDeltaSlice(t, []float64{30, 80, 10}, got, 1e-3, "unwatched counts are unattributed")
	require.NoError(t, m.Close())
}

func TestTheCountersOfACgroupThatIsGoneAreClosed(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0, "/b": 0, "/c": 0}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	sleeps, ends := k.tree().Enter("/a", true), k.tree().Enter("/b", true)
	workOf(t, m, began, Share{CPU: ms, Cgroup: sleeps}, Share{CPU: ms, Cgroup: ends}, Share{CPU: ms, Cgroup: k.node("/c")})
	require.Len(t, k.opened, 4)
	k.tree().Sweep()
	assert.Equal(t, map[string]int{"": 1, "/a": 1, "/b": 1}, k.opened, "no process was ever seen in c")
	ends.Leave()
	k.counted["/b"] += 30 * uint64(ms)
	k.counted[""] += 40 * uint64(ms)
	got := workOf(t, m, began.Add(time.Second), Share{CPU: 10 * ms, Cgroup: ends}, Share{CPU: 10 * ms})
	assert.InDeltaSlice(t, []float64{30, 10}, got, 1e-3, "what it counted until its end is its own")
	k.tree().Sweep()
	assert.Equal(t, map[string]int{"": 1, "/a": 1}, k.opened)
	require.NoError(t, m.Close())
	assert.Empty(t, k.opened)
}

// The CPU time of its last processes is claimed in the cgroup around.
func TestCountsOfARemovedCgroupGoToTheOneAroundIt(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0, "/a/b": 0}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	outer := k.tree().Enter("/a", true)
	workOf(t, m, began, Share{CPU: ms, Cgroup: outer}, Share{CPU: ms, Cgroup: k.node("/a/b")}, Share{CPU: ms})
	for _, cgroup := range []string{"", "/a", "/a/b"} {
		k.counted[cgroup] += 50 * uint64(ms)
	}
	workOf(t, m, began.Add(time.Second), Share{CPU: ms, Cgroup: outer})
	k.tree().Sweep()
	require.NotContains(t, k.opened, "/a/b")
	got := workOf(t, m, began.Add(2*time.Second), Share{CPU: 10 * ms, Cgroup: outer})
	assert.InDeltaSlice(t, []float64{50}, got, 1e-3)
	require.NoError(t, m.Close())
}

// A cgroup that disappears between two reads is no error. One that is never found is.
func TestARemovedCgroupIsAnErrorIfItsProcessesRun(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0}, refused: map[string]error{"/a": fs.ErrNotExist}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	workOf(t, m, began, Share{CPU: ms, Cgroup: k.node("/a")})
	workOf(t, m, began.Add(retryAfter), Share{CPU: ms})
	at := began.Add(2 * retryAfter)
	_, err := m.Weigh(at, []Share{{CPU: ms, Cgroup: k.node("/a")}})
	require.ErrorContains(t, err, "some cgroups cannot be counted")

	delete(k.refused, "/a")
	workOf(t, m, at.Add(retryAfter), Share{CPU: ms, Cgroup: k.node("/a")})
	k.others, k.refused["/a"] = true, fs.ErrNotExist
	workOf(t, m, at.Add(retryAfter+1), Share{CPU: ms, Cgroup: k.node("/a")})
	require.NoError(t, m.Close())
}

func TestACounterThatCannotBeReadIsClosed(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0}, torn: map[string]error{"/a": errors.New("torn")}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	_, err := m.Weigh(began, []Share{{CPU: ms, Cgroup: k.node("/a")}})
	require.ErrorIs(t, err, k.torn["/a"])
	assert.Equal(t, map[string]int{"": 1}, k.opened)
	require.NoError(t, m.Close())
}

// Docker restarts a container under its old path.
func TestARecreatedCgroupGetsANewCounter(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0}, ids: map[string]uint64{"/a": 1}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	at := began
	run := func() []float64 {
		k.count(map[string]uint64{"/a": 90, "": 10})
		at = at.Add(time.Second)
		return workOf(t, m, at, Share{CPU: 50 * ms, Cgroup: k.node("/a")}, Share{CPU: 50 * ms})
	}
	run()
	assert.InDeltaSlice(t, []float64{90, 10}, run(), 1e-3)
	workOf(t, m, at)
	assert.Zero(t, k.checks, "no process ran in it")
	k.ids["/a"] = 2
	assert.InDeltaSlice(t, []float64{50, 50}, run(), 1e-3, "it is noticed")
	assert.InDeltaSlice(t, []float64{90, 10}, run(), 1e-3)
	require.NoError(t, m.Close())
	assert.Empty(t, k.opened)
}

// The CPU time of a short-lived probe in a container is that of its starter, outside of the
// container.
func TestCountsWithoutCPUTimeGoToTheCgroupAround(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0, "/a/b": 0}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	at := began
	run := func(shares ...Share) []float64 {
		at = at.Add(10 * time.Second)
		return workOf(t, m, at, shares...)
	}
	run(Share{CPU: ms, Cgroup: k.node("/a")}, Share{CPU: ms, Cgroup: k.node("/a/b")}, Share{CPU: ms})
	for i := range 360 {
		k.counted["/a/b"] += 50 * uint64(ms)
		k.counted["/a"] += 50 * uint64(ms)
		k.counted[""] += 10_000 * uint64(ms)
		got := run(Share{CPU: 10_000 * ms})
		assert.InDelta(t, 9_950+i%2*100, got[0], 1e-3, "counts of two windows go to the window with CPU time")
	}
	k.counted["/a/b"] += uint64(ms)
	k.counted["/a"] += uint64(ms)
	k.counted[""] += 10_001 * uint64(ms)
	got := run(Share{CPU: ms, Cgroup: k.node("/a/b")}, Share{CPU: 10_000 * ms})
	assert.InDelta(t, 1, got[0], 1e-3, "nothing of an hour ago")
	assert.InDelta(t, 10_000, got[1], 1e-3)
}

func TestForgottenCountsAreNotAttributed(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	workOf(t, m, began, Share{CPU: ms, Cgroup: k.node("/a")}, Share{CPU: ms})
	k.count(map[string]uint64{"/a": 30_000, "": 30_000})
	workOf(t, m, began.Add(time.Second))
	m.Forget()
	k.count(map[string]uint64{"/a": 10, "": 100})
	got := workOf(t, m, began.Add(time.Second+keepOwn), Share{CPU: 10 * ms})
	assert.InDeltaSlice(t, []float64{100}, got, 1e-3, "what waits since then has not waited for long")
	k.count(map[string]uint64{"": 100})
	got = workOf(t, m, began.Add(2*time.Second+keepOwn), Share{CPU: 10 * ms, Cgroup: k.node("/a")}, Share{CPU: 10 * ms})
	assert.InDeltaSlice(t, []float64{10, 100}, got, 1e-3)
}

// A CPU that came online is counted from then on, also in cgroups that were counted before.
func TestCountersReopenWhenCPUsComeOrGo(t *testing.T) {
	for name, spoil := range map[string]func(*kernel){
		"others are online":           func(k *kernel) { k.others = true },
		"one went and came meanwhile": func(k *kernel) { k.refused = map[string]error{"": errStopped} },
	} {
		k := &kernel{counted: map[string]uint64{"": 0, "/a": 0}}
		m := newByRate(newCounters(k, k.tree(), Instructions))
		at := began
		run := func() []float64 {
			k.count(map[string]uint64{"/a": 1800, "": 200})
			at = at.Add(time.Second)
			return workOf(t, m, at, Share{CPU: silentLimit, Cgroup: k.node("/a")}, Share{CPU: silentLimit})
		}
		run()
		assert.InDeltaSlice(t, []float64{1800, 200}, run(), 1e-3, name)
		k.counted[""] += 1 << 50 // counts of the old counters are not used, even if they wait for CPU time
		at = at.Add(time.Second)
		workOf(t, m, at)
		k.counted[""] += 1 << 50
		spoil(k)
		opened := k.total
		shares := []Share{{CPU: silentLimit, Cgroup: k.node("/a")}, {CPU: silentLimit}}
		at = at.Add(time.Second)
		if k.refused != nil {
			k.mended = true
		}
		measured, err := m.Weigh(at, shares)
		require.NoError(t, err, name)
		assert.False(t, measured, name)
		assert.Equal(t, opened+2, k.total, name)
		assert.Equal(t, map[string]int{"": 1, "/a": 1}, k.opened, name)
		assert.InDeltaSlice(t, []float64{1800, 200}, run(), 1e-3, name)
		require.NoError(t, m.Close())
		assert.Empty(t, k.opened)
	}
}

// As on a virtual machine whose hypervisor pretends to have counters.
func TestCountersThatCountNothingAreReported(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0}}
	m := newByRate(newCounters(k, k.tree(), Instructions))
	workOf(t, m, began, Share{CPU: silentLimit / 2})
	measured, err := m.Weigh(began.Add(time.Second), []Share{{CPU: silentLimit / 2}})
	assert.True(t, measured)
	require.ErrorIs(t, err, errCountless)
	k.count(map[string]uint64{"": 1})
	workOf(t, m, began.Add(2*time.Second), Share{CPU: silentLimit})
}
