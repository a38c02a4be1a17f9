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
	store   store      // nil while there is none
	busy    chan error // has the end of a call that took longer than storeTimeout, nil if there is none
}

// storeName is the name of the receiver's store in a storage extension.
const storeName = "attribution"

// storeTimeout bounds how long a collection waits for a store. A storage extension on a local disk takes less than a
// millisecond, and a second for a database that another process has locked.
const storeTimeout = 5 * time.Second

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
	if err := k.use(ctx, func(ctx context.Context) (err error) {
		got, err = k.store.Get(ctx, key)
		return err
	}); err != nil {
		return nil, err
	}
	return got, nil
}

// set stores a value. The value must not be changed after errSlow.
func (k *keeper) set(ctx context.Context, key string, value []byte) error {
	return k.use(ctx, func(ctx context.Context) error { return k.store.Set(ctx, key, value) })
}

// remove removes a value.
func (k *keeper) remove(ctx context.Context, key string) error {
	return k.use(ctx, func(ctx context.Context) error { return k.store.Delete(ctx, key) })
}

// close closes the store. No other call follows.
func (k *keeper) close(ctx context.Context) error {
	if !k.usable() || k.store == nil {
		return nil
	}
	err := k.use(ctx, func(ctx context.Context) error { return k.store.Close(ctx) })
	k.connect = nil
	return err
}

// errSlow reports that a store took longer than storeTimeout.
var errSlow = errors.New("the store does not answer in time")

// use calls f with the store open. It does not wait longer than storeTimeout; until a call that takes longer has ended, others fail.
func (k *keeper) use(ctx context.Context, f func(context.Context) error) error {
	if k.busy != nil {
		select {
		case <-k.busy:
			k.busy = nil
		default:
			return errSlow
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- k.guard(ctx, f) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		k.busy = done
		return errSlow
	}
}

// guard calls f with the store open. A panic in it, or a fault on a file that the extension has mapped, is an error, and the
// store is not used again. A panic on a goroutine of the extension's own still ends the collector.
func (k *keeper) guard(ctx context.Context, f func(context.Context) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			k.store, k.connect = nil, nil
			err = fmt.Errorf("the store panicked and is not used again: %v", r)
		}
	}()
	if k.store == nil {
		s, err := k.connect(ctx)
		if err != nil {
			return err
		}
		k.store = s
	}
	return f(ctx)
}
