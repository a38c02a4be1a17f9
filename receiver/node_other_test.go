// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package energyreceiver

import "testing"

func treeDir(t testing.TB) string { return t.TempDir() }
