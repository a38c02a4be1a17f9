// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"
)

// findUnit is the finder of units of the host's systemd. A unit is the first directory that is not
// a slice, as in cg_path_get_unit in systemd's cgroup-util.c. Units of a user's service manager or
// in a container are inside of it.
func findUnit(w *walk, name string) verdict {
	if w.behindSlices {
		return passed
	}
	// systemd puts a "_" before names that the kernel's files may have.
	unit := strings.TrimPrefix(name, "_")
	if strings.HasSuffix(unit, ".slice") && isUnitName(unit) {
		return passed
	}
	w.behindSlices = true
	if hasCgroup(unit) && isUnitName(unit) {
		w.line.Unit.Name = unit
	}
	return passed
}

// hasCgroup reports whether a unit with this name has a cgroup that processes may be in
// (systemd.resource-control(5)).
func hasCgroup(unit string) bool {
	switch unit[strings.LastIndexByte(unit, '.')+1:] {
	case "service", "scope", "socket", "mount", "swap":
		return true
	}
	return false
}

// isUnitName reports whether a unit may have this name (systemd.unit(5)): at most 255 bytes,
// letters, digits and ":-_.\@", a part before the type's suffix, and behind the @ of a template its
// instance.
func isUnitName(s string) bool {
	prefix := s[:max(strings.LastIndexByte(s, '.'), 0)]
	if at := strings.IndexByte(prefix, '@'); prefix == "" || len(s) > 255 || at == 0 || at > 0 && at == len(prefix)-1 {
		return false
	}
	return all(s, func(c byte) bool {
		return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.IndexByte(`:-_.\@`, c) >= 0
	})
}

// splitSystemdPath splits "slice:prefix:name", the OCI cgroupsPath of the systemd driver. It
// appears as a directory's name if runc or kata does not use that driver (runc's docs/systemd.md),
// and means the slice with the scope prefix-name. Other names are both slice and unit.
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

// unescapeUnit decodes the \x2d of systemd.unit(5), "String Escaping for Inclusion in Unit Names".
// Dashes are not converted to slashes, because names of machines contain no slashes.
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
