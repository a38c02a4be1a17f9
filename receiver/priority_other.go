// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package energyreceiver

import (
	"errors"
	"time"
)

// thread stands for the operating system's thread of a goroutine, which has the priority of its process.
type thread struct{ priority priority }

func (t *thread) raised() bool { return t.priority != "" }

func (t *thread) raise() error {
	t.priority = normalPriority
	return errors.ErrUnsupported
}

func (t *thread) release() { *t = thread{} }

func (t *thread) used() time.Duration { return 0 }
