// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// FileOptions say from which file marks are taken, and who takes them.
type FileOptions struct {
	// Path is the path of the file. Its directory must be there, the file need not.
	Path string
	// Mark takes a mark. It is called from one goroutine. Its context ends when the file is closed.
	Mark func(context.Context, Mark) error
	// Every is how far apart lines are taken. Lines that are appended faster wait. 0 means that none does.
	Every time.Duration
}

// File takes marks from the lines that are appended to a regular file. Lines that were there before are not taken. A file that
// appears later, or takes the place of another, is read from its beginning, and so is one that became shorter than what was read.
type File struct {
	options FileOptions
	lines   pace
	again   time.Duration // listenAgain
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex // guards err
	err error

	// Of the goroutine, once there is one.
	file    *os.File // nil while there is none
	info    fs.FileInfo
	offset  int64  // up to which it was read
	partial []byte // the beginning of a line
	tooLong bool   // the line that began is dropped up to its end
	buffer  [4096]byte
}

// NewFile returns a File. Start starts it, and Close ends it.
func NewFile(options FileOptions) *File {
	options.Path = filepath.Clean(options.Path)
	f := &File{options: options, lines: pace{every: options.Every}, again: listenAgain}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Start begins to follow the file. If the directory cannot be watched it returns why, and tries again every ten seconds until the
// File is closed.
func (f *File) Start() error {
	watcher := f.watch() // before the file is opened, so that nothing is missed
	if err := f.open(io.SeekEnd); err != nil && watcher != nil {
		f.note(err)
	}
	f.running.Go(func() {
		defer f.release()
		for {
			if watcher != nil {
				f.catchUp()
				f.follow(watcher)
				_ = watcher.Close()
			} else {
				sleep(f.ctx, f.again)
			}
			if f.ctx.Err() != nil {
				return
			}
			watcher = f.watch()
		}
	})
	return f.Err()
}

// Err returns why no marks are taken from the file, or what was wrong with its last line, nil if all is well.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Close stops to follow the file. It may be called again.
func (f *File) Close() error {
	f.stop()
	f.running.Wait()
	return nil
}

func (f *File) note(err error) {
	if err != nil {
		err = fmt.Errorf("%s: %w", f.options.Path, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// watch returns a watcher of the file's directory, nil if that cannot be watched.
func (f *File) watch() *fsnotify.Watcher {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		f.note(plain(err))
		return nil
	}
	if err := watcher.Add(filepath.Dir(f.options.Path)); err != nil {
		_ = watcher.Close()
		f.note(fmt.Errorf("its directory: %w", plain(err)))
		return nil
	}
	f.note(nil)
	return watcher
}

// follow reads what is appended, until the directory is gone or the File is closed.
func (f *File) follow(watcher *fsnotify.Watcher) {
	dir := filepath.Dir(f.options.Path)
	for {
		select {
		case <-f.ctx.Done():
			return
		case event, open := <-watcher.Events:
			if event.Name == f.options.Path {
				f.catchUp()
			}
			if !open || event.Name == dir && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return
			}
		case _, open := <-watcher.Errors: // events were lost
			if !open {
				return
			}
			f.catchUp()
		}
	}
}

// catchUp reads all that was appended so far, of the file that was there before, too.
func (f *File) catchUp() {
	f.read()
	info, err := os.Stat(f.options.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.release()
	case err != nil:
		f.release()
		f.note(plain(err))
	case f.file == nil || !os.SameFile(info, f.info):
		f.release()
		f.note(f.open(io.SeekStart))
		f.read()
	}
}

// open opens the file if it is there, and goes to its start or its end.
func (f *File) open(whence int) error {
	file, err := os.OpenFile(f.options.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO would block
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return plain(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	var offset int64
	if err == nil {
		offset, err = file.Seek(0, whence)
	}
	if err != nil {
		_ = file.Close()
		return plain(err)
	}
	f.file, f.info, f.offset, f.partial, f.tooLong = file, info, offset, f.partial[:0], false
	return nil
}

func (f *File) release() {
	if f.file != nil {
		_ = f.file.Close()
		f.file, f.info = nil, nil
	}
}

// read takes the marks that were appended to the open file.
func (f *File) read() {
	if f.file == nil {
		return
	}
	if info, err := f.file.Stat(); err == nil && info.Size() < f.offset {
		f.offset, f.partial, f.tooLong = 0, f.partial[:0], false
	}
	for f.ctx.Err() == nil {
		n, err := f.file.ReadAt(f.buffer[:], f.offset)
		f.offset += int64(n)
		f.take(f.buffer[:n])
		if err != nil || n == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				f.note(plain(err))
			}
			return
		}
	}
}

// take takes the marks of the lines that end in a text, and keeps the line that does not.
func (f *File) take(text []byte) {
	for len(text) > 0 && f.ctx.Err() == nil {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		text = rest
		if !f.tooLong {
			f.tooLong = len(f.partial)+len(line) >= maxLine
			f.partial = append(f.partial, line[:min(len(line), maxLine)]...)
		}
		if ended {
			f.lines.wait(f.ctx)
			f.note(f.takeLine())
			f.partial, f.tooLong = f.partial[:0], false
		}
	}
}

// takeLine takes the mark of the line that ended.
func (f *File) takeLine() error {
	if f.tooLong {
		return errLong
	}
	m, err := Parse(string(f.partial))
	if err != nil {
		return err
	}
	return f.options.Mark(f.ctx, m)
}
