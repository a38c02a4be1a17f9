// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// containerSizes finds how much memory containers' cgroups are charged with.
type containerSizes struct {
	files [2]memoryFiles
	known map[string]*containerSize // by cgroup
	// unlinked says that some do not know what is around them.
	unlinked bool
	now      time.Time
	swept    time.Time
	buf      [32]byte
}

// memoryFiles are those of a version of cgroups (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).
type memoryFiles struct {
	dir  *kernfs.Dir
	name string
}

// containerSize is the memory of one container.
type containerSize struct {
	paths    [2]string      // of its files
	up       *containerSize // of the container around it, nil if it is in none
	charged  uint64         // bytes, with the containers inside
	own      uint64         // without them
	ok       bool
	current  bool // it is asked for in the interval
	at       time.Time
	asked    bool   // for it, since the last sweep
	resident uint64 // of its processes, in the interval
	failed   error  // why it is not ok
	tries    int    // since it was ok
}

// measureSizesAgain is for how long a size is good, and forgetSizes how often those are forgotten that nobody asked for
// since the last time.
const (
	measureSizesAgain = time.Second
	forgetSizes       = 10 * time.Minute
)

func newContainerSizes(root string) *containerSizes {
	sys := filepath.Join(root, "sys/fs/cgroup")
	return &containerSizes{
		known: map[string]*containerSize{},
		files: [2]memoryFiles{
			{kernfs.New(sys), "memory.current"}, {kernfs.New(filepath.Join(sys, "memory")), "memory.usage_in_bytes"},
		},
	}
}

func (s *containerSizes) of(cgroup string) *containerSize {
	size := s.known[cgroup]
	if size == nil {
		size = &containerSize{}
		for i, f := range s.files {
			size.paths[i] = strings.TrimPrefix(cgroup, "/") + "/" + f.name
		}
		s.known[cgroup], s.unlinked = size, true
	}
	size.asked = true
	return size
}

// link finds the container around each.
func (s *containerSizes) link() {
	s.unlinked = false
	for cgroup, size := range s.known {
		size.up = nil
		for dir := path.Dir(cgroup); len(dir) > 1 && size.up == nil; dir = path.Dir(dir) {
			size.up = s.known[dir]
		}
	}
}

// begin starts an interval.
func (s *containerSizes) begin(now time.Time) {
	s.now = now
	for _, size := range s.known {
		size.resident, size.current = 0, false
	}
	if now.Sub(s.swept) >= forgetSizes {
		s.swept = now
		maps.DeleteFunc(s.known, func(_ string, size *containerSize) bool { return !size.asked })
		for _, size := range s.known {
			size.asked = false
		}
		s.unlinked = true
	}
	if s.unlinked {
		s.link()
	}
}

// finish tells what is each one's own, once all are read.
func (s *containerSizes) finish() {
	for _, size := range s.known {
		size.own = size.charged
	}
	for _, size := range s.known {
		up := size.up
		for up != nil && (!up.current || !up.ok) {
			up = up.up
		}
		if size.current && size.ok && up != nil {
			up.own -= min(size.charged, up.own)
		}
	}
}

// read brings a size up to date, which is not ok where no cgroup tells it.
func (s *containerSizes) read(size *containerSize) {
	size.current = true
	if !size.at.IsZero() && s.now.Sub(size.at) < measureSizesAgain {
		return
	}
	size.at, size.ok = s.now, false
	for i, f := range s.files {
		text, err := f.dir.Read(size.paths[i], s.buf[:])
		if err == nil {
			if size.charged, size.ok = parseCharge(text); size.ok {
				size.failed, size.tries = nil, 0
				return
			}
			err = errNoCharge
		}
		if i == 0 || !errors.Is(err, fs.ErrNotExist) {
			size.failed = err
		}
	}
	size.tries++
}

var errNoCharge = errors.New("it is not a number")

// trouble does not tell whose memory is not known, as they come and go. That of one that is gone is no trouble, unless
// its processes go on.
func (s *containerSizes) trouble() error {
	var failed error
	for _, size := range s.known {
		if size.current && size.tries > 1 && (failed == nil || size.failed.Error() < failed.Error()) {
			failed = size.failed
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("the memory of some containers is what is resident: that of their cgroups cannot be read: %w", failed)
}

// parseCharge reads a number of bytes. A line without its end may be cut short.
func parseCharge(text []byte) (uint64, bool) {
	if !bytes.HasSuffix(text, []byte{'\n'}) {
		return 0, false
	}
	return parseNumber(text)
}

// part is what a process of the container has of its memory, by what it has resident.
func (s *containerSize) part(resident uint64) uint64 {
	return units.MulDiv(s.own, resident, s.resident)
}

func (s *containerSizes) close() error {
	err := s.files[0].dir.Close()
	if other := s.files[1].dir.Close(); err == nil {
		err = other
	}
	return err
}
