// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// edited applies edits to a state: each has two bytes with the place of a byte, a byte with the
// length of the content that replaces it, and the content.
func edited(state, edits []byte) []byte {
	state = slices.Clone(state)
	for len(edits) >= 3 && len(state) > 0 {
		at, length := int(binary.BigEndian.Uint16(edits))%len(state), min(int(edits[2]), len(edits)-3)
		state = slices.Concat(state[:at], edits[3:3+length], state[at+1:])
		edits = edits[3+length:]
	}
	return state
}

// edit returns an edit that puts content in the place of a byte.
func edit(at uint16, content ...byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, at), append([]byte{byte(len(content))}, content...)...)
}

// addEdits adds an edit of a number or count at every step-th byte.
func addEdits(step uint16, add func(edits []byte)) {
	for at := uint16(0); at < 900; at += step {
		switch at % 3 {
		case 0:
			add(edit(at, 1)) // -1, or 1
		case 1:
			add(edit(at, binary.AppendUvarint(nil, math.MaxUint64)...))
		case 2:
			add(edit(at, 254, 255, 255, 255, 15)) // the largest of 32 bits
		}
	}
}

// FuzzDecodeState decodes a state that is edited, or arbitrary content. The checksum is right. What
// is decoded without an error is encoded alike again.
func FuzzDecodeState(f *testing.F) {
	f.Add(true, []byte{})
	f.Add(true, []byte{state.Version})
	f.Add(true, append([]byte{state.Version, 0, 0, 0, 1}, make([]byte, 100)...))
	addEdits(1, func(edits []byte) { f.Add(false, edits) })
	var good []byte
	var now state.Moment
	f.Fuzz(func(t *testing.T, whole bool, content []byte) {
		if good == nil {
			n, s := fuzzedNode(t)
			boot, err := kernfs.BootID(n.host.Root())
			require.NoError(t, err)
			good, now = s.stored[state.Key][4:], state.Moment{Boot: boot, At: n.host.Now(), Clocks: state.Clocks{Boot: n.host.Uptime}}
		}
		if !whole {
			content = edited(good, content)
		}
		decode := func(stored []byte) (trained training.Models, totals state.Totals, err error) {
			err = state.Decode(stored, &trained, &totals, now)
			return trained, totals, err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		trained, totals, err := decode(sealed(content))
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20+1000*len(content)), "bounded by the input")
		if err != nil {
			return
		}
		again := state.Encode(nil, &trained, &totals)
		trained, totals, err = decode(again)
		require.NoError(t, err)
		require.Equal(t, again, state.Encode(nil, &trained, &totals))
	})
}

// fuzzedNode returns a node that has stored two collections.
func fuzzedNode(t *testing.T) (*testNode, *memoryStorage) {
	n, s := keptNode(t, func(c *Config) {
		c.Zones = []power.Kind{power.Package, power.DRAM}
		c.Attribution.Scope, c.Attribution.StaticPower = config.ScopeZone, allStatic(config.StaticMinimum)
	})
	n.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_712_999_613, Energy: 5 * joule}
	n.start()
	for range 2 {
		n.uses()
		_, err := n.s.scrape(t.Context())
		require.NoError(t, err)
	}
	return n, s
}

// uses lets ten seconds pass in which energy is used.
func (n *testNode) uses() {
	n.host.Run(10*time.Second, map[int]int64{10: 250, 20: 250})
	n.host.Zones["intel-rapl:0"].Energy += 300 * joule
	require.NoError(n.t, n.host.Render())
}

// FuzzRestoredState starts the receiver with a state that is edited. The checksum is right.
func FuzzRestoredState(f *testing.F) {
	addEdits(uint16(unlessShort(1, 4)), func(edits []byte) { f.Add(edits) })
	f.Fuzz(func(t *testing.T, edits []byte) {
		n, s := fuzzedNode(t)
		s.stored[state.Key] = sealed(edited(s.stored[state.Key][4:], edits))
		n.uses()
		n.restart()
		for range 3 {
			n.uses()
			_, err := n.s.scrape(t.Context())
			require.NoError(t, err)
		}
	})
}
