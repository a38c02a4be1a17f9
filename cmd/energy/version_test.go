// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersion(t *testing.T) {
	of := " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	assert.Equal(t, "energy (devel) "+runtime.Version()+of, version(nil))
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.1.0"}}
	assert.Equal(t, "energy v0.1.0 go1.26.0"+of, version(info))
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "76a75ac0f3b2d1e84c55"}, {Key: "vcs.modified", Value: "false"}}
	assert.Equal(t, "energy v0.1.0 (commit 76a75ac0f3b2) go1.26.0"+of, version(info))
	info.Settings[1].Value = "true"
	assert.Equal(t, "energy v0.1.0 (commit 76a75ac0f3b2, modified) go1.26.0"+of, version(info))
	release = "v0.2.0"
	t.Cleanup(func() { release = "" })
	assert.Equal(t, "energy v0.2.0 "+runtime.Version()+of, version(nil))
}
