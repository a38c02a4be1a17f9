// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// ErrUnshared is the error of a machine without siblings.
var ErrUnshared = errors.New("no core has more than one thread online")

// Siblings lists for each logical CPU the other threads of its core. It lists the CPUs that are
// online. A Siblings is not safe for concurrent use.
type Siblings struct {
	online *Online
	of     [][]int32 // by number; nil: offline
	shared bool
}

// OpenSiblings reads which logical CPUs share a core on the machine whose root directory is at
// root.
func OpenSiblings(root string) (*Siblings, error) {
	s := &Siblings{online: NewOnline(root)}
	_, err := s.online.Read()
	if err == nil {
		err = s.read()
	}
	if err != nil {
		_ = s.online.Close() // it was only read from
		return nil, fmt.Errorf("threads of cores: %w", err)
	}
	return s, nil
}

// Shared reports whether any core has more than one thread online.
func (s *Siblings) Shared() bool { return s.shared }

// CPUs returns the highest number of a CPU plus 1.
func (s *Siblings) CPUs() int { return len(s.of) }

// Online reports whether a CPU below CPUs was online when that was last read.
func (s *Siblings) Online(cpu int) bool { return s.of[cpu] != nil }

// Of returns the other threads of the core of a CPU below CPUs. The caller must not change the
// slice.
func (s *Siblings) Of(cpu int) []int32 { return s.of[cpu] }

// Refresh reads the siblings again if the online CPUs have changed. It checks at most once a
// second; now is the time since boot. What cannot be read stays as it was.
func (s *Siblings) Refresh(now time.Duration) {
	if s.online.Refresh(now) && s.read() != nil {
		s.online.forget()
	}
}

// read reads which of the online CPUs share a core.
func (s *Siblings) read() error {
	cpus := s.online.CPUs()
	of := make([][]int32, slices.Max(cpus)+1)
	for _, cpu := range cpus {
		of[cpu] = []int32{}
	}
	shared := false
	for _, cpu := range cpus {
		siblings, err := s.siblings(cpu, of)
		if err != nil {
			return fmt.Errorf("CPU %d: %w", cpu, err)
		}
		of[cpu] = siblings
		shared = shared || len(siblings) > 0
	}
	s.of, s.shared = of, shared
	return nil
}

// siblings reads the threads of the core of a CPU that are online, without the CPU itself. The
// kernel's newer name of the list is core_cpus_list; thread_siblings_list is there in all versions
// (Documentation/admin-guide/cputopology.rst).
func (s *Siblings) siblings(cpu int, online [][]int32) ([]int32, error) {
	b, err := s.online.dir.Read("cpu"+strconv.Itoa(cpu)+"/topology/thread_siblings_list", s.online.buf)
	if err != nil {
		return nil, err
	}
	siblings := []int32{}
	err = kernfs.ParseList(b, func(other int) {
		if other != cpu && other < len(online) && online[other] != nil {
			siblings = append(siblings, int32(other))
		}
	})
	return siblings, err
}

// Close closes the directory that the siblings are read from. It may be nil.
func (s *Siblings) Close() error {
	if s == nil {
		return nil
	}
	return s.online.Close()
}
