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

// maxMarks is the maximum number of marks of a run: each ends a sample.
const maxMarks = 100_000

var (
	errEnded = errors.New("the measured command has exited")
	errMarks = fmt.Errorf("the run has %d marks already", maxMarks)
)

// mark is a boundary between phases. The result is sent to done, which is buffered, once the mark
// is measured.
type mark struct {
	phase string
	done  chan<- error
}

// serveMarks begins to take marks, and returns the path of the socket. If this fails, the path is
// empty, and a note has the reason. stop also removes the socket, so that processes that the
// command left behind cannot use it.
func (r *run) serveMarks() (stop func(), socket string) {
	dir, err := os.MkdirTemp("", "energy-run-")
	if err == nil {
		socket = filepath.Join(dir, "phases.sock")
		var server *phase.Server
		if server, err = phase.Listen(socket, r.take); err == nil {
			return func() { server.Close(); _ = os.RemoveAll(dir) }, socket
		}
		_ = os.Remove(dir)
	}
	r.note("Phases cannot be marked: %v", err)
	return func() {}, ""
}

// take hands a mark to the run and waits until it is measured.
func (r *run) take(ctx context.Context, name string) error {
	done := make(chan error, 1)
	select {
	case r.marks <- mark{name, done}:
	case <-ctx.Done():
		return errEnded
	}
	return <-done
}

// begin ends the current sample and begins a phase. If the measurement fails, the phase also has
// the energy since the last sample. The limit maxMarks does not prevent the end of a phase.
func (r *run) begin(ctx context.Context, name string) error {
	if name == r.phase {
		return nil
	}
	if r.begun++; r.begun > maxMarks && name != phase.None {
		r.note("A phase was refused: %v", errMarks)
		return errMarks
	}
	r.record.mark(name)
	err := r.collect(ctx)
	r.record.marked()
	r.phase = name
	return err
}
