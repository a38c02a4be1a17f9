// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"
	"unicode/utf8"
)

// The formats of ids. Each accepts only ids that can be exported: UTF-8 without control characters.

// isHex64: the id that Docker, containerd's CRI, CRI-O and Podman give.
func isHex64(s string) bool { return len(s) == 64 && isLowerHex(s) }

// isBuildkitID: BuildKit's identity.NewID writes 25 digits to the base 36.
func isBuildkitID(s string) bool {
	return len(s) == 25 && all(s, func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'z' })
}

// isUUID: the text form of RFC 9562.
func isUUID(s string) bool {
	return len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' &&
		isHex(s[:8]) && isHex(s[9:13]) && isHex(s[14:18]) && isHex(s[19:23]) && isHex(s[24:])
}

// isPodUID reports whether s is a UUID or the UID of a static pod.
func isPodUID(s string) bool { return isUUID(s) || isStaticPodUID(s) }

// isStaticPodUID reports whether s is the UID of a static pod: the hash of its configuration, in 32
// hexadecimal digits.
func isStaticPodUID(s string) bool { return len(s) == 32 && isHex(s) }

// isFargateID: the task's 32 digits and a number.
func isFargateID(s string) bool {
	return len(s) > 33 && isLowerHex(s[:32]) && s[32] == '-' && isDigits(s[33:])
}

// isGardenHandle: a UUID, or the form that Cloud Foundry's Diego makes of a UUID: 8 digits and four
// groups of 4.
func isGardenHandle(s string) bool {
	return isUUID(s) || len(s) == 28 && isUUID(s+"00000000")
}

// isName: a name of a container or machine that is not the name of a systemd unit.
func isName(s string) bool {
	if s == "" || len(s) > 255 || s[0] == '.' || s[0] == '-' {
		return false
	}
	for _, unit := range []string{".scope", ".service", ".slice"} {
		if strings.HasSuffix(s, unit) {
			return false
		}
	}
	return all(s, func(c byte) bool {
		return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_' || c == '.'
	})
}

// isLXCName: LXC's own directories (lxc.monitor.<name>, lxc.pivot) are not containers.
func isLXCName(s string) bool { return isName(s) && !strings.HasPrefix(s, "lxc.") }

// isMachineName: libvirt allows anything but slashes and controls.
func isMachineName(s string) bool { return printable(s) && !strings.Contains(s, "/") }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isDigits(s string) bool { return s != "" && all(s, isDigit) }

func isLowerHex(s string) bool {
	return all(s, func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' })
}

func isHex(s string) bool {
	return all(s, func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' })
}

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

func printable(s string) bool {
	return utf8.ValidString(s) && all(s, func(c byte) bool { return c >= ' ' && c != 0x7f })
}
