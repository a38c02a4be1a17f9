// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// store is the subset of storage.Client that the receiver uses.
type store interface {
	// Get returns nil for a key that does not exist.
	Get(ctx context.Context, key string) ([]byte, error)
	Set(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	Close(ctx context.Context) error
}

// Storage accesses a store that may fail or hang, such as a directory on an unreachable file server.
// It returns failures as errors and never blocks a collection for longer than storeTimeout. A
// Storage is not safe for concurrent use.
type Storage struct {
	connect func(context.Context) (store, error) // opens the store
	store   store                                // nil until it is opened
	// readOnly makes Restore restore only the trained models, and Save store nothing.
	readOnly bool
	busy     chan outcome // receives the outcome of a call that exceeded storeTimeout; nil if there is none
}

// outcome is the result of a call.
type outcome struct {
	store store // nil if the store could not be opened
	err   error
}

const (
	// storeName is the name of the receiver's store in a storage extension.
	storeName = "attribution"
	// Key is the key of the state in the store.
	Key = "state"
	// storeTimeout is the maximum time that a collection waits for a store. A local disk takes less
	// than a millisecond. file_storage takes one second if another process has locked its database.
	storeTimeout = 5 * time.Second
)

// Opener returns the storage of a receiver's state, or nil if there is none. It does not open the
// store.
type Opener func(*config.Config, component.Host, component.ID) (*Storage, error)

// OpenStorage returns the configured storage, or nil if none is configured. It does not open the
// store. It returns an error only if the extension does not exist or is not a storage extension.
func OpenStorage(c *config.Config, host component.Host, receiver component.ID) (*Storage, error) {
	if c.Storage == "" {
		return nil, nil
	}
	if filepath.IsAbs(c.Storage) {
		return &Storage{connect: func(context.Context) (store, error) { return OpenFile(Path(c.Storage, receiver.String())) }}, nil
	}
	var id component.ID
	if err := id.UnmarshalText([]byte(c.Storage)); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	found, ok := host.GetExtensions()[id]
	if !ok {
		return nil, fmt.Errorf("storage: extension %q is not enabled: add it to extensions and to service::extensions, "+
			"or set the absolute path of a directory", c.Storage)
	}
	extension, ok := found.(storage.Extension)
	if !ok {
		return nil, fmt.Errorf("storage: extension %q is not a storage extension: add one, such as file_storage, to extensions "+
			"and to service::extensions, or set the absolute path of a directory", c.Storage)
	}
	return &Storage{connect: func(ctx context.Context) (store, error) {
		return extension.GetClient(ctx, component.KindReceiver, receiver, storeName)
	}}, nil
}

// OpenReadOnly returns the state file at the configured path as read-only storage, or nil if the
// receiver trains no models.
func OpenReadOnly(c *config.Config, _ component.Host, _ component.ID) (*Storage, error) {
	if !filepath.IsAbs(c.Storage) || !c.Attribution.Trains(c.Zones) {
		return nil, nil
	}
	return &Storage{connect: func(context.Context) (store, error) { return ReadOnlyFile(c.Storage), nil }, readOnly: true}, nil
}

// get returns the stored state, or nil if there is none.
func (k *Storage) get(ctx context.Context) ([]byte, error) {
	var got []byte
	if err := k.use(ctx, func(ctx context.Context, s store) (err error) {
		got, err = s.Get(ctx, Key)
		return err
	}); err != nil {
		return nil, err
	}
	return got, nil
}

// set stores the state. The caller must not change value afterwards.
func (k *Storage) set(ctx context.Context, value []byte) error {
	return k.use(ctx, func(ctx context.Context, s store) error { return s.Set(ctx, Key, value) })
}

// remove removes the state.
func (k *Storage) remove(ctx context.Context) error {
	return k.use(ctx, func(ctx context.Context, s store) error { return s.Delete(ctx, Key) })
}

// close closes the store. No other call follows.
func (k *Storage) close(ctx context.Context) error {
	if k == nil || k.store == nil {
		return nil
	}
	return k.use(ctx, func(ctx context.Context, s store) error { return s.Close(ctx) })
}

// errSlow reports that a store exceeded storeTimeout.
var errSlow = errors.New("the storage does not respond in time")

// use opens the store if necessary, calls f and waits for at most storeTimeout. While a call that
// exceeded storeTimeout is running, all other calls fail.
func (k *Storage) use(ctx context.Context, f func(context.Context, store) error) error {
	if k.busy != nil {
		select {
		case o := <-k.busy:
			k.busy, k.store = nil, o.store
		default:
			return errSlow
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	done := make(chan outcome, 1)
	go func(s store) { done <- call(ctx, k.connect, s, f) }(k.store)
	select {
	case o := <-done:
		k.store = o.store
		return o.err
	case <-ctx.Done():
		k.busy = done
		return errSlow
	}
}

// call calls f with the store s. If s is nil, it opens the store first.
func call(ctx context.Context, connect func(context.Context) (store, error), s store, f func(context.Context, store) error) outcome {
	if s == nil {
		opened, err := connect(ctx)
		if err != nil {
			return outcome{err: err}
		}
		s = opened
	}
	return outcome{store: s, err: f(ctx, s)}
}
