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

// Tree is a power.Source of the powercap tree that the hypervisor writes for this virtual machine.
// It opens and closes its files in each Answer, so that the share can be mounted and unmounted at
// any time. An Answer of a share that hangs does not return; the power.Poller reports that.
type Tree struct {
	path     string
	reader   reader
	follower *Follower
}

// NewTree returns a Source of the tree at path. want reports whether zones of the kind are to be
// read; nil means all. It touches nothing.
func NewTree(path string, want func(power.Kind) bool) *Tree {
	return &Tree{path: path, reader: reader{path: path, want: want}, follower: NewFollower("meters::powercap::path "+path, want)}
}

// PollOptions returns how the Source is to be polled, for the meter with the name.
func PollOptions(name string) power.PollOptions {
	return power.PollOptions{Name: name, Every: time.Second, Timeout: 5 * time.Second, MaxBackoff: 10 * time.Second}
}

// Answer reads the tree. A tree that is not there is an error like any other, not fs.ErrNotExist: it is configured.
func (t *Tree) Answer(context.Context, power.Sample) (power.Answer, error) {
	report, err := t.reader.read()
	now := time.Now()
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

// Close does nothing: between answers nothing is open.
func (t *Tree) Close() error { return nil }
