// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

func TestNumbersAreDecimalDigitsOnly(t *testing.T) {
	for text, want := range map[string]error{
		"": ErrEmpty, "-5": ErrSyntax, "+5": ErrSyntax, " 5": ErrSyntax, "5 ": ErrSyntax, "0x10": ErrSyntax, "1_0": ErrSyntax,
		"1.5": ErrSyntax, "5\x00": ErrSyntax, "18446744073709551616": ErrRange, strings.Repeat("9", 100): ErrRange,
		strings.Repeat("9", 100) + "x": ErrSyntax,
	} {
		if n, err := ParseUint([]byte(text)); !errors.Is(err, want) || n != 0 {
			t.Errorf("%q: %d, %v; want %v", text, n, err, want)
		}
	}
	for text, want := range map[string]uint64{"0": 0, "00012": 12, "18446744073709551615": 1<<64 - 1} {
		if n, err := ParseUint([]byte(text)); err != nil || n != want {
			t.Errorf("%q: %d, %v; want %d", text, n, err, want)
		}
	}
}

func TestALineWithoutANewlineIsRejected(t *testing.T) {
	for text, want := range map[string]error{"12": ErrCut, "": ErrEmpty, "\n": ErrEmpty, "12\n\x00": ErrCut, "-12\n": ErrSyntax} {
		if n, err := ParseUintLine([]byte(text)); !errors.Is(err, want) || n != 0 {
			t.Errorf("%q: %d, %v; want %v", text, n, err, want)
		}
	}
	if n, err := ParseUintLine([]byte("12 \t\r\n\n")); err != nil || n != 12 {
		t.Errorf("%d, %v; want 12", n, err)
	}
}

func FuzzParseUintLine(f *testing.F) {
	for _, text := range []string{"0\n", "262143328850\n", "18446744073709551615", "18446744073709551616", "", "\n", "-1", "1 2", "00012 \t\r\n", "9999999999999999999999999x"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ParseUintLine(text)
		want, wantErr := strconv.ParseUint(strings.TrimRight(string(text), "\n\r\t "), 10, 64)
		if wantErr == nil && !strings.HasSuffix(string(text), "\n") {
			wantErr = ErrCut
		}
		if (err == nil) != (wantErr == nil) || err == nil && got != want {
			t.Fatalf("%q: %d, %v; want %d, %v", text, got, err, want, wantErr)
		}
	})
}
