// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"
)

// splitSystemdPath takes apart "slice:prefix:name", the OCI cgroupsPath of the systemd driver. It appears
// as a directory's name where runc or kata was not told to use that driver (runc's docs/systemd.md); it
// means the slice, and in it the scope prefix-name. Other names are both slice and unit.
func splitSystemdPath(name string) (slice, unit string) {
	slice, rest, ok := strings.Cut(name, ":")
	if !ok {
		return name, name
	}
	prefix, id, ok := strings.Cut(rest, ":")
	if !ok || (slice != "" && !strings.HasSuffix(slice, ".slice")) {
		return name, name
	}
	return slice, prefix + "-" + id + ".scope"
}

// unescapeUnit undoes the \x2d of systemd.unit(5), "String Escaping for Inclusion in Unit Names". Dashes
// stay: they stand for the slashes of paths, and no machine has such a name.
func unescapeUnit(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var out []byte
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], `\x`) && len(s) >= i+4 {
			if n, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
