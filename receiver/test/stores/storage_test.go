// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// storageID is the storage extension of a simulated collector.
var storageID = component.MustNewID("memory_storage")

// host is the collector of a receiver. It has a storage extension if stored is not nil.
type host struct{ stored *storedState }

// GetExtensions implements component.Host.
func (h host) GetExtensions() map[component.ID]component.Component {
	if h.stored == nil {
		return nil
	}
	return map[component.ID]component.Component{storageID: h.stored}
}

// storedState is a storage extension that outlives receivers. After a crash it keeps nothing more.
type storedState struct {
	component.StartFunc
	component.ShutdownFunc
	simulation *simulation
	kept       map[string][]byte
}

// GetClient implements storage.Extension.
func (s *storedState) GetClient(_ context.Context, _ component.Kind, _ component.ID, name string) (storage.Client, error) {
	return storedClient{s, name + "/"}, nil
}

// storedClient is a part of a storedState.
type storedClient struct {
	of     *storedState
	prefix string
}

// Get implements storage.Client.
func (c storedClient) Get(_ context.Context, key string) ([]byte, error) {
	return slices.Clone(c.of.kept[c.prefix+key]), nil
}

// Set implements storage.Client.
func (c storedClient) Set(ctx context.Context, key string, value []byte) error {
	return c.Batch(ctx, storage.SetOperation(key, value))
}

// Delete implements storage.Client.
func (c storedClient) Delete(ctx context.Context, key string) error {
	return c.Batch(ctx, storage.DeleteOperation(key))
}

// Batch implements storage.Client.
func (c storedClient) Batch(_ context.Context, operations ...*storage.Operation) error {
	kept := c.of.kept
	if c.of.simulation.cut.Load() {
		kept = maps.Clone(kept)
	}
	for _, o := range operations {
		switch key := c.prefix + o.Key; o.Type {
		case storage.Get:
			o.Value = slices.Clone(kept[key])
		case storage.Set:
			kept[key] = slices.Clone(o.Value)
		case storage.Delete:
			delete(kept, key)
		}
	}
	return nil
}

// Close implements storage.Client.
func (storedClient) Close(context.Context) error { return nil }
