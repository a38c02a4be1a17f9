// SPDX-License-Identifier: Apache-2.0

package patience

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestACallMayTakeAnyTimeBeforeTheEnd(t *testing.T) {
	failed := errors.New("failed")
	synctest.Test(t, func(t *testing.T) {
		value, err := Call(t.Context(), time.Second, func() (int, error) {
			time.Sleep(time.Hour)
			return 7, failed
		})
		assert.Equal(t, 7, value)
		assert.Equal(t, failed, err)
	})
}

func TestACallIsWaitedForALittleAfterTheEnd(t *testing.T) {
	for takes, want := range map[time.Duration]error{900 * time.Millisecond: nil, 1100 * time.Millisecond: ErrBlocked} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			stop()
			began := time.Now()
			value, err := Call(ctx, time.Second, func() (bool, error) {
				time.Sleep(takes)
				return true, nil
			})
			assert.Equal(t, want, err)
			assert.Equal(t, err == nil, value)
			assert.Equal(t, min(takes, time.Second), time.Since(began))
			time.Sleep(time.Second) // until a call that was not waited for has returned
		})
	}
}

func TestWhileACallIsBlockedNoOtherIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		g, began := Guard{Grace: time.Second}, time.Now()
		call := func(ctx context.Context, takes time.Duration) error {
			return g.Call(ctx, func() { calls.Add(1); time.Sleep(takes) })
		}
		require.NoError(t, call(t.Context(), time.Second/2))
		require.ErrorIs(t, call(t.Context(), 3*time.Second), ErrBlocked)
		require.ErrorIs(t, call(t.Context(), 0), ErrBlocked, "it may return yet")
		assert.Equal(t, 2500*time.Millisecond, time.Since(began))
		ended, stop := context.WithCancel(t.Context())
		stop()
		require.ErrorIs(t, call(ended, 0), ErrBlocked)
		assert.Equal(t, 2500*time.Millisecond, time.Since(began), "after the end no call is waited for")
		assert.True(t, g.Blocked())
		assert.Equal(t, int32(2), calls.Load())

		time.Sleep(2 * time.Second)
		assert.False(t, g.Blocked())
		require.NoError(t, call(ended, 0))
		assert.Equal(t, int32(3), calls.Load())
	})
}

func TestAfterABlockedWriteNothingIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, pipe := io.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		w := NewWriter(ctx, time.Second, pipe)
		go func() { _, _ = io.CopyN(io.Discard, reader, 5) }()
		_, err := w.Write([]byte("hello"))
		require.NoError(t, err)

		stop()
		text := []byte("hello")
		_, err = w.Write(text)
		require.ErrorIs(t, err, ErrBlocked)
		copy(text, "?????")
		began := time.Now()
		_, err = w.Write(text)
		require.ErrorIs(t, err, ErrBlocked)
		assert.Zero(t, time.Since(began))

		got := make([]byte, 10)
		n, err := reader.Read(got)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(bytes.TrimRight(got[:n], "\x00")), "what the caller had when it wrote")
	})
}
