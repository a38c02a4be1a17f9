// SPDX-License-Identifier: Apache-2.0

package cgroup

import "bytes"

// DiskIO returns the number of bytes that the processes of a cgroup and its descendants have read
// from and written to devices (cgroup-v2.rst, io.stat). It omits devices whose major number is in
// skip. ok is false without version 2, without the io controller, or if the file cannot be read.
func (t *Tree) DiskIO(n *Node, skip map[string]bool) (read, written uint64, ok bool) {
	h, err := t.mounts.unified()
	if err != nil || n == nil || n.dir == "" {
		return 0, 0, false
	}
	text, err := t.lookups.read(h, n.dir, "io.stat")
	if err != nil || len(text) == fileRoom { // there are so many devices that the text is truncated
		return 0, 0, false
	}
	return parseDiskIO(text, skip)
}

func parseDiskIO(text []byte, skip map[string]bool) (read, written uint64, ok bool) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if major, _, _ := bytes.Cut(fields[0], []byte(":")); skip[string(major)] {
			continue
		}
		for _, field := range fields[1:] {
			key, value, _ := bytes.Cut(field, []byte("="))
			var sum *uint64
			switch string(key) {
			case "rbytes":
				sum = &read
			case "wbytes":
				sum = &written
			default:
				continue
			}
			n, err := parseNumber(value)
			if err != nil {
				return 0, 0, false
			}
			*sum += n
		}
	}
	return read, written, true
}
