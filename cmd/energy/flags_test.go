// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnEndpointIsAURLOrAHostWithAPort(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:8889/metrics": "http://127.0.0.1:8889/metrics",
		"https://node.example/a?b=c":    "https://node.example/a?b=c",
		"http://node.example":           "http://node.example/metrics",
		"127.0.0.1:9464":                "http://127.0.0.1:9464/metrics",
		"localhost:9464":                "http://localhost:9464/metrics",
		"node.example":                  "http://node.example:8889/metrics",
		"node.example:28282/metrics":    "http://node.example:28282/metrics",
		"[::1]:8889":                    "http://[::1]:8889/metrics",
		"[::1]":                         "http://[::1]:8889/metrics",
		":8889":                         "http://127.0.0.1:8889/metrics",
	} {
		var e endpoint
		require.NoError(t, e.Set(text), text)
		assert.Equal(t, want, e.String(), text)
	}
	for _, text := range []string{"", "node:", "unix:///run/s", "http://", "a b:1", "node:port"} {
		var e endpoint
		assert.Error(t, e.Set(text), text)
	}
	o, err := parseFlags([]string{"-endpoint", "node:1"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "http://node:1/metrics", o.endpoint)
}

func TestADurationWithoutAUnitSuggestsOne(t *testing.T) {
	for text, want := range map[string]string{
		"5":   "energy top: invalid value \"5\" for flag -interval: the unit is missing: write 5s (-h lists the flags)\n",
		"1.5": "energy top: invalid value \"1.5\" for flag -interval: the unit is missing: write 1.5s (-h lists the flags)\n",
		"5 s": "energy top: invalid value \"5 s\" for flag -interval: a duration has a unit, such as 500ms, 5s or 2m (-h lists the flags)\n",
	} {
		var usage bytes.Buffer
		_, err := parseFlags([]string{"-interval", text}, &usage)
		require.Error(t, err)
		assert.Equal(t, want, usage.String())
	}
	_, err := parseMeasureFlags([]string{"-baseline", "5", "true"}, io.Discard)
	assert.ErrorContains(t, err, "write 5s")
}

func TestTheUsageNamesDurations(t *testing.T) {
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.Duration("wait", time.Second, "how long")
	var usage bytes.Buffer
	require.ErrorIs(t, parseWithUsage(fs, []string{"-h"}, "", &usage, nil), flag.ErrHelp)
	assert.Contains(t, usage.String(), "-wait duration\n")
	assert.Contains(t, usage.String(), "(default 1s)")
}
