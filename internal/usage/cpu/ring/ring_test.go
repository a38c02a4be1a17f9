// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ring

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// buffer is a ring buffer in a file, laid out as the kernel's: two pages of positions, and the
// buffer, which is mapped twice.
type buffer struct {
	*testing.T
	file *os.File
	size uint64
	data []byte
	at   *uint64
	read *uint64
}

func newBuffer(t *testing.T, size uint32) (*buffer, *Reader) {
	t.Helper()
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "ring")
	t.Cleanup(func() { assert.NoError(t, file.Close()) })
	page := os.Getpagesize()
	require.NoError(t, file.Truncate(int64(2*page)+int64(size)))
	whole, err := unix.Mmap(fd, 0, 2*page+int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Munmap(whole)) })
	b := &buffer{
		T: t, file: file, size: uint64(size), data: whole[2*page:],
		read: (*uint64)(unsafe.Pointer(&whole[0])), at: (*uint64)(unsafe.Pointer(&whole[page])),
	}
	original := mapMemory
	t.Cleanup(func() { mapMemory = original })
	mapMemory = b.mapTwice
	r, err := NewReader(fd, size)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return b, r
}

// mapTwice maps as the kernel does: behind the end of the buffer is its beginning.
func (b *buffer) mapTwice(fd int, offset int64, length, protection, flags int) ([]byte, error) {
	end := int64(2*os.Getpagesize()) + int64(b.size)
	if offset+int64(length) <= end {
		return unix.Mmap(fd, offset, length, protection, flags)
	}
	window, err := unix.Mmap(-1, 0, length, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	for done := 0; done < length; {
		part := min(int(end-offset), length-done)
		at := unsafe.Pointer(&window[done])
		if _, err := unix.MmapPtr(fd, offset, at, uintptr(part), protection, flags|unix.MAP_FIXED); err != nil {
			return nil, err
		}
		done, offset = done+part, int64(2*os.Getpagesize())
	}
	return window, nil
}

// write writes a record with these bits in its header, and returns where it is.
func (b *buffer) write(record []byte, bits uint32) (at uint64) {
	b.Helper()
	at = *b.at
	framed := binary.NativeEndian.AppendUint32(nil, uint32(len(record))|bits)
	framed = append(append(framed, 0, 0, 0, 0), record...)
	for len(framed)%8 != 0 {
		framed = append(framed, 0)
	}
	require.LessOrEqual(b, *b.at+uint64(len(framed))-atomic.LoadUint64(b.read), b.size, "there is no room")
	for i, c := range framed {
		b.data[(*b.at+uint64(i))%b.size] = c
	}
	atomic.AddUint64(b.at, uint64(len(framed)))
	return at
}

func drained(t *testing.T, r *Reader) (records []string) {
	t.Helper()
	require.NoError(t, r.Drain(func(record []byte) { records = append(records, string(record)) }))
	return records
}

func TestRecordsComeInTheirOrderAndOnce(t *testing.T) {
	b, r := newBuffer(t, 4096*16)
	assert.Empty(t, drained(t, r))
	b.write([]byte("first"), 0)
	b.write(nil, 0)
	b.write([]byte("discarded"), discarded)
	b.write([]byte("eighteen and eight"), 0)
	assert.Equal(t, []string{"first", "", "eighteen and eight"}, drained(t, r))
	assert.Empty(t, drained(t, r))
	assert.Equal(t, *b.at, *b.read, "the kernel may write over them")
}

func TestARecordThatIsBeingWrittenIsWaitedFor(t *testing.T) {
	b, r := newBuffer(t, 4096*16)
	b.write([]byte("before"), 0)
	at := b.write([]byte("late"), busy)
	b.write([]byte("behind"), 0)
	assert.Equal(t, []string{"before"}, drained(t, r))
	assert.Empty(t, drained(t, r))
	binary.NativeEndian.PutUint32(b.data[at%b.size:], uint32(len("late")))
	assert.Equal(t, []string{"late", "behind"}, drained(t, r))
}

func TestMoreRecordsThanFitAreReadAsTheyCome(t *testing.T) {
	for _, size := range []uint32{uint32(os.Getpagesize()), 1 << 18} {
		b, r := newBuffer(t, size)
		record := make([]byte, 40)
		for written := uint64(0); *b.at < 5*b.size; {
			for range 50 {
				written++
				binary.NativeEndian.PutUint64(record, written)
				b.write(record[:8+written%32], 0)
			}
			next := written - 49
			require.NoError(t, r.Drain(func(got []byte) {
				require.Equal(t, next, binary.NativeEndian.Uint64(got))
				require.Len(t, got, int(8+next%32))
				next++
			}))
			require.Equal(t, written+1, next)
			require.LessOrEqual(t, len(r.window), max(windowSize, 2*os.Getpagesize()), "not all of it is mapped")
		}
	}
}

func TestABufferThatCannotBeMappedIsAnErrorUntilItCan(t *testing.T) {
	b, r := newBuffer(t, 4096*16)
	b.write([]byte("kept"), 0)
	possible := mapMemory
	mapMemory = func(int, int64, int, int, int) ([]byte, error) { return nil, unix.ENOMEM }
	require.ErrorIs(t, r.Drain(func([]byte) { t.Error("it was not read") }), unix.ENOMEM)
	_, err := NewReader(int(b.file.Fd()), 4096)
	require.ErrorIs(t, err, unix.ENOMEM)
	mapMemory = possible
	assert.Equal(t, []string{"kept"}, drained(t, r))
}

func TestDrainingDoesNotAllocate(t *testing.T) {
	b, r := newBuffer(t, 1<<18)
	for range 200 {
		b.write([]byte("an end"), 0)
	}
	n := 0
	count := func([]byte) { n++ }
	end := *b.at
	atomic.StoreUint64(b.at, 0)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		atomic.AddUint64(b.at, end/200)
		if err := r.Drain(count); err != nil {
			t.Error(err)
		}
	}))
	assert.Equal(t, 101, n)
}
