// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAStoreThatHangsIsWaitedForOnceAndUsedAgainWhenItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hangingStore{&memoryStorage{stored: map[string][]byte{}}, make(chan struct{})}
		k := &keeper{connect: func(context.Context) (store, error) { return s, nil }}
		began := time.Now()
		require.ErrorIs(t, k.set(t.Context(), []byte("first")), errSlow)
		assert.Equal(t, storeTimeout, time.Since(began))
		require.ErrorIs(t, k.set(t.Context(), []byte("second")), errSlow)
		assert.Equal(t, storeTimeout, time.Since(began), "the second call does not wait")
		close(s.release)
		synctest.Wait()
		value, err := k.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "first", string(value))
		require.NoError(t, k.set(t.Context(), []byte("third")))
		require.NoError(t, k.close(t.Context()))
		assert.Equal(t, 1, s.closed)
	})
}
