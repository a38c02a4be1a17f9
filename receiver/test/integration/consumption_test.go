// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// consumption is the power of an imagined machine over time, which emulated sensors report in real
// time, and its exact energy. Changes of power have the shape of half a cosine, so that a sensor's
// delay cancels out over a rise and a fall.
//
// The methods may be called concurrently.
type consumption struct {
	mu    sync.Mutex
	parts []change
}

// change is a change of power.
type change struct {
	began    time.Time
	from, to float64 // watts
	over     time.Duration
}

// newConsumption returns a consumption with a power in watts, which was 100 W higher half a minute
// ago.
func newConsumption(watts float64) *consumption {
	return &consumption{parts: []change{{time.Now().Add(-30 * time.Second), watts + 100, watts, time.Second}}}
}

// changes begins a change of power.
func (c *consumption) changes(to float64, over time.Duration) {
	now := time.Now()
	from := c.watts(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = append(c.parts, change{now, from, to, over})
}

// watts returns the power at a moment.
func (c *consumption) watts(at time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.parts) - 1; i >= 0; i-- {
		if p := &c.parts[i]; !at.Before(p.began) {
			return p.watts(at.Sub(p.began))
		}
	}
	return c.parts[0].from
}

// joules returns the energy until a moment.
func (c *consumption) joules(at time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0.0
	for i := range c.parts {
		p := &c.parts[i]
		end := at
		if i+1 < len(c.parts) && c.parts[i+1].began.Before(at) {
			end = c.parts[i+1].began
		}
		if end.After(p.began) {
			sum += p.joules(end.Sub(p.began))
		}
	}
	return sum
}

// average returns the mean power in the time before a moment.
func (c *consumption) average(at time.Time, over time.Duration) float64 {
	return (c.joules(at) - c.joules(at.Add(-over))) / over.Seconds()
}

// bounds returns the minimum and the maximum power in the time before a moment.
func (c *consumption) bounds(at time.Time, over time.Duration) (least, most float64) {
	least, most = c.watts(at), c.watts(at)
	const steps = 100
	for i := range steps {
		w := c.watts(at.Add(-over * time.Duration(i+1) / steps))
		least, most = min(least, w), max(most, w)
	}
	return least, most
}

func (p *change) watts(after time.Duration) float64 {
	if after >= p.over {
		return p.to
	}
	return p.from + (p.to-p.from)*(1-math.Cos(math.Pi*after.Seconds()/p.over.Seconds()))/2
}

// joules is the integral of watts.
func (p *change) joules(after time.Duration) float64 {
	changing := min(after, p.over).Seconds()
	sum := p.to * max(0, after-p.over).Seconds()
	if over := p.over.Seconds(); over > 0 {
		turn := math.Pi / over
		sum += p.from*changing + (p.to-p.from)*(changing-math.Sin(turn*changing)/turn)/2
	}
	return sum
}

func TestConsumptionIsTheIntegralOfItsPower(t *testing.T) {
	c := newConsumption(20)
	began := time.Now()
	c.parts = []change{
		{began, 20, 20, 0},
		{began.Add(2 * time.Second), 20, 400, 3 * time.Second},
		{began.Add(4 * time.Second), 305, 10, time.Second}, // before the end of the previous change
	}
	const step = time.Millisecond
	sum := 0.0
	for at := time.Duration(0); at < 8*time.Second; at += step {
		require.InDelta(t, sum, c.joules(began.Add(at)), 1e-3, "at %v", at)
		sum += c.watts(began.Add(at+step/2)) * step.Seconds()
	}
	assert.InDelta(t, 10, c.average(began.Add(8*time.Second), 2*time.Second), 1e-9)
}
