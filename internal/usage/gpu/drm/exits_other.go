// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package drm

import "time"

// exits records nothing: only Linux has pidfds.
type exits struct{}

func (*exits) watch(int32)                {}
func (*exits) of(int32) (time.Time, bool) { return time.Time{}, false }
func (*exits) forget(time.Time)           {}
func (*exits) close() error               { return nil }
