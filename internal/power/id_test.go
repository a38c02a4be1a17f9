// SPDX-License-Identifier: Apache-2.0

package power

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIDsAreOrderedByTheirNumbers(t *testing.T) {
	want := []string{"", "intel-rapl:1", "intel-rapl:1:9", "intel-rapl:1:10", "intel-rapl:2", "intel-rapl:10"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareIDs)
	assert.Equal(t, want, got)
}

func FuzzCompareIDs(f *testing.F) {
	f.Add("intel-rapl:2", "intel-rapl:10")
	f.Add("a01", "a1")
	f.Add("", "0")
	f.Fuzz(func(t *testing.T, a, b string) {
		if x, y := CompareIDs(a, b), CompareIDs(b, a); (x < 0) != (y > 0) || (x == 0) != (a == b) {
			t.Fatalf("%q, %q: %d one way, %d the other", a, b, x, y)
		}
	})
}
