// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

func TestTheListHasRoomForAllProcessesAndNotForTheirThreads(t *testing.T) {
	const threads, slack = 1000, 300
	dir := kernfs.New("/proc")
	defer func() { require.NoError(t, dir.Close()) }()
	ended, ready := make(chan struct{}), sync.WaitGroup{}
	defer close(ended)
	for range threads {
		ready.Add(1)
		go func() {
			runtime.LockOSThread() // and the thread ends with the goroutine
			ready.Done()
			<-ended
		}()
	}
	ready.Wait()
	for {
		before, err := countProcesses(dir)
		require.NoError(t, err)
		listed, err := filepath.Glob("/proc/[0-9]*")
		require.NoError(t, err)
		after, err := countProcesses(dir)
		require.NoError(t, err)
		if before == after { // else other tests start processes
			assert.InDelta(t, len(listed), before, slack)
			break
		}
	}
	assert.GreaterOrEqual(t, initialRoom(), minRoom)
}
