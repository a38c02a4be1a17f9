// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// maxEngines is how many engine classes of a GPU are counted. Drivers have up to ten.
const maxEngines = 16

// fdinfo is the content of /proc/<pid>/fdinfo/<fd> of a DRM descriptor. Its texts are valid as long
// as the file's text.
type fdinfo struct {
	pdev      []byte
	client    uint64
	hasClient bool
	engines   []engineInfo
}

// engineInfo is the client's use of one engine class according to fdinfo.
type engineInfo struct {
	name     []byte
	capacity uint64 // engines of the class
	// ns is the time that they worked for the client; cycles and total are cycles that they worked
	// for it and that passed; hz is the highest rate of those.
	ns, cycles, total, hz        uint64
	hasNS, hasCycles, hasCounter bool // hasCounter: total
}

// counts reports whether anything shows the time that the engines worked.
func (e *engineInfo) counts() bool { return e.hasNS || e.hasCycles && (e.hasCounter || e.hz > 0) }

// is reports whether the text belongs to the client of a device. Drivers of platform devices name
// no device.
func (f *fdinfo) is(client uint64, device string) bool {
	return f.hasClient && f.client == client && (f.pdev == nil || string(f.pdev) == device)
}

// parse reads a text, which need not be of a DRM descriptor
// (Documentation/gpu/drm-usage-stats.rst). Lines that are malformed or cut short are ignored. It
// does not allocate once engines has grown.
func (f *fdinfo) parse(text []byte) {
	*f = fdinfo{engines: f.engines[:0]}
	for {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return
		}
		line, isDRM := bytes.CutPrefix(text[:end], []byte("drm-"))
		if text = text[end+1:]; isDRM {
			f.line(line)
		}
	}
}

// engineKeys are the keys that end with the name of an engine class. One that begins with another
// precedes it.
var engineKeys = []struct {
	prefix string
	set    func(*engineInfo, uint64)
}{
	{"engine-capacity-", func(e *engineInfo, n uint64) { e.capacity = n }},
	{"engine-", func(e *engineInfo, n uint64) { e.ns, e.hasNS = n, true }},
	{"total-cycles-", func(e *engineInfo, n uint64) { e.total, e.hasCounter = n, true }},
	{"cycles-", func(e *engineInfo, n uint64) { e.cycles, e.hasCycles = n, true }},
	{"maxfreq-", func(e *engineInfo, n uint64) { e.hz = n }},
}

// line reads the text after "drm-".
func (f *fdinfo) line(line []byte) {
	end := bytes.IndexByte(line, ':')
	if end < 0 {
		return
	}
	key, value := line[:end], bytes.TrimSpace(line[end+1:])
	if len(value) == 0 {
		return
	}
	switch string(key) {
	case "pdev":
		f.pdev = value
		return
	case "client-id":
		id, err := kernfs.ParseUint(value)
		f.client, f.hasClient = id, err == nil
		return
	}
	for i := range engineKeys {
		k := &engineKeys[i]
		if len(key) <= len(k.prefix) || string(key[:len(k.prefix)]) != k.prefix {
			continue
		}
		if n, ok := quantity(value); ok {
			if e := f.engine(key[len(k.prefix):]); e != nil {
				k.set(e, n)
			}
		}
		return
	}
}

// engine returns the engine class with the name, nil if there are too many.
func (f *fdinfo) engine(name []byte) *engineInfo {
	for i := range f.engines {
		if bytes.Equal(f.engines[i].name, name) {
			return &f.engines[i]
		}
	}
	if len(f.engines) == maxEngines {
		return nil
	}
	f.engines = append(f.engines, engineInfo{name: name})
	return &f.engines[len(f.engines)-1]
}

// quantity returns a number with a unit: ns, Hz, KHz, MHz or none.
func quantity(value []byte) (uint64, bool) {
	digits, unit, _ := bytes.Cut(value, []byte{' '})
	n, err := kernfs.ParseUint(digits)
	if err != nil {
		return 0, false
	}
	scale := uint64(1)
	switch string(unit) {
	case "", "ns", "Hz":
	case "KHz":
		scale = 1e3
	case "MHz":
		scale = 1e6
	default:
		return 0, false
	}
	return n * scale, n <= 1<<63/scale
}
