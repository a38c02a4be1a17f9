// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

// cpuInfo is the content of /proc/cpuinfo. prometheus/procfs reads it only in the format of the
// architecture that it was built for, and fails as a whole if one line is not as expected.
type cpuInfo struct {
	kinds      []cpuKind // in order of appearance
	processors int
	flags      bool // the CPU's features were read, on x86
	hypervisor bool // the flag that a hypervisor sets: CPUID.1:ECX.31
}

// cpuKind is the fields of a processor that distinguish it from another kind, and the number of its
// processors.
type cpuKind struct {
	id    cpuID
	count int
}

type cpuID struct {
	vendor, name            string // vendor_id and model name
	family, model, stepping int
	implementer, part       int // of MIDR_EL1, -1 if not available
	architecture            int // of an Arm CPU
}

const (
	maxLine = 64 << 10 // of the flags, which are 2 KiB for a CPU of 2024
	maxInfo = 64 << 20 // of the file; one with 8,192 CPUs has 16 MiB
)

// readCPUInfo reads the file /proc/cpuinfo.
func readCPUInfo(path string) (cpuInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		return cpuInfo{}, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return parseCPUInfo(io.LimitReader(file, maxInfo)), nil
}

// parseCPUInfo reads the processors of x86 (arch/x86/kernel/cpu/proc.c) and Arm
// (arch/arm64/kernel/cpuinfo.c), one after another, each from its line "processor". It skips what
// that it does not use, lines that are too long and a last line that may be cut off. Those of other
// architectures are counted.
func parseCPUInfo(r io.Reader) (info cpuInfo) {
	lines := bufio.NewReaderSize(r, maxLine)
	var current cpuID
	for {
		line, err := lines.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			line = nil
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			info.add(current)
			return info
		}
		key, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue
		}
		key, value = bytes.TrimSpace(key), bytes.TrimSpace(value)
		if string(key) == "processor" {
			info.add(current)
			current = cpuID{implementer: -1, part: -1}
			info.processors++
		} else if info.processors > 0 {
			info.set(&current, string(key), value)
		}
	}
}

// set notes one line of a processor.
func (info *cpuInfo) set(id *cpuID, key string, value []byte) {
	switch key {
	case "vendor_id":
		id.vendor = printable(value)
	case "model name":
		id.name = printable(value)
	case "cpu family":
		id.family = number(value)
	case "model":
		id.model = number(value)
	case "stepping", "CPU revision":
		id.stepping = number(value)
	case "CPU implementer":
		id.implementer = number(value)
	case "CPU part":
		id.part = number(value)
	case "CPU architecture":
		id.architecture = number(value)
	case "flags":
		info.flags = true
		info.hypervisor = info.hypervisor || hasWord(value, "hypervisor")
	}
}

// add counts a processor that has been read.
func (info *cpuInfo) add(id cpuID) {
	if info.processors == 0 {
		return
	}
	for i := range info.kinds {
		if info.kinds[i].id == id {
			info.kinds[i].count++
			return
		}
	}
	if len(info.kinds) < maxKinds {
		info.kinds = append(info.kinds, cpuKind{id, 1})
	}
}

// maxKinds is the maximum number of kinds of CPUs that are distinguished. Real machines have up to
// four.
const maxKinds = 64

// hasWord reports whether the word is in the text.
func hasWord(text []byte, word string) bool {
	for field := range bytes.FieldsSeq(text) {
		if string(field) == word {
			return true
		}
	}
	return false
}

// number returns a decimal or hexadecimal (0x) number, or 0 for another text.
func number(text []byte) int {
	n, err := strconv.ParseInt(string(text), 0, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

// maxText bounds a name, in bytes. CPUID's brand string has 48, SMBIOS asks for 64 at most.
const maxText = 128

// printable returns the text without white space around it. Bytes that are no printable ASCII
// become question marks: names are written to logs.
func printable(text []byte) string {
	text = bytes.TrimSpace(text)
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, string(text))
}

// describe describes the CPUs by their most frequent kind, the first one among equals.
func (info *cpuInfo) describe(m *Machine) {
	m.Threads = info.processors
	var most cpuKind
	for _, k := range info.kinds {
		if k.count > most.count {
			most = k
		}
	}
	id := &most.id
	switch {
	case most.count == 0:
	case id.implementer >= 0:
		m.Arch = "arm64"
		if id.architecture == 7 {
			m.Arch = "arm"
		}
		m.Vendor, m.CPU = armName(id.implementer, id.part)
		m.Model, m.Stepping = max(id.part, 0), id.stepping
	case id.vendor != "" && info.flags:
		m.Arch = "amd64"
		fallthrough
	default:
		m.Vendor, m.CPU, m.Family, m.Model, m.Stepping = id.vendor, id.name, id.family, id.model, id.stepping
	}
}
