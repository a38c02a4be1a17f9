// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersion(t *testing.T) {
	of := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	info := &debug.BuildInfo{}
	assert.Equal(t, "energy (devel)"+of, version(info))
	info.Main.Version = "v0.1.0"
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "76a75ac0f3b2d1e84c55"}, {Key: "vcs.modified", Value: "false"}}
	assert.Equal(t, "energy v0.1.0 (commit 76a75ac0f3b2)"+of, version(info))
	info.Settings[1].Value = "true"
	assert.Equal(t, "energy v0.1.0 (commit 76a75ac0f3b2, modified)"+of, version(info))
	release = "v0.2.0"
	t.Cleanup(func() { release = "" })
	assert.Equal(t, "energy v0.2.0"+of, version(&debug.BuildInfo{}))
}
