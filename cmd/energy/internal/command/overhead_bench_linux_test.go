// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
)

// BenchmarkCollect reports what one measurement costs while a command runs, beside other processes. Once a second, 10 ms are 1 %
// of a core.
func BenchmarkCollect(b *testing.B) {
	for _, others := range []int{300, 10_000} {
		b.Run(strconv.Itoa(others), func(b *testing.B) {
			stop, err := crowd.Start(b.TempDir(), others, 0)
			require.NoError(b, err)
			defer func() { assert.NoError(b, stop()) }()
			for _, method := range methods {
				b.Run(string(method), func(b *testing.B) {
					g, err := newGroup(Options{}, method)
					if err != nil {
						b.Skip(err)
					}
					e := embed(b, g, modeled(idleWatts, fullWatts))
					p, err := g.Start(Command{Args: []string{"sleep", "600"}})
					require.NoError(b, err)
					before := clock(unix.CLOCK_PROCESS_CPUTIME_ID)
					for b.Loop() {
						collect(b, e)
					}
					b.ReportMetric(float64(clock(unix.CLOCK_PROCESS_CPUTIME_ID)-before)/float64(b.N)/1e6, "CPU-ms/op")
					require.NoError(b, p.Signal(unix.SIGKILL))
					_, _ = p.Wait()
					assert.NoError(b, g.Close())
				})
			}
		})
	}
}
