// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/pack"
)

// hangingStore answers once it is released.
type hangingStore struct {
	stored  map[string][]byte
	release chan struct{}
	closed  int
}

func (s *hangingStore) Get(_ context.Context, key string) ([]byte, error) { return s.stored[key], nil }

func (s *hangingStore) Set(_ context.Context, key string, value []byte) error {
	<-s.release
	s.stored[key] = value
	return nil
}

func (*hangingStore) Delete(context.Context, string) error { return nil }

func (s *hangingStore) Close(context.Context) error {
	s.closed++
	return nil
}

func TestAStoreThatHangsIsWaitedForOnceAndUsedAgainWhenItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hangingStore{stored: map[string][]byte{}, release: make(chan struct{})}
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

func TestTheConditionsOfAnAccountAreStored(t *testing.T) {
	for _, want := range []attribution.AccountState{{Other: true}, {Group: true}, {Live: true}, {Reported: true}} {
		want.Entity, want.Start, want.Owner.Process.Executable = identity.ProgramEntity, time.Unix(1, 0).UTC(), "sh"
		written := pack.NewWriter(nil)
		packAccount(written, &want)
		var got attribution.AccountState
		packAccount(pack.NewReader(written.Bytes()), &got)
		got.Start = got.Start.UTC()
		assert.Empty(t, got.Amounts)
		got.Amounts = nil
		assert.Equal(t, want, got)
	}
}
