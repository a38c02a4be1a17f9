// SPDX-License-Identifier: Apache-2.0

// Package gpus reads NVIDIA GPUs: their energy, and which processes used them.
package gpus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// reopenEvery is the time between attempts to open NVML again while a GPU is lost. NVML does not
// find a GPU that came back until it is opened again.
const reopenEvery = time.Minute

var errNoGPU = fmt.Errorf("no NVIDIA GPU that may be read: %w", fs.ErrNotExist)

// reader implements gpulibrary.Reader.
type reader struct {
	open    func() (nvml.Library, error)
	library nvml.Library // nil while it is not open
	opened  time.Time
	listed  int // number of GPUs that NVML reported when boards was built
	boards  []*board
	skipped error // reason why a GPU is missing in boards
	devices []gpulibrary.Device
}

// New returns a reader of NVML's GPUs. open loads and initializes NVML. Poll calls open, and again
// after a failure.
func New(open func() (nvml.Library, error)) gpulibrary.Reader { return &reader{open: open} }

// Poll implements gpulibrary.Reader. If NVML is missing or must be initialized again, the next call
// opens it.
func (r *reader) Poll(ctx context.Context) ([]gpulibrary.Device, error) {
	if r.library != nil && r.incomplete() && time.Since(r.opened) >= reopenEvery {
		_ = r.closeLibrary() // NVML is opened again in any case
	}
	if err := r.list(); err != nil {
		return nil, err
	}
	r.devices = slices.Grow(r.devices[:0], len(r.boards))[:len(r.boards)]
	for i, b := range r.boards {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b.poll(&r.devices[i])
		if err := r.devices[i].Err; needsOpening(err) {
			_ = r.closeLibrary()
			return nil, err
		}
	}
	return r.devices, nil
}

// Close implements gpulibrary.Reader.
func (r *reader) Close() error { return r.closeLibrary() }

// list opens the library if it is not open, and finds the GPUs if their number has changed.
func (r *reader) list() error {
	if r.library == nil {
		library, err := r.open()
		if err != nil {
			return err
		}
		r.library, r.opened, r.listed = library, time.Now(), -1
	}
	count, err := r.library.DeviceCount()
	if err != nil {
		_ = r.closeLibrary()
		return fmt.Errorf("number of GPUs: %w", err)
	}
	if count != r.listed {
		r.find(count)
	}
	switch {
	case len(r.boards) > 0:
		return nil
	case r.skipped != nil:
		return r.skipped
	default:
		return errNoGPU
	}
}

// find builds the list of GPUs. It keeps a lost GPU even if NVML no longer lists it.
func (r *reader) find(count int) {
	known := r.boards
	r.boards, r.listed, r.skipped = nil, count, nil
	for i := range count {
		b, err := r.describe(i, known)
		switch {
		case err == nil:
			if !slices.ContainsFunc(r.boards, func(other *board) bool { return other.address == b.address }) {
				r.boards = append(r.boards, b)
			}
		case !errors.Is(err, nvml.NoPermission): // NVML also counts GPUs that the collector may not use
			r.skipped = fmt.Errorf("GPU %d: %w", i, err)
		}
	}
	for _, b := range known {
		if slices.Contains(r.boards, b) {
			continue
		}
		b.slices.keep(nil)
		if b.lost != nil {
			b.device = nil
			r.boards = append(r.boards, b)
		}
	}
}

// describe returns the board of the GPU at an index of NVML: the existing board, or a new one.
func (r *reader) describe(index int, known []*board) (*board, error) {
	device, err := r.library.Device(index)
	if err != nil {
		return nil, err
	}
	id, err := device.UUID()
	if err != nil {
		return nil, fmt.Errorf("UUID: %w", err)
	}
	i := slices.IndexFunc(known, func(b *board) bool { return b.id == id })
	if i >= 0 {
		known[i].attach(device)
		return known[i], nil
	}
	address, err := device.PCIAddress()
	if err != nil {
		return nil, fmt.Errorf("PCI address: %w", err)
	}
	b := &board{id: id, address: address}
	b.name, _ = device.Name()
	b.attach(device)
	return b, nil
}

// incomplete reports whether a GPU cannot be read before NVML is opened again.
func (r *reader) incomplete() bool {
	return r.skipped != nil || slices.ContainsFunc(r.boards, func(b *board) bool { return b.lost != nil })
}

func (r *reader) closeLibrary() error {
	if r.library == nil {
		return nil
	}
	for _, b := range r.boards {
		b.slices.keep(nil)
	}
	err := r.library.Close()
	r.library = nil
	return err
}

// needsOpening reports whether an error of one GPU means that NVML must be opened again.
func needsOpening(err error) bool {
	return errors.Is(err, nvml.Uninitialized) || errors.Is(err, nvml.DriverNotLoaded) || errors.Is(err, nvml.LibraryMismatch)
}

// isLost reports whether an error means that the GPU can only be read after NVML was opened again.
func isLost(err error) bool {
	return errors.Is(err, nvml.GPUIsLost) || errors.Is(err, nvml.ResetRequired)
}

// isMissing reports whether an error means that the GPU or its driver lacks a function.
func isMissing(err error) bool {
	return errors.Is(err, nvml.NotSupported) || errors.Is(err, nvml.FunctionNotFound) || errors.Is(err, nvml.ArgumentVersion)
}
