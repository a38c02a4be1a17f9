// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guestCollector is a collector in a guest.
type guestCollector struct {
	*guest
	name string
	// offset is the guest's clock less the test's.
	offset    time.Duration
	emissions []emission // of hardware, after the collector has stopped
	log       []logLine
}

// vsockHost is the name of the collector that serves virtual machines over vsock.
const vsockHost = "host"

const guestConfig = `
extensions:
  energyguests: {vsock: {port: 9480}}
receivers:
  energy:
    collection_interval: 1s
    initial_delay: 0s
    metrics:
      container.cpu.time: {enabled: true}
RECEIVER
exporters:
  file:
    path: /tmp/NAME.json
    flush_interval: 100ms
service:
  extensions: [EXTENSIONS]
  telemetry: {metrics: {level: none}, logs: {encoding: json}}
  pipelines:
    metrics: {receivers: [energy], exporters: [file]}
`

// startsCollector starts a collector as root with more receiver settings, one per line.
func (g *guest) startsCollector(t *testing.T, name string, receiver ...string) *guestCollector {
	t.Helper()
	return g.startsCollectorAs(t, user{}, name, receiver...)
}

// startsCollectorAs starts a collector as a user.
func (g *guest) startsCollectorAs(t *testing.T, as user, name string, receiver ...string) *guestCollector {
	t.Helper()
	for _, usual := range []string{"series: {processes: {max: 5}}", "attribution: {preset: kepler}", "model: none"} {
		setting, _, _ := strings.Cut(usual, " ")
		if !slices.ContainsFunc(receiver, func(line string) bool { return strings.HasPrefix(line, setting) }) {
			receiver = append(receiver, usual)
		}
	}
	extensions := ""
	if name == vsockHost {
		extensions = "energyguests"
	}
	text := strings.NewReplacer(
		"NAME", name, "RECEIVER", "    "+strings.Join(receiver, "\n    "), "EXTENSIONS", extensions,
	).Replace(guestConfig)
	g.writes(t, "/tmp/"+name+".yaml", text)
	g.startsAs(t, as, name, "", "/otelcol-energy", "--config", "/tmp/"+name+".yaml")
	c := &guestCollector{guest: g, name: name, offset: g.clockOffset(t)}
	t.Cleanup(func() {
		if t.Failed() && c.log == nil && g.runs() {
			g.keeps(t, name+".log")
		}
	})
	return c
}

// clockOffset returns the guest's clock less the test's, with an error of at most half a call's
// duration.
func (g *guest) clockOffset(t *testing.T) time.Duration {
	t.Helper()
	shortest, offset := time.Hour, time.Duration(0)
	for range 5 {
		began := time.Now()
		now := g.now(t)
		if took := time.Since(began); took < shortest {
			shortest, offset = took, now.Sub(began.Add(took/2))
		}
	}
	return offset
}

// sent returns the number of emissions.
func (c *guestCollector) sent(t *testing.T) int {
	t.Helper()
	return c.counts(t, "/tmp/"+c.name+".json", `"name":"system.energy"`)
}

// emits waits for more emissions.
func (c *guestCollector) emits(t *testing.T, more int) {
	t.Helper()
	want := c.sent(t) + more
	c.until(t, fmt.Sprintf("emits %d times more", more), func() bool { return c.sent(t) >= want })
}

// measures waits for more readings of each zone.
func (c *guestCollector) measures(t *testing.T, more int, ids ...string) {
	t.Helper()
	want := map[string]int{}
	for _, id := range ids {
		want[id] = c.readings(t, id) + more
	}
	for id, n := range want {
		c.until(t, fmt.Sprintf("reads %s %d times more", id, more), func() bool { return c.readings(t, id) >= n })
	}
}

// readings returns how often a zone was reported: by its hw.id or, if it is the host's only meter,
// as the host.
func (c *guestCollector) readings(t *testing.T, id string) int {
	t.Helper()
	path := "/tmp/" + c.name + ".json"
	if n := c.counts(t, path, id); n > 0 {
		return n
	}
	return c.counts(t, path, `"stringValue":"host"`)
}

// until waits until a condition holds while the collector runs.
func (c *guestCollector) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s %s, see %s", c.name, what, c.dir), func() bool {
		c.call(t, "Runs", c.name, &struct{}{})
		return holds()
	})
}

// said returns how often the collector has logged a message.
func (c *guestCollector) said(t *testing.T, message string) int {
	t.Helper()
	return c.counts(t, "/tmp/"+c.name+".log", message)
}

// says waits until the collector has logged a message more than before times.
func (c *guestCollector) says(t *testing.T, message string, before int) {
	t.Helper()
	c.until(t, fmt.Sprintf("logs %q", message), func() bool { return c.said(t, message) > before })
}

// stops ends the collector and reads its output.
func (c *guestCollector) stops(t *testing.T) {
	t.Helper()
	c.call(t, "Stop", c.name, &struct{}{})
	c.takes(t)
}

// takes reads the emissions and the log of the collector, after it has stopped.
func (c *guestCollector) takes(t *testing.T) {
	t.Helper()
	for _, e := range readEmissions(t, c.keeps(t, c.name+".json")) {
		if len(e.filter("system.energy")) > 0 {
			c.emissions = append(c.emissions, e)
		}
	}
	c.log = readLog(t, c.keeps(t, c.name+".log"))
}

// points returns the points of a zone's energy.
func (c *guestCollector) points(t *testing.T, id string) (points []point) {
	t.Helper()
	for _, e := range c.emissions {
		points = append(points, e.filter("hw.energy", "hw.id="+id)...)
	}
	for _, e := range c.emissions {
		if len(points) == 0 || points[0].metric == "hw.host.energy" {
			points = append(points, e.filter("hw.host.energy")...)
		}
	}
	require.NotEmpty(t, points, "%s by %s, see %s", id, c.name, c.dir)
	return points
}

// requireEnergy compares the energy of a zone with a share of the consumption. Power is low at the
// first and the last reading, so that their exact times have little effect.
func (c *guestCollector) requireEnergy(t *testing.T, id string, consumed *consumption, share, bound float64) {
	t.Helper()
	points := c.points(t, id)
	first, last := points[0], points[len(points)-1]
	truth := share * (consumed.joules(last.at.Add(-c.offset)) - consumed.joules(first.at.Add(-c.offset)))
	off := math.Abs(last.value-first.value-truth) / truth
	t.Logf("%s, %s: true %.1f J in %.1f s, reported %.1f J, off by %.3f %%", c.name, id, truth,
		last.at.Sub(first.at).Seconds(), last.value-first.value, 100*off)
	assert.LessOrEqual(t, off, bound, "%s by %s", id, c.name)
}

// during is a period, in numbers of emissions.
type during struct{ from, to int }

// lasts returns the period of some emissions from now on, after an emission that may have begun.
func (c *guestCollector) lasts(t *testing.T, emissions int) (d during) {
	t.Helper()
	c.emits(t, 1)
	d.from = c.sent(t)
	c.emits(t, emissions)
	d.to = c.sent(t)
	return d
}

// gained returns the growth of a zone's energy in a period, in joules.
func (c *guestCollector) gained(id string, d during) float64 {
	energy := totals(c.emissions, "hw.energy", "hw.id="+id)
	if energy[len(energy)-1] == 0 {
		energy = totals(c.emissions, "hw.host.energy")
	}
	return energy[d.to-1] - energy[d.from-1]
}

// degraded returns the errors of conditions that the collector has logged.
func (c *guestCollector) degraded() string {
	var errors []string
	for _, l := range c.log {
		if l.Msg == "Collection degraded" {
			errors = append(errors, l.Error)
		}
	}
	return strings.Join(errors, "\n")
}
