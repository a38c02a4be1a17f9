// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// threadsOf returns a machine whose CPUs have these lists of the threads of their cores.
func threadsOf(t testing.TB, lists ...string) (root string) {
	root = t.TempDir()
	put(t, root, map[string]string{sysCPU + "online": fmt.Sprintf("0-%d\n", len(lists)-1)})
	for cpu, list := range lists {
		put(t, root, map[string]string{threads(cpu): list + "\n"})
	}
	return root
}

func threads(cpu int) string {
	return fmt.Sprintf("%scpu%d/topology/thread_siblings_list", sysCPU, cpu)
}

func openSiblings(t testing.TB, root string) *Siblings {
	t.Helper()
	s, err := OpenSiblings(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func listSiblings(s *Siblings) (all [][]int32) {
	for cpu := range s.CPUs() {
		all = append(all, s.Of(cpu))
	}
	return all
}

func TestSiblingsAreTheOtherThreadsOfACore(t *testing.T) {
	for name, c := range map[string]struct {
		lists  []string
		want   [][]int32
		shared bool
	}{
		"one thread a core":         {[]string{"0", "1"}, [][]int32{{}, {}}, false},
		"as Intel's are numbered":   {[]string{"0,2", "1,3", "0,2", "1,3"}, [][]int32{{2}, {3}, {0}, {1}}, true},
		"side by side":              {[]string{"0-1", "0-1"}, [][]int32{{1}, {0}}, true},
		"four threads a core":       {[]string{"0-3", "0-3", "0-3", "0-3"}, [][]int32{{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}}, true},
		"efficient cores have none": {[]string{"0-1", "0-1", "2"}, [][]int32{{1}, {0}, {}}, true},
		"a sibling that is offline": {[]string{"0,7", "1"}, [][]int32{{}, {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := openSiblings(t, threadsOf(t, c.lists...))
			assert.Equal(t, c.want, listSiblings(s))
			assert.Equal(t, c.shared, s.Shared())
		})
	}
}

func TestSiblingsFollowTheCPUsThatAreOnline(t *testing.T) {
	root := threadsOf(t, "0,2", "1,3", "0,2", "1,3")
	s := openSiblings(t, root)
	put(t, root, map[string]string{sysCPU + "online": "0-1\n", threads(0): "0\n", threads(1): "1\n"})
	s.Refresh(recheck / 2)
	assert.True(t, s.Shared(), "it is too soon to look")
	s.Refresh(recheck)
	assert.False(t, s.Shared())
	assert.Equal(t, 2, s.CPUs())

	put(t, root, map[string]string{sysCPU + "online": "0-2\n", threads(0): "0,2\n"})
	s.Refresh(2 * recheck)
	assert.Equal(t, [][]int32{{2}, {}, {0}}, listSiblings(s))

	require.NoError(t, os.Remove(filepath.Join(root, threads(1))))
	put(t, root, map[string]string{sysCPU + "online": "0-1\n"})
	s.Refresh(3 * recheck)
	assert.Equal(t, [][]int32{{2}, {}, {0}}, listSiblings(s), "what cannot be read stays")
	put(t, root, map[string]string{threads(1): "1\n", threads(0): "0\n"})
	s.Refresh(4 * recheck)
	assert.Equal(t, [][]int32{{}, {}}, listSiblings(s))
}

func TestUnreadableSiblingsAreAnError(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no CPUs":   {},
		"no list":   {sysCPU + "online": "0\n"},
		"no number": {sysCPU + "online": "0\n", threads(0): "a\n"},
	} {
		root := t.TempDir()
		put(t, root, files)
		_, err := OpenSiblings(root)
		require.ErrorContains(t, err, "threads of cores: ", name)
	}
}

func TestRefreshingSiblingsAllocatesNothingInTheSteadyState(t *testing.T) {
	s, now := openSiblings(t, threadsOf(t, "0,1", "0,1")), time.Duration(0)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		now += time.Second
		s.Refresh(now)
	}))
}

// statOf is a /proc/stat with a line for each CPU, which was busy for so many ticks.
func statOf(busy ...int) string {
	var b strings.Builder
	b.WriteString("cpu  1 0 0 0 0 0 0 0 0 0\n")
	for cpu, ticks := range busy {
		if ticks >= 0 {
			fmt.Fprintf(&b, "cpu%d %d 0 %d 1000 5 0 0 77 0 0\n", cpu, ticks/2, ticks-ticks/2)
		}
	}
	b.WriteString("intr 12345\nctxt 1\n")
	return b.String()
}

func TestTheBusyTimeOfEachCPUIsCountedIfAskedFor(t *testing.T) {
	root := t.TempDir()
	n := newNodeReader(root)
	t.Cleanup(func() { _ = n.proc.Close() })
	read := func(busy ...int) []units.CPUTime {
		put(t, root, map[string]string{"proc/stat": statOf(busy...)})
		_, err := n.ReadNode()
		require.NoError(t, err)
		return n.CPUs()
	}
	assert.Nil(t, read(5, 5))
	n.countCPUs()
	assert.Equal(t, []units.CPUTime{0, 0}, read(10, 20))
	assert.Equal(t, []units.CPUTime{10 * Tick, 0}, read(20, 20))
	assert.Equal(t, []units.CPUTime{10 * Tick, 0}, read(20, -1), "offline")
	assert.Equal(t, []units.CPUTime{11 * Tick, 5 * Tick}, read(21, 25))
	assert.Zero(t, testing.AllocsPerRun(20, func() {
		if _, err := n.ReadNode(); err != nil {
			panic(err)
		}
	}))
}

// The first buffer has room for some hundred lines, and the text may be cut within any of them.
func TestAllCPUsAreCountedHoweverManyThereAre(t *testing.T) {
	for _, cpus := range []int{100, 113, 120, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 1024} {
		root := t.TempDir()
		n := newNodeReader(root)
		t.Cleanup(func() { _ = n.proc.Close() })
		n.countCPUs()
		put(t, root, map[string]string{"proc/stat": statOf(make([]int, cpus)...) + strings.Repeat("x", 1<<16)})
		_, err := n.ReadNode()
		require.NoError(t, err)
		assert.Len(t, n.CPUs(), cpus)
	}
}
