// SPDX-License-Identifier: Apache-2.0

// Package golden compares what tests write with files in testdata.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var (
	update = flag.Bool("update", false, "write the golden files")
	dir, _ = os.Getwd() // of the package; a test may change the working directory later
)

// Equal compares a text with the file of this name in testdata.
func Equal(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join(dir, "testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%s differs, -update writes it: %v\n%s", file, err, got)
	}
}
