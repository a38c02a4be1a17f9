// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// A job uses 40 % of a GPU that another process uses too, and closes the GPU in the next second.
func TestTheLastSliceOfAJobIsEstimated(t *testing.T) {
	for name, c := range map[string]struct {
		starts time.Duration    // before the last Read, if it is new
		other  [2]units.CPUTime // used by the other process in both seconds
		want   units.CPUTime    // last slice of the job
		busy   units.CPUTime
	}{
		"half of the second before":   {other: [2]units.CPUTime{100 * ms, 100 * ms}, want: 200 * ms, busy: 300 * ms},
		"at the rate since its start": {starts: 500 * time.Millisecond, want: 400 * ms, busy: 400 * ms},
		"no more than others leave":   {other: [2]units.CPUTime{0, 950 * ms}, want: 50 * ms, busy: second},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.addGPU(0, card, "amdgpu")
			other, job := w.add(20, 1, render(3, 1, gfx(second))), w.add(10, 1)
			if c.starts == 0 {
				job.Files = append(job.Files, render(3, 2, gfx(0)))
			} else {
				delete(w.Processes, 10)
			}
			w.pass()
			if c.starts > 0 {
				job = w.add(10, 1)
				job.Start += int64((time.Second - c.starts) / hostsim.Tick)
			}
			job.Files = append(job.Files[:0], render(3, 2, gfx(400*ms)))
			other.Files[0] = render(3, 1, gfx(second+c.other[0]))
			w.pass(10, 20)
			before := w.Now()
			delete(w.Processes, 10)
			other.Files[0] = render(3, 1, gfx(second+c.other[0]+c.other[1]))
			usage := w.pass(20)
			assert.Equal(t, c.want, used(t, usage)[10])
			assert.Equal(t, c.busy, usage[0].Busy)
			for _, u := range usage[0].Users {
				assert.Equal(t, u.PIDs[0] == 10, u.Last.Equal(before), "a later process with the PID of the job did not use the GPU")
			}
			assert.NotContains(t, used(t, w.pass(20)), int32(10), "it is gone")
		})
	}
}
