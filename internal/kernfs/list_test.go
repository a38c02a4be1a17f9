// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"bytes"
	"slices"
	"testing"
)

// numbers returns the numbers of a list.
func numbers(b []byte) (ns []int, err error) {
	err = ParseList(b, func(n int) { ns = append(ns, n) })
	return ns, err
}

func TestParseListYieldsNumbersAndRanges(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-3\n": {0, 1, 2, 3}, "0-1,4,6-7\n": {0, 1, 4, 6, 7}} {
		if got, err := numbers([]byte(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	if got, err := numbers([]byte("0-65535")); err != nil || len(got) != 65536 {
		t.Errorf("%d numbers, %v", len(got), err)
	}
	for _, text := range []string{"", "\n", "a", "3-1", "0-", "-1", "0,,1", "0-99999999999"} {
		if got, err := numbers([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func FuzzParseList(f *testing.F) {
	for _, text := range []string{"0-3,5\n", "3-1", "0\n", "0-65535\n", "0-65536\n", "0,0\n", "0-1-2\n", "0,\n", "-1\n", "\n", "", "18446744073709551615-0\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := numbers(b)
		if err != nil {
			return
		}
		parts := bytes.Count(b, []byte{','}) + 1
		if len(got) < parts || len(got) > parts*maxListed {
			t.Errorf("%q has %d numbers", b, len(got))
		}
		more, err := numbers(append(slices.Clone(bytes.TrimSpace(b)), ",7-9\n"...))
		if err != nil || !slices.Equal(more, append(got, 7, 8, 9)) {
			t.Errorf("%q has %d numbers, with three more %d, %v", b, len(got), len(more), err)
		}
	})
}
