// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDiskIOIsTheSumOfDevices(t *testing.T) {
	type result struct {
		read, written uint64
		ok            bool
	}
	for text, want := range map[string]result{
		"":                                   {ok: true},
		"8:0 rbytes=5 wbytes=7 rios=1\n":     {5, 7, true},
		"8:0 rbytes=5\n8:16 wbytes=7\n":      {5, 7, true},
		"8:0 \n259:1 rbytes=5 wbytes=7\n":    {5, 7, true},
		"253:0 rbytes=5\n9:127 wbytes=7\n":   {ok: true},
		"8:0 rbytes=5 wbytes=\n":             {},
		"8:0 rbytes=-5 wbytes=7\n":           {},
		"8:0 cost.usage=9 rbytes=5\n\n":      {5, 0, true},
		"8:0 rbytes=5\n253:0 rbytes=bad\n":   {5, 0, true},
		"25:3 rbytes=5\n2:53 rbytes=1 junk=": {6, 0, true},
	} {
		read, written, ok := parseDiskIO([]byte(text), map[string]bool{"253": true, "9": true})
		assert.Equal(t, want, result{read, written, ok}, text)
	}
}
