package work

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kernel is one whose counters are set by the test.
type kernel struct {
	counted map[string]uint64 // so far, by cgroup
	refused map[string]error  // to be opened, or to be read once it is
	opened  map[string]int
}

func (k *kernel) open(cgroup string) (count, error) {
	if err := k.refused[cgroup]; err != nil {
		return nil, err
	}
	if k.opened == nil {
		k.opened = map[string]int{}
	}
	k.opened[cgroup]++
	return counted{k, cgroup}, nil
}

func (k *kernel) exists(cgroup string) bool { _, ok := k.counted[cgroup]; return ok }

type counted struct {
	*kernel
	cgroup string
}

func (c counted) read() (uint64, error) { return c.counted[c.cgroup], c.refused[c.cgroup] }

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

// Two containers and what is beside them: what each counted is shared by CPU time within it.
func TestTheWorkOfACgroupIsWhatWasCountedForIt(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 1 << 40, "/a": 1 << 20, "/b": 77}}
	m := newMeter(newCounters(k, "instructions"))
	at := began
	run := func() []float64 {
		at = at.Add(time.Second)
		return workOf(t, m, at,
			Share{CPU: 30 * ms, Cgroup: "/a"}, Share{CPU: 10 * ms, Cgroup: "/a"}, Share{CPU: 50 * ms, Cgroup: "/b"},
			Share{CPU: 10 * ms}, Share{CPU: 40 * ms})
	}
	k.count(map[string]uint64{"/a": 5, "/b": 6, "": 100})
	run() // the first interval of the containers: nothing is known of them, so nothing of the rest either
	k.count(map[string]uint64{"/a": 80, "/b": 20, "": 25})
	assert.InDeltaSlice(t, []float64{60, 20, 20, 5, 20}, run(), 1e-3)
	k.count(map[string]uint64{"/a": 40, "/b": 200})
	assert.InDeltaSlice(t, []float64{30, 10, 200, 0, 0}, run(), 1e-3)
	require.NoError(t, m.Close())
	assert.Empty(t, k.opened)
}

func TestACgroupThatCannotBeCountedHasTheAverageAndIsTriedAgain(t *testing.T) {
	refusal := errors.New("too many open files")
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0, "/b": 0}, refused: map[string]error{"/b": refusal}}
	m := newMeter(newCounters(k, "instructions"))
	at := began
	run := func(after time.Duration) []float64 {
		at = at.Add(after)
		return workOf(t, m, at, Share{CPU: 10 * ms, Cgroup: "/a"}, Share{CPU: 20 * ms, Cgroup: "/b"}, Share{CPU: 40 * ms})
	}
	require.ErrorIs(t, m.Weigh(at, []Share{{CPU: ms, Cgroup: "/a"}, {CPU: ms, Cgroup: "/b"}}), refusal, "nothing is known yet")
	k.count(map[string]uint64{"/a": 30, "/b": 20, "": 10})
	assert.InDeltaSlice(t, []float64{30, 60, 120}, run(time.Second), 1e-3, "what is beside them has b's in it")
	k.refused = nil
	k.count(map[string]uint64{"/a": 30})
	run(retryAfter)
	k.count(map[string]uint64{"/a": 30, "/b": 20, "": 10})
	assert.InDeltaSlice(t, []float64{30, 20, 10}, run(time.Second), 1e-3)

	k.refused = map[string]error{"/a": refusal} // what is open fails to be read
	k.count(map[string]uint64{"/a": 30, "/b": 80})
	assert.InDeltaSlice(t, []float64{40, 80, 160}, run(time.Second), 1e-3)
	assert.Equal(t, map[string]int{"": 1, "/b": 1}, k.opened, "it is closed")
	require.NoError(t, m.Close())
}

func TestCountersThatFailAltogetherSayWhy(t *testing.T) {
	refusal := errors.New("refused")
	k := &kernel{counted: map[string]uint64{"": 0}, refused: map[string]error{"": refusal}}
	m := newMeter(newCounters(k, "instructions"))
	require.ErrorIs(t, m.Weigh(began, []Share{{CPU: ms}}), refusal)
}

func TestTheCountersOfACgroupThatIsGoneAreClosed(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 0, "/a": 0, "/b": 0}}
	m := newMeter(newCounters(k, "instructions"))
	workOf(t, m, began, Share{CPU: ms, Cgroup: "/a"}, Share{CPU: ms, Cgroup: "/b"})
	require.Len(t, k.opened, 3)
	delete(k.counted, "/b")
	workOf(t, m, began.Add(time.Second), Share{CPU: ms})
	require.Len(t, k.opened, 3, "it is not looked for each time")
	workOf(t, m, began.Add(time.Second+forgetAfter), Share{CPU: ms})
	assert.Equal(t, map[string]int{"": 1, "/a": 1}, k.opened, "a sleeps")
}
