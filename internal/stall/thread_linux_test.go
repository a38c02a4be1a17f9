// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

func TestNoReadIsDoneOnTheMainThread(t *testing.T) {
	var all, together sync.WaitGroup
	const goroutines = 8
	together.Add(goroutines)
	for range goroutines {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			together.Done()
			together.Wait() // each has a thread of its own now
			assert.NotEqual(t, os.Getpid(), unix.Gettid())
		})
	}
	all.Wait()
}
