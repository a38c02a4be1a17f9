// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"errors"
	"math"
)

// The errors of ParseUint and ParseUintLine.
var (
	ErrEmpty  = errors.New("empty instead of a number")
	ErrSyntax = errors.New("not a decimal number")
	ErrRange  = errors.New("number exceeds 64 bits")
	ErrCut    = errors.New("no end of line, so the number may be cut short")
)

// ParseUint returns the number that b holds in decimal digits. A sign and white space are errors.
// Leading zeros are allowed. It does not allocate.
func ParseUint(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, ErrEmpty
	}
	const safe = 19 // numbers of up to 19 digits cannot overflow
	var n uint64
	overflow := false
	for i, c := range b {
		d := uint64(c - '0')
		if d > 9 {
			return 0, ErrSyntax
		}
		overflow = overflow || i >= safe && n > (math.MaxUint64-d)/10
		n = n*10 + d
	}
	if overflow {
		return 0, ErrRange
	}
	return n, nil
}

// ParseUintLine returns the number of a file that holds one number and a newline, as sysfs prints
// it. More white space at the end is allowed. A number without its newline may have lost digits,
// and is rejected with ErrCut.
func ParseUintLine(b []byte) (uint64, error) {
	if len(b) > 0 && b[len(b)-1] != '\n' {
		return 0, ErrCut
	}
	for len(b) > 0 {
		if c := b[len(b)-1]; c != '\n' && c != ' ' && c != '\t' && c != '\r' {
			break
		}
		b = b[:len(b)-1]
	}
	return ParseUint(b)
}
