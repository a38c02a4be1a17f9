// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
)

// stacks are the stacks of a program that calls two functions, one of which an earlier profile lacks.
func stacks() *Frame {
	root := &Frame{Name: "make"}
	root.Add([]string{"cc1", "main", "parse"}, 6_000_000, 9_000_000)
	root.Add([]string{"cc1", "main", "std::operator<"}, 3_000_000, 0)
	root.Add([]string{"cc1", "main"}, 1_000_000, 1_000_000)
	root.Add([]string{"as", "gone"}, 0, 2_000_000)
	root.Add([]string{"as", "narrow"}, 100, 100)
	return root
}

func flameGraph(t *testing.T, compare bool) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Flame(&b, "10 J: make", stacks(), compare))
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		require.NoError(t, err)
	}
}

func TestAFlameGraphShowsEnergyByStack(t *testing.T) {
	golden.Equal(t, "flame.svg", flameGraph(t, false))
}

func TestAFlameGraphShowsWhatChanged(t *testing.T) {
	golden.Equal(t, "flame-compared.svg", flameGraph(t, true))
}

func TestAFlameGraphWithoutEnergyIsEmpty(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Flame(&b, "unknown", &Frame{Name: "true"}, true))
	assert.NotContains(t, b.String(), "<title>")
}
