// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hangingStore answers once it is released.
type hangingStore struct {
	*memoryStorage
	release chan struct{}
}

func (s *hangingStore) Set(ctx context.Context, key string, value []byte) error {
	<-s.release
	return s.memoryStorage.Set(ctx, key, value)
}

func TestAStoreThatHangsIsWaitedForOnceAndUsedAgainWhenItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hangingStore{&memoryStorage{stored: map[string][]byte{}}, make(chan struct{})}
		k := &keeper{connect: func(context.Context) (store, error) { return s, nil }}
		began := time.Now()
		require.ErrorIs(t, k.set(t.Context(), "key", []byte("first")), errSlow)
		assert.Equal(t, storeTimeout, time.Since(began))
		require.ErrorIs(t, k.set(t.Context(), "key", []byte("second")), errSlow)
		assert.Equal(t, storeTimeout, time.Since(began), "the second call does not wait")
		close(s.release)
		synctest.Wait()
		value, err := k.get(t.Context(), "key")
		require.NoError(t, err)
		assert.Equal(t, "first", string(value))
		require.NoError(t, k.set(t.Context(), "key", []byte("third")))
		require.NoError(t, k.close(t.Context()))
		assert.Equal(t, 1, s.closed)
	})
}

func TestAStoreThatTakesLongToRefuseIsOpenedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStorage{stored: map[string][]byte{}}
		locked := errors.New("timeout")
		tries := 0
		k := &keeper{connect: func(context.Context) (store, error) {
			if tries++; locked != nil {
				time.Sleep(time.Second)
				return nil, locked
			}
			return s, nil
		}}
		began := time.Now()
		for range 6 * 60 {
			time.Sleep(10 * time.Second)
			require.ErrorIs(t, k.set(t.Context(), "key", nil), locked, "the same text at each collection")
		}
		waited := time.Since(began) - time.Hour
		assert.Equal(t, time.Duration(tries)*time.Second, waited)
		assert.LessOrEqual(t, waited, time.Hour/openShare)
		assert.GreaterOrEqual(t, tries, 30)
		locked = nil
		time.Sleep(openShare * time.Second)
		require.NoError(t, k.set(t.Context(), "key", nil))
	})
}

// The race detector finds it if what a call finds out late is not taken over in the next call only.
func TestAPanicThatComesLateIsNotedByTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		k := &keeper{connect: func(context.Context) (store, error) {
			<-release
			panic("page 4 already freed")
		}}
		require.ErrorIs(t, k.set(t.Context(), "key", nil), errSlow)
		close(release)
		assert.True(t, k.usable())
		synctest.Wait()
		require.ErrorContains(t, k.set(t.Context(), "key", nil), "page 4 already freed")
		assert.False(t, k.usable())
		require.NoError(t, k.close(t.Context()))
	})
}
