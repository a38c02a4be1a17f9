// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"maps"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
)

// verified is the maximum number of instructions that the verifier may follow in each program,
// without and with slices, domains and events. One more path in a loop, or a function that is
// followed for each of its callers, costs many times as much.
var verified = map[string][2]uint32{
	tasksProgScan:      {5_000, 10_000},
	tasksProgStream:    {300, 500},
	tasksProgOnFree:    {400, 1_200},
	ranProgScanRan:     {5_000, 7_000},
	ranProgOnSwitch:    {200, 800},
	ranProgMarkRunning: {200, 200},
	ranProgFlush:       {0, 500},
	ranProgOnNew:       {0, 100},
	ranProgCreate:      {0, 100},
}

func TestTheVerifierFollowsFewInstructions(t *testing.T) {
	types := btf.NewCache()
	original := newCollection
	t.Cleanup(func() { newCollection = original })
	events, err := NewEvents(perfevent.NewHardware(unix.PERF_TYPE_SOFTWARE, [3]uint64{}))
	skipUnlessPossible(t, err)
	defer func() { require.NoError(t, events.Close()) }()
	for divided, o := range []Options{{Types: types}, {Slices: true, Domains: 2, Events: events, Types: types}} {
		loaded := map[string]*ebpf.Program{}
		newCollection = func(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions) (*ebpf.Collection, error) {
			c, err := original(spec, o)
			if err == nil {
				maps.Copy(loaded, c.Programs)
			}
			return c, err
		}
		scan, err := OpenScan(1, o)
		skipUnlessPossible(t, err)
		defer func() { require.NoError(t, scan.Close()) }()
		stream, err := OpenStream(o)
		require.NoError(t, err)
		defer func() { require.NoError(t, stream.Close()) }()
		ends, err := OpenEndings(4096, o)
		require.NoError(t, err)
		defer func() { require.NoError(t, ends.Close()) }()
		ran, err := OpenRan(1, scan, true)
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

// The verifier may search the kernel's types by name at each read of a pointer, which takes longer
// than the rest of its work. The time to read the types once scales with their number.
func TestLoadingTheScanTakesLittleMoreThanReadingTheTypesOfTheKernel(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	types := btf.NewCache()
	began := clock(t, unix.CLOCK_THREAD_CPUTIME_ID)
	_, err := types.Kernel()
	skipUnlessPossible(t, err)
	read := clock(t, unix.CLOCK_THREAD_CPUTIME_ID)
	s, err := OpenScan(1, Options{Types: types})
	skipUnlessPossible(t, err)
	loaded := clock(t, unix.CLOCK_THREAD_CPUTIME_ID)
	require.NoError(t, s.Close())
	t.Logf("%v to read the types, %v to load the scan", read-began, loaded-read)
	assert.Less(t, loaded-read, 5*(read-began))
}
