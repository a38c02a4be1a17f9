// SPDX-License-Identifier: Apache-2.0

// Package stall has the names of package kernfs for the packages that do not use those yet.
package stall

import "github.com/energyreceiver/energyreceiver/internal/kernfs"

// The names of package kernfs.
type (
	Guard[J kernfs.Job]   = kernfs.Guard[J]
	Options[J kernfs.Job] = kernfs.GuardOptions[J]
)

// The errors of package kernfs.
var ErrUnread, ErrSlow = kernfs.ErrUnread, kernfs.ErrSlow

// New returns a kernfs.Guard.
func New[J kernfs.Job](options Options[J]) *Guard[J] { return kernfs.NewGuard(options) }
