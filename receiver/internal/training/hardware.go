// SPDX-License-Identifier: Apache-2.0

package training

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// identifying are the fields of /proc/cpuinfo that distinguish processors and their firmware, on
// x86 and Arm.
var identifying = []string{
	"vendor_id", "cpu family", "model", "model name", "stepping", "microcode",
	"CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
}

// processorsOf describes the processors of the machine whose root directory is at root, their
// microcode and the kernel, a line each. Two machines with different descriptions may have
// different static power. Values that cannot be read are omitted.
func processorsOf(root string) (description []string) {
	if info, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo")); err == nil {
		description = parseProcessors(info)
	}
	if version, err := os.ReadFile(filepath.Join(root, "proc/version")); err == nil {
		description = append(description, strings.TrimSpace(string(version)))
	}
	return description
}

// parseProcessors returns the identifying fields of the first processor in /proc/cpuinfo, and the number
// of processors.
func parseProcessors(info []byte) (description []string) {
	number := 0
	lines := bufio.NewScanner(bytes.NewReader(info))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if key == "processor" {
			number++
		}
		if number == 1 && slices.Contains(identifying, key) {
			description = append(description, key+" "+value)
		}
	}
	return append(description, fmt.Sprint("processors ", number))
}
