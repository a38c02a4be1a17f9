// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cpu

import "testing"

func nobody(t testing.TB) (restore func()) {
	t.Skip("only Linux has a user for file accesses alone")
	return func() {}
}
