// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// withinPatience is the maximum wait of Within. It is long because the files that Within reads
	// at start are not read again.
	withinPatience = 2 * time.Second
	// searchHaste is the maximum wait for a search once the scan has no time left to wait.
	searchHaste = 10 * time.Millisecond
)

// Search runs functions that list directories of the kernel or open files by their paths. Any user
// can block both indefinitely (dev/kernel-reads.md), so a Search runs these functions on a separate
// goroutine and waits for a limited time. It runs one function at a time. Unlike a Guard,
// a Search uses the result of a function that returns late.
//
// If sys below the root directory is not a sysfs, as in a simulation, the caller's goroutine runs
// the functions. A Search is not safe for concurrent use.
type Search[T any] struct {
	// Root is the root directory of the host.
	Root string
	// Dir is the directory that is searched. It and its parent directories are listed before the
	// function runs; see List.
	Dir string
	// Waits bounds the waits. If it is nil, each Run is a scan of its own.
	Waits *Waits
	// Drop releases a result that Run does not return. It may be nil.
	Drop func(T)
	// Always runs the functions on another goroutine below any root, for tests.
	Always bool

	guarded bool
	decided bool   // guarded is set
	own     *Waits // used if Waits is nil
	running chan T
	began   time.Time
	hangs   error
}

// IsGuarded reports whether functions run on another goroutine.
func (s *Search[T]) IsGuarded() bool {
	if !s.decided {
		s.guarded = s.Always || IsSysfs(filepath.Join(s.Root, "sys"))
		s.decided = true
	}
	return s.guarded
}

// Running reports whether a function has not returned or its result has not been taken.
func (s *Search[T]) Running() bool { return s.running != nil }

// Run starts a function unless one is running, and waits for its result for the rest of the time
// that the scan may wait, or for 10 ms. If there is no result yet, Run returns false, and a later
// Run returns the result.
func (s *Search[T]) Run(find func() T) (result T, ok bool) {
	if !s.IsGuarded() {
		return find(), true
	}
	if s.running != nil {
		select {
		case result = <-s.running:
			s.running = nil
			return result, true
		default:
			return result, false
		}
	}
	waits := s.waits()
	running := make(chan T, 1)
	dir := s.Dir
	go OffMainThread(func() {
		listDown(dir)
		running <- find()
	})
	s.began = time.Now()
	defer func() { waits.left -= time.Since(s.began) }()
	timer := time.NewTimer(max(waits.left, searchHaste))
	defer timer.Stop()
	select {
	case result = <-running:
		return result, true
	case <-timer.C:
		s.running = running
		return result, false
	}
}

// waits returns the bound of the next wait.
func (s *Search[T]) waits() *Waits {
	if s.Waits != nil {
		return s.Waits
	}
	if s.own == nil {
		s.own = NewWaits()
	}
	s.own.Begin(time.Now())
	return s.own
}

// Err returns an error if a function has been running for a second.
func (s *Search[T]) Err() error {
	if s.running == nil || time.Since(s.began) < suspect {
		return nil
	}
	if s.hangs == nil {
		s.hangs = hangs(s.Dir)
	}
	return s.hangs
}

func hangs(dir string) error {
	return fmt.Errorf("looking for files in %s hangs: a process may block this directory or one in it", dir)
}

// Close drops the result of a function that is running.
func (s *Search[T]) Close() {
	if running := s.running; running != nil && s.Drop != nil {
		go func() { s.Drop(<-running) }()
	}
	s.running = nil
}

// Within returns the result of a function that searches dir, or an error if the function takes
// longer than two seconds. A late result is passed to drop, unless drop is nil. See Search.
func Within[T any](root, dir string, find func() (T, error), drop func(T)) (T, error) {
	type found struct {
		result T
		err    error
	}
	s := Search[found]{Root: root, Dir: dir, Waits: &Waits{left: withinPatience}}
	if drop != nil {
		s.Drop = func(f found) {
			if f.err == nil {
				drop(f.result)
			}
		}
	}
	f, ok := s.Run(func() found {
		result, err := find()
		return found{result, err}
	})
	if !ok {
		s.Close()
		return f.result, hangs(dir)
	}
	return f.result, f.err
}

// listDown lists a directory after its parent directories, from the top down.
func listDown(dir string) {
	for i := 1; i < len(dir); i++ {
		if dir[i] == filepath.Separator {
			List(dir[:i])
		}
	}
	List(strings.TrimSuffix(dir, string(filepath.Separator)))
}

// List lists a directory before names are looked up in it. A thread that waits for a listing can be
// killed, unlike a thread that waits for a lookup.
func List(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return // the following lookups fail as well
	}
	_, _ = d.Readdirnames(-1)
	_ = d.Close() // it was only read from
}
