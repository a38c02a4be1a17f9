// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package ring reads ring buffers that BPF programs write to.
package ring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reader reads a ring buffer (BPF_MAP_TYPE_RINGBUF). It does not wait for records.
//
// The kernel counts every mapped page of a buffer as resident memory, so a Reader maps only the
// part that it reads. The kernel maps a buffer twice in a row, so that records at its end are
// contiguous. A Reader is not safe for concurrent use.
type Reader struct {
	fd       int
	size     uint64 // of the buffer in bytes, a power of two
	consumed *uint64
	produced *uint64
	control  [2][]byte // the pages of these

	window []byte // of the buffer, nil before the first record
	from   uint64 // where in the buffer it begins
}

// The header of a record (include/uapi/linux/bpf.h, BPF_RINGBUF_*).
const (
	headerSize = 8
	busy       = 1 << 31
	discarded  = 1 << 30
)

// windowSize is how much of a buffer is mapped.
const windowSize = 64 << 10

// mapMemory maps memory. Tests replace it to simulate a failure.
var mapMemory = unix.Mmap

// NewReader returns a reader of the map with this descriptor and a buffer of size bytes. The map
// must stay open until Close.
func NewReader(fd int, size uint32) (*Reader, error) {
	r := &Reader{fd: fd, size: uint64(size)}
	page := os.Getpagesize()
	for i, protection := range []int{unix.PROT_READ | unix.PROT_WRITE, unix.PROT_READ} {
		memory, err := mapMemory(fd, int64(i*page), page, protection, unix.MAP_SHARED)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("map the positions of a ring buffer: %w", err), r.Close())
		}
		r.control[i] = memory
	}
	r.consumed = (*uint64)(unsafe.Pointer(unsafe.SliceData(r.control[0])))
	r.produced = (*uint64)(unsafe.Pointer(unsafe.SliceData(r.control[1])))
	return r, nil
}

// Drain calls yield with each record that was written when Drain was called. The record is valid
// during the call.
func (r *Reader) Drain(yield func(record []byte)) error {
	end := atomic.LoadUint64(r.produced)
	at := atomic.LoadUint64(r.consumed)
	for at < end {
		record, size, err := r.record(at)
		if err != nil {
			return err
		}
		if size&busy != 0 {
			break // it is being written
		}
		if size&discarded == 0 {
			yield(record)
		}
		at += (uint64(len(record)) + headerSize + 7) &^ 7
		atomic.StoreUint64(r.consumed, at)
	}
	return nil
}

// record returns the record at a position, and the size in its header with the header's bits.
func (r *Reader) record(at uint64) (record []byte, size uint32, err error) {
	at &= r.size - 1
	if at < r.from || at-r.from+headerSize > uint64(len(r.window)) {
		if err := r.mapFrom(at); err != nil {
			return nil, 0, err
		}
	}
	size = atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.window[at-r.from])))
	length := uint64(size &^ (busy | discarded))
	if at-r.from+headerSize+length > uint64(len(r.window)) {
		if err := r.mapFrom(at); err != nil {
			return nil, 0, err
		}
	}
	begin := at - r.from + headerSize
	return r.window[begin : begin+length : begin+length], size, nil
}

// mapFrom maps a part of the buffer that begins at the page of a place.
func (r *Reader) mapFrom(at uint64) error {
	page := uint64(os.Getpagesize())
	from := at &^ (page - 1)
	length := min(max(windowSize, 2*page), 2*r.size-from)
	if err := r.unmap(); err != nil {
		return err
	}
	window, err := mapMemory(r.fd, int64(2*page+from), int(length), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map a ring buffer: %w", err)
	}
	r.window, r.from = window, from
	return nil
}

func (r *Reader) unmap() error {
	if r.window == nil {
		return nil
	}
	err := unix.Munmap(r.window)
	r.window, r.from = nil, 0
	return err
}

// Close unmaps the buffer.
func (r *Reader) Close() error {
	err := r.unmap()
	for i, memory := range r.control {
		if memory != nil {
			err = errors.Join(err, unix.Munmap(memory))
			r.control[i] = nil
		}
	}
	return err
}
