// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package guest

import "testing"

func restrict(*testing.T) {}

func newDir(t testing.TB) string { return t.TempDir() }
