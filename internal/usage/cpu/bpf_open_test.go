// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

func TestAllProgramsAreLoadedWithTheSameTypesOfTheKernel(t *testing.T) {
	var noted []*btf.Cache
	rescan, ends, created := openScan, openEndings, openCreations
	replace(t, &openScan, func(o tasks.Options) (lister, error) {
		noted = append(noted, o.Types)
		return rescan(o)
	})
	replace(t, &openEndings, func(o tasks.Options) (endings, error) {
		noted = append(noted, o.Types)
		return ends(o)
	})
	replace(t, &openCreations, func(types *btf.Cache) (creations, error) {
		noted = append(noted, types)
		return created(types)
	})
	openHere(t)
	require.Len(t, noted, 3)
	require.NotNil(t, noted[0])
	for _, types := range noted {
		assert.Same(t, noted[0], types)
	}
}

func TestTheTypesOfTheKernelAreNotKept(t *testing.T) {
	openHere(t)
	require.Eventually(t, func() bool {
		runtime.GC()
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		return !strings.Contains(string(maps), "/sys/kernel/btf/vmlinux")
	}, time.Minute, time.Millisecond)
}
