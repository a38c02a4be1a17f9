// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
)

const (
	// maxPhases is how many phases with different names a run may have.
	maxPhases = 1000
	// maxMarks is how many marks a run may have: each ends a sample.
	maxMarks = 100_000
)

var (
	errEnded  = errors.New("the measured command has ended")
	errPhases = fmt.Errorf("the run has %d phases with other names already", maxPhases)
	errMarks  = fmt.Errorf("the run has %d marks already", maxMarks)
)

// mark is a boundary between phases. The result is sent to done, which is buffered, once the mark
// is measured.
type mark struct {
	phase.Mark
	done chan<- error
}

// marked holds the marks so far.
type marked struct {
	marks int
	names map[string]struct{}
}

// markServer takes the marks of a command, in a directory of its own. A nil one does nothing.
type markServer struct {
	*phase.Server
	dir *ownDir
}

// serveMarks begins to take marks and returns the path of the socket. If that fails the path is
// empty, and a note says why.
func (r *run) serveMarks() (server *markServer, socket string) {
	dir, err := makeOwnDir(os.TempDir())
	if err != nil {
		r.note("Phases cannot be marked: %v", err)
		return nil, ""
	}
	socket = filepath.Join(dir.path, socketName)
	listener, err := phase.Listen(socket, r.take)
	if err != nil {
		r.note("Phases cannot be marked: %v", err)
		dir.remove()
		return nil, ""
	}
	return &markServer{listener, dir}, socket
}

// close ends the server: a mark that comes later, as of a process that the command left behind, finds no socket.
func (s *markServer) close() {
	if s != nil {
		s.Close()
		s.dir.remove()
	}
}

// take hands a mark to the run and waits until it is measured.
func (r *run) take(ctx context.Context, m phase.Mark) error {
	done := make(chan error, 1)
	select {
	case r.marks <- mark{m, done}:
	case <-ctx.Done():
		return errEnded
	}
	return <-done
}

// begin begins a phase, after it has measured until then. If that fails, the phase has the energy
// since the last sample, too.
func (r *run) begin(ctx context.Context, name string) error {
	if name == r.phase {
		return nil
	}
	if err := r.begun.add(name); err != nil {
		r.note("A phase was refused: %v", err)
		return err
	}
	r.record.mark(name)
	err := r.collect(ctx)
	r.record.marked()
	r.phase = name
	return err
}

// add counts a mark, or returns why it is one too many. A phase can always be ended.
func (m *marked) add(name string) error {
	if name == phase.None {
		return nil
	}
	_, known := m.names[name]
	switch {
	case m.marks >= maxMarks:
		return errMarks
	case !known && len(m.names) >= maxPhases:
		return errPhases
	case m.names == nil:
		m.names = map[string]struct{}{}
	}
	m.names[name] = struct{}{}
	m.marks++
	return nil
}
