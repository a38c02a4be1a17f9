// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCallersGoOnAtAPaceAndAtOnceAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{every: time.Millisecond}
		began := time.Now()
		p.wait(t.Context())
		assert.Zero(t, time.Since(began))
		var waiting sync.WaitGroup
		for range 99 {
			waiting.Go(func() { p.wait(t.Context()) })
		}
		waiting.Wait()
		assert.Equal(t, 99*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		began = time.Now()
		p.wait(t.Context())
		assert.Zero(t, time.Since(began))
	})
}

func TestTheZeroPaceAndTheEndLetAllGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var none pace
		none.wait(t.Context())
		none.wait(t.Context())
		p := pace{every: time.Hour}
		p.wait(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.wait(ctx)
		assert.Zero(t, time.Since(began))
	})
}
