// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var traces = flag.String("traces", "", "directory with series to replay, see README.md")

// TestTable prints the figures of the series in -traces. make replay runs it.
func TestTable(t *testing.T) {
	if *traces == "" {
		t.Skip("make replay TRACES=DIR")
	}
	all, err := Read(*traces)
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("\n| figure | cases | value |\n|---|---|---|\n")
	for _, row := range Table(all) {
		fmt.Fprintf(&b, "| %s | %d | %s |\n", row.Figure, row.Cases, row.Value)
	}
	t.Log(b.String())
}
