// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// maxEngines is the maximum number of engine classes of a GPU. Drivers have up to ten.
const maxEngines = 16

// fdinfo is the content of /proc/<pid>/fdinfo/<fd> of a DRM descriptor. Its texts are valid until
// the buffer of the file is reused.
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
	// ns is the time that the engines worked for the client. cycles is the number of cycles that
	// they worked for it, total the number of all cycles, and hz their maximum rate.
	ns, cycles, total, hz        uint64
	hasNS, hasCycles, hasCounter bool // hasCounter: total
}

// counts reports whether the time that the engines worked can be computed.
func (e *engineInfo) counts() bool { return e.hasNS || e.hasCycles && (e.hasCounter || e.hz > 0) }

// is reports whether the text belongs to the client of a device. Drivers of platform devices do not
// report a device.
func (f *fdinfo) is(client uint64, device string) bool {
	return f.hasClient && f.client == client && (f.pdev == nil || string(f.pdev) == device)
}

// parse reads the text of any descriptor (Documentation/gpu/drm-usage-stats.rst). It ignores lines
// that are malformed or truncated. It does not allocate once engines has grown.
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

// engineKeys are the prefixes of keys that end with the name of an engine class. The first prefix
// that matches applies, so engine-capacity- precedes engine-.
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

// quantity returns a number without a unit, or with the unit ns, Hz, KHz or MHz.
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
