// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// noteLoaded notes the programs that are loaded.
func noteLoaded(t *testing.T) map[string]*ebpf.Program {
	t.Helper()
	loaded := map[string]*ebpf.Program{}
	original := newCollection
	t.Cleanup(func() { newCollection = original })
	newCollection = func(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions) (*ebpf.Collection, error) {
		c, err := original(spec, o)
		if err == nil {
			for name, p := range c.Programs {
				loaded[name] = p
			}
		}
		return c, err
	}
	return loaded
}

// verified is the most instructions of each program that the verifier may follow, without slices
// and domains and with them: a path more in a loop, or a function that is followed for each of its
// callers, costs many times as much.
var verified = map[string][2]uint32{
	tasksProgScan:      {5_000, 8_000},
	tasksProgStream:    {300, 500},
	tasksProgOnFree:    {400, 800},
	ranProgScanRan:     {5_000, 6_000},
	ranProgOnSwitch:    {200, 200},
	ranProgMarkRunning: {200, 200},
}

func TestTheVerifierFollowsFewInstructions(t *testing.T) {
	types := btf.NewCache()
	for divided, o := range []Options{{Types: types}, {Slices: true, Domains: 2, Types: types}} {
		loaded := noteLoaded(t)
		scan, err := OpenScan(1, o)
		skipUnlessPossible(t, err)
		defer func() { require.NoError(t, scan.Close()) }()
		stream, err := OpenStream(o)
		require.NoError(t, err)
		defer func() { require.NoError(t, stream.Close()) }()
		ends, err := OpenEndings(4096, o)
		require.NoError(t, err)
		defer func() { require.NoError(t, ends.Close()) }()
		ran, err := OpenRan(1, scan)
		require.NoError(t, err)
		defer func() { require.NoError(t, ran.Close()) }()
		for name, p := range loaded {
			info, err := p.Info()
			require.NoError(t, err)
			n, told := info.VerifiedInstructions()
			if !told {
				t.Skip("the kernel does not report verified instructions (Linux 5.16)")
			}
			t.Logf("%s, %d domains: %d instructions", name, o.Domains, n)
			assert.LessOrEqual(t, n, verified[name][divided], "%s, %d domains", name, o.Domains)
		}
	}
}

// threadTime is the CPU time of the calling thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used))
	return time.Duration(used.Nano())
}

// The verifier may search the kernel's types by name whenever it comes to a read of a pointer,
// which takes longer than all else that it does. To read them once is a measure of how many they
// are.
func TestToLoadTheScanTakesLittleMoreThanToReadTheTypesOfTheKernel(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	types := btf.NewCache()
	began := threadTime(t)
	_, err := types.Kernel()
	skipUnlessPossible(t, err)
	read := threadTime(t)
	s, err := OpenScan(1, Options{Types: types})
	skipUnlessPossible(t, err)
	loaded := threadTime(t)
	require.NoError(t, s.Close())
	t.Logf("%v to read the types, %v to load the scan", read-began, loaded-read)
	assert.Less(t, loaded-read, 5*(read-began))
}
