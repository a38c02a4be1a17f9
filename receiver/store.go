// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// store is the part of a storage.Client that the receiver needs.
type store interface {
	// Get returns nil for a key that is not there.
	Get(ctx context.Context, key string) ([]byte, error)
	Set(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	Close(ctx context.Context) error
}

// keeper uses a store that may fail, panic or hang. Whatever is wrong with the store is an error, and keeps the receiver from
// nothing. A nil keeper is one that is not configured. A keeper is not safe for concurrent use.
type keeper struct {
	setting string // that selects the store
	// connect opens the store. It is nil once a storage extension has panicked: it may hold its locks for ever.
	connect func(context.Context) (store, error)
	store   store        // nil while there is none
	busy    chan outcome // has the outcome of a call that took longer than storeTimeout, nil if there is none
	refused error        // why there is no store, nil before the first attempt
	retry   time.Time    // until then the store is not opened again
}

// outcome is what became of a call.
type outcome struct {
	store    store // nil if it could not be opened or panicked
	panicked bool
	took     time.Duration
	err      error
}

// storeName is the name of the receiver's store in a storage extension.
const storeName = "attribution"

// storeTimeout bounds how long a collection waits for a store. A storage extension on a local disk takes less than a
// millisecond, and a second for a database that another process has locked.
const storeTimeout = 5 * time.Second

// openShare bounds how much of the time collections wait for a store that cannot be opened: one part in so many.
const openShare = 100

// openStorage returns the keeper of the configured storage extension, nil if none is configured. It opens nothing yet. An
// extension that does not exist is the only error.
func (c *Config) openStorage(host component.Host, receiver component.ID) (*keeper, error) {
	if c.Storage == nil {
		return nil, nil
	}
	extension, ok := host.GetExtensions()[*c.Storage].(storage.Extension)
	if !ok {
		return nil, fmt.Errorf("storage: %q is not a storage extension of this collector", c.Storage)
	}
	return &keeper{setting: "storage", connect: func(ctx context.Context) (store, error) {
		return extension.GetClient(ctx, component.KindReceiver, receiver, storeName)
	}}, nil
}

// usable reports whether the store may be used.
func (k *keeper) usable() bool { return k != nil && k.connect != nil }

// get returns the value of a key, nil if there is none.
func (k *keeper) get(ctx context.Context, key string) (value []byte, err error) {
	var got []byte
	if err := k.use(ctx, func(ctx context.Context, s store) (err error) {
		got, err = s.Get(ctx, key)
		return err
	}); err != nil {
		return nil, err
	}
	return got, nil
}

// set stores a value. The value must not be changed after errSlow.
func (k *keeper) set(ctx context.Context, key string, value []byte) error {
	return k.use(ctx, func(ctx context.Context, s store) error { return s.Set(ctx, key, value) })
}

// remove removes a value.
func (k *keeper) remove(ctx context.Context, key string) error {
	return k.use(ctx, func(ctx context.Context, s store) error { return s.Delete(ctx, key) })
}

// close closes the store. No other call follows.
func (k *keeper) close(ctx context.Context) error {
	if !k.usable() || k.store == nil {
		return nil
	}
	err := k.use(ctx, func(ctx context.Context, s store) error { return s.Close(ctx) })
	k.connect = nil
	return err
}

// errSlow reports that a store took longer than storeTimeout.
var errSlow = errors.New("the store does not answer in time")

// use calls f with the store open. It does not wait longer than storeTimeout; until a call that takes longer has ended, others fail.
func (k *keeper) use(ctx context.Context, f func(context.Context, store) error) error {
	if k.busy != nil {
		select {
		case o := <-k.busy:
			k.busy = nil
			k.note(o)
		default:
			return errSlow
		}
	}
	if !k.usable() || k.store == nil && time.Now().Before(k.retry) {
		return k.refused
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	done := make(chan outcome, 1)
	go func(connect func(context.Context) (store, error), s store) { done <- guard(ctx, connect, s, f) }(k.connect, k.store)
	select {
	case o := <-done:
		k.note(o)
		return o.err
	case <-ctx.Done():
		k.busy = done
		return errSlow
	}
}

// note takes over what became of a call.
func (k *keeper) note(o outcome) {
	if k.store = o.store; k.store != nil {
		return
	}
	k.refused, k.retry = o.err, time.Now().Add(openShare*o.took)
	if o.panicked {
		k.connect = nil
	}
}

// guard calls f with the store s, which it opens if it is nil. A panic, or a fault on a file that the extension has mapped, is an
// error, and the store is not used again. A panic on a goroutine of the extension's own still ends the collector.
func guard(ctx context.Context, connect func(context.Context) (store, error), s store, f func(context.Context, store) error) (o outcome) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			o = outcome{panicked: true, err: fmt.Errorf("the store panicked and is not used again: %v", r)}
		}
	}()
	if s == nil {
		began := time.Now()
		opened, err := connect(ctx)
		if err != nil {
			return outcome{took: time.Since(began), err: err}
		}
		s = opened
	}
	return outcome{store: s, err: f(ctx, s)}
}
