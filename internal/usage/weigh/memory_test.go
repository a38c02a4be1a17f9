// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
)

const page = 4096

func TestMemoryIsWeighedByHoldingTimeOrCPUTime(t *testing.T) {
	shares := []Share{
		{CPU: 10 * ms, Resident: 3 * page, Held: 10 * time.Second},
		{CPU: 20 * ms, Resident: 5 * page, Held: 4 * time.Second},
		{CPU: 0, Resident: 2 * page, Held: 10 * time.Second}, // sleeps
		{CPU: 30 * ms, ShortLived: true},
	}
	for byCPUTime, want := range map[bool][]uint64{
		false: {3 * 10_000, 5 * 4_000, 2 * 10_000, 0},
		// The short-lived claim has the 130 page-ms per 30 ms of the others.
		true: {3 * 10_000, 5 * 20_000, 0, 130_000},
	} {
		measured, err := NewMemory(nil, byCPUTime).Weigh(began, shares)
		require.NoError(t, err)
		assert.True(t, measured)
		var got []uint64
		for i := range shares {
			got = append(got, shares[i].Work)
		}
		assert.Equal(t, want, got, byCPUTime)
	}
}

func TestAContainerHoldsTheMemoryChargedToItsCgroup(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("proc/1/mountinfo", "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")
	write("sys/fs/cgroup/a/memory.current", "36864\n") // 9 pages
	tree := cgroup.New(cgroup.Options{Root: root})
	defer func() { require.NoError(t, tree.Close()) }()
	m := NewMemory(tree, false)
	shares := []Share{
		{Cgroup: tree.Node("/a"), Resident: 100 * page, Held: time.Second},
		{Cgroup: tree.Node("/a"), Resident: 200 * page, Held: time.Second},
		{Cgroup: tree.Node("/b"), Resident: 5 * page, Held: time.Second}, // has no memory.current
		{Resident: 7 * page, Held: time.Second},
	}
	_, err := m.Weigh(began, shares)
	require.NoError(t, err, "it may end meanwhile")
	for i, want := range []uint64{3000, 6000, 5000, 7000} {
		assert.Equal(t, want, shares[i].Work)
	}
	_, err = m.Weigh(began.Add(time.Second), shares)
	require.ErrorContains(t, err, "the memory of some containers is what is resident")
}
