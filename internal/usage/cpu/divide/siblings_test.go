// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
)

// threadsOf returns a machine whose CPUs have these lists of the threads of their cores.
func threadsOf(t testing.TB, lists ...string) (root string) {
	root = t.TempDir()
	dividetest.Put(t, root, map[string]string{dividetest.SysCPU + "online": fmt.Sprintf("0-%d\n", len(lists)-1)})
	for cpu, list := range lists {
		dividetest.Put(t, root, map[string]string{threads(cpu): list + "\n"})
	}
	return root
}

func threads(cpu int) string {
	return fmt.Sprintf("%scpu%d/topology/thread_siblings_list", dividetest.SysCPU, cpu)
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
	dividetest.Put(t, root, map[string]string{dividetest.SysCPU + "online": "0-1\n", threads(0): "0\n", threads(1): "1\n"})
	s.Refresh(refreshAfter / 2)
	assert.True(t, s.Shared(), "it is too soon to look")
	s.Refresh(refreshAfter)
	assert.False(t, s.Shared())
	assert.Equal(t, 2, s.CPUs())

	dividetest.Put(t, root, map[string]string{dividetest.SysCPU + "online": "0-2\n", threads(0): "0,2\n"})
	s.Refresh(2 * refreshAfter)
	assert.Equal(t, [][]int32{{2}, {}, {0}}, listSiblings(s))

	require.NoError(t, os.Remove(filepath.Join(root, threads(1))))
	dividetest.Put(t, root, map[string]string{dividetest.SysCPU + "online": "0-1\n"})
	s.Refresh(3 * refreshAfter)
	assert.Equal(t, [][]int32{{2}, {}, {0}}, listSiblings(s), "what cannot be read stays")
	dividetest.Put(t, root, map[string]string{threads(1): "1\n", threads(0): "0\n"})
	s.Refresh(4 * refreshAfter)
	assert.Equal(t, [][]int32{{}, {}}, listSiblings(s))
}

func TestUnreadableSiblingsAreAnError(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no CPUs":   {},
		"no list":   {dividetest.SysCPU + "online": "0\n"},
		"no number": {dividetest.SysCPU + "online": "0\n", threads(0): "a\n"},
	} {
		root := t.TempDir()
		dividetest.Put(t, root, files)
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
