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

// cpuInfo is the content of /proc/cpuinfo. prometheus/procfs is not used, because it reads only the
// format of the architecture that it was built for, and fails if a single line is unexpected.
type cpuInfo struct {
	kinds      []cpuKind // in the order of the file
	processors int
	flags      bool // the CPU's features were read, on x86
	hypervisor bool // the CPU flag hypervisor: CPUID.1:ECX.31
}

// cpuKind has the fields that distinguish kinds of processors, and the number of processors of the
// kind.
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
	maxLine = 64 << 10 // the longest line is the flags: 2 KiB for a CPU of 2024
	maxInfo = 64 << 20 // the file of a machine with 8,192 CPUs has 16 MiB
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
// (arch/arm64/kernel/cpuinfo.c), one after another. Each begins at its line "processor". It skips
// unused fields, lines that are too long, and a last line that may be truncated. Processors of
// other architectures are only counted.
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

// set records one line of a processor.
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

// maxText is the maximum length of a name in bytes. The brand string of CPUID has 48 bytes, and
// strings of SMBIOS should have at most 64.
const maxText = 128

// printable returns the text without surrounding white space. It replaces bytes that are not
// printable ASCII by question marks, because names are written to logs.
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

// describe describes the CPUs by their most frequent kind, or by the first of several that are
// equally frequent.
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
