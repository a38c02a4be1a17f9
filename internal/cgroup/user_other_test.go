// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cgroup

import "testing"

func nobody(t testing.TB) (restore func()) {
	t.Skip("takes a user per thread")
	return nil
}
