// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Tree is the power.Source of the directory that the hypervisor writes for this virtual machine. It
// opens and closes its files in each Answer, so the share can be mounted and unmounted at any time.
// If the share hangs, Answer does not return, and the power.Poller reports the timeout.
type Tree struct {
	path     string
	reader   reader
	follower *Follower
	missing  time.Time // when the report was first found missing, zero while it exists
}

// NewTree returns a Source of the directory at path. want reports whether to read zones of a kind.
// If want is nil, all zones are read. NewTree reads no file.
func NewTree(path string, want func(power.Kind) bool) *Tree {
	return &Tree{path: path, reader: reader{path: path, want: want}, follower: NewFollower("meters::powercap::path "+path, want)}
}

// PollOptions returns the options for polling a Tree or Client. name is the name of the meter.
func PollOptions(name string) power.PollOptions {
	return power.PollOptions{Name: name, Every: time.Second, Timeout: 5 * time.Second, MaxBackoff: 10 * time.Second}
}

// Answer reads the directory. If the directory does not exist, the error is not fs.ErrNotExist,
// because the directory is configured.
func (t *Tree) Answer(context.Context, power.Sample) (power.Answer, error) {
	report, err := t.reader.read()
	now := time.Now()
	t.note(errors.Is(err, fs.ErrNotExist), now)
	var shown []power.Shown
	switch {
	case err == nil:
		shown, err = t.follower.Show(report, now)
	case errors.Is(err, errHalfWritten):
		shown, err = t.follower.Waiting(err, now)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("meters::powercap::path %s: %v", t.path, err) //nolint:errorlint // see above
	default:
		err = fmt.Errorf("meters::powercap::path %s: %w", t.path, err)
	}
	return power.Answer{Shown: shown}, err
}

// note records whether the report is missing. If it is missing for long, the reader no longer expects
// it: the virtual machine may have migrated to a host with another program.
func (t *Tree) note(isMissing bool, now time.Time) {
	switch {
	case !isMissing:
		t.missing = time.Time{}
	case t.missing.IsZero():
		t.missing = now
	case now.Sub(t.missing) > t.follower.patience() && t.reader.report.Epoch != "":
		t.reader.report = Report{}
	}
}

// Close returns nil. No file is open between two calls of Answer.
func (t *Tree) Close() error { return nil }
