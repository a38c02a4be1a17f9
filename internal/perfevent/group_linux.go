// SPDX-License-Identifier: Apache-2.0

package perfevent

import "encoding/binary"

// Group is a group of open counters, which one system call reads together.
type Group struct {
	Counters        // the leader first
	buf      []byte // number of values, time enabled in ns, values (perf_event_open(2), PERF_FORMAT_GROUP)
}

// OpenGroup opens a counter for each of a PMU's events on a CPU, from 0. If it fails, no counter is
// open.
func OpenGroup(pmu uint32, configs []uint64, cpu int) (*Group, error) {
	events := make([]event, len(configs))
	for i, config := range configs {
		events[i] = event{pmu, config}
	}
	counters, err := open(events, cpu, true)
	if err != nil {
		return nil, err
	}
	return &Group{counters, make([]byte, 8*(2+len(configs)))}, nil
}

// Read reads all counters at once, in the order of their configs, and returns for how long they have
// counted, in ns. It does not allocate.
func (g *Group) Read(counts []uint64) (enabled uint64, err error) {
	if err := Read(g.Counters[0], g.buf); err != nil {
		return 0, err
	}
	if binary.NativeEndian.Uint64(g.buf) != uint64(len(counts)) {
		return 0, ErrShort
	}
	for i := range counts {
		counts[i] = binary.NativeEndian.Uint64(g.buf[16+8*i:])
	}
	return binary.NativeEndian.Uint64(g.buf[8:]), nil
}
