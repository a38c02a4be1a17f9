// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func TestTheLiveLineHasThePowerAndTheTimeLeft(t *testing.T) {
	var to bytes.Buffer
	at := time.Unix(1000, 0)
	l := &live{to: &to, columns: 80, now: func() time.Time { return at }, steps: 4}
	shown := func() string {
		defer to.Reset()
		return to.String()
	}
	l.next("run 1 of 2 of A", nil)
	assert.Equal(t, "\r░░░░░░░░░░░░░░░░░░░░ run 1 of 2 of A\x1b[K", shown(), "nothing is measured yet")
	at = at.Add(10 * time.Second)
	l.sample(10*time.Second, 120e6)
	assert.Contains(t, shown(), "run 1 of 2 of A · 12.0 W · 120 J · 10.0 s\x1b[K", "the time of no run is known yet")
	l.next("run 1 of 2 of B", nil)
	assert.Contains(t, shown(), "█████░░░░░░░░░░░░░░░ run 1 of 2 of B · 30s left")
	at = at.Add(4 * time.Second)
	l.sample(4*time.Second, 4e6)
	assert.Contains(t, shown(), "· 1.00 W · 4.00 J · 4.000 s · 26s left")
	l.sample(8*time.Second, 12e6)
	assert.Contains(t, shown(), "· 2.00 W · 12.0 J · 8.000 s")
	run := func(joules units.Energy, wall time.Duration) *measure.Result {
		return &measure.Result{Wall: wall, Zones: []measure.Zone{{Used: joules * units.Joule}}}
	}
	l.next("run 2 of 2 of A", []*measure.Result{run(10, time.Second), run(20, 2*time.Second)})
	l.sample(time.Second, 1)
	assert.Contains(t, shown(), " run 2 of 2 of A · mean 15.0 J, 1.500 s · ")
	l.clear()
	assert.Equal(t, "\r\x1b[K", shown())
	l.clear()
	assert.Empty(t, shown(), "there is no line")
	(*live)(nil).clear()
}

func TestTheLiveLineIsOnATerminalOfWhichTheCommandHasNoPart(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		live bool
	}{
		"one run":                {[]string{"sh", "-c", "echo hello"}, false},
		"one run without output": {[]string{"--show-output=false", "sh", "-c", "echo hello"}, true},
		"several runs":           {[]string{"--runs", "2", "sh", "-c", "echo hello"}, true},
		"a process that runs":    {[]string{"--pid", strconv.Itoa(os.Getpid()), "--for", "100ms"}, true},
		"runs that show output":  {[]string{"--runs", "2", "--show-output", "sh", "-c", "echo hello"}, false},
		"quiet":                  {[]string{"--quiet", "--runs", "2", "sh", "-c", "true"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := onTerminal(t, 0, 0, append([]string{"measure", "--wait", "0s", "--model", tenToFifty}, c.args...)...)
			require.NoError(t, <-p.ended)
			got := p.drain()
			assert.Equal(t, c.live, strings.Contains(got, " W · 0 J · 0.000 s\x1b[K") || strings.Contains(got, "░ run 1 of 2\x1b[K"), "%q", got)
			assert.Equal(t, c.live, strings.Contains(got, "\x1b"), "%q", got)
			assert.Equal(t, !c.live && name != "quiet", strings.Contains(got, "hello"), "%q", got)
			if name == "quiet" {
				assert.Empty(t, got)
				return
			}
			assert.Regexp(t, `\(modeled\) · [^\r\n]*W[^\r\n]*\r\n`, got)
			if c.live {
				assert.Regexp(t, `\r\x1b\[K[^\r]*modeled`, got, "the line is removed before the result")
			}
		})
	}
}
