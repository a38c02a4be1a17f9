// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// scripted is a metronome that beats once for each element, with that number of windows, and stops.
type scripted []int64

func (b *scripted) Next() int64 {
	if len(*b) == 0 {
		return 0
	}
	windows := (*b)[0]
	*b = (*b)[1:]
	return windows
}

func (b *scripted) Stop() {}

func TestSkippedWindowsAreCounted(t *testing.T) {
	s, samples := &sampler{Window: time.Second}, 0
	s.Run(&scripted{1, 3, 1, 2}, func() { samples++ })
	windows, skipped := s.Counts()
	assert.EqualValues(t, 7, windows)
	assert.EqualValues(t, 3, skipped)
	assert.Equal(t, 4, samples)
}
