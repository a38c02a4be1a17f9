// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// FuzzRestoredState starts the receiver with a state in which one byte is replaced by arbitrary content. The checksum is right.
func FuzzRestoredState(f *testing.F) {
	for at := range uint16(600) {
		switch at % 3 {
		case 0:
			f.Add(at, []byte{1}) // -1, or 1
		case 1:
			f.Add(at, append(bytes.Repeat([]byte{255}, 9), 1)) // the largest number
		case 2:
			f.Add(at, []byte{254, 255, 255, 255, 15}) // the largest of 32 bits
		}
	}
	f.Fuzz(func(t *testing.T, at uint16, content []byte) {
		n, s := keptNode(t, func(c *Config) {
			c.Zones = []power.Kind{power.Package, power.DRAM}
			c.Attribution.Scope = ScopeZone
		})
		n.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_712_999_613, Energy: 5 * joule}
		n.start()
		spend := func() {
			n.host.Run(10*time.Second, map[int]int64{10: 250, 20: 250})
			n.host.Zones["intel-rapl:0"].Energy += 300 * joule
			require.NoError(t, n.host.Render())
		}
		for range 2 {
			spend()
			_, err := n.s.scrape(t.Context())
			require.NoError(t, err)
		}
		state := s.stored[totalsKey][4:]
		i := int(at) % len(state)
		s.stored[totalsKey] = sealed(slices.Concat(state[:i], content, state[i+1:]))
		spend()
		n.restart()
		for range 3 {
			spend()
			_, err := n.s.scrape(t.Context())
			require.NoError(t, err)
		}
	})
}
